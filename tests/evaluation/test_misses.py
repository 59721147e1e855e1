"""More misses must never look better: 20 cases, each found object 4 px off, and more and more of them missed."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from segmeter.evaluation.score import score
from segmeter.metrics.config.measures import BoundaryConfig, SurfaceConfig
from segmeter.metrics.config.metrics import MetricsConfig
from tests.data.crafted import BINARY, put
from tests.evaluation.masks import scoring

CASES, MISSED = 20, (0, 10, 18, 20)
DISTANCES = ("hd", "hd95", "hd95_pooled", "assd", "masd")
CELL = BINARY.names[1]


def object_at(column):
    mask = np.zeros((20, 24), np.uint8)
    mask[4:12, column : column + 8] = 1
    return mask


def scores_with(root, missed, **surface):
    for i in range(CASES):
        put(root / "references" / f"{i:02d}.png", object_at(4))
        put(root / "predictions" / f"{i:02d}.png", np.zeros((20, 24), np.uint8) if i < missed else object_at(8))
    measures = (SurfaceConfig(**surface), BoundaryConfig(width=1))
    metrics = MetricsConfig(bootstrap=50, background=False, measures=measures)
    return score(replace(scoring(root, spec=BINARY), metrics=metrics))


@pytest.fixture(scope="module")
def summaries(tmp_path_factory):
    return {missed: scores_with(tmp_path_factory.mktemp(f"missed{missed}"), missed) for missed in MISSED}


def values(summaries, metric, key):
    return [float(summaries[missed]["measures"][metric][CELL][key]) for missed in MISSED]


def test_hd95_is_4_without_a_miss_and_infinite_with_one(summaries):
    assert values(summaries, "hd95", "mean") == [4, math.inf, math.inf, math.inf]
    assert values(summaries, "hd95", "median") == [4, math.inf, math.inf, math.inf]  # of half and half: their mean
    assert values(summaries, "hd95", "n_penalised") == list(MISSED)
    assert values(summaries, "hd95", "n_used") == [CASES] * 4


def test_no_distance_falls_and_every_overlap_does(summaries):
    for metric in DISTANCES:
        for key in ("mean", "median"):
            found = values(summaries, metric, key)
            assert found == sorted(found), (metric, key)
            assert found[0] < found[-1], (metric, key)
    overlaps = [values(summaries, metric, "mean") for metric in ("nsd@1", "boundary_iou")]
    overlaps += [[summaries[missed]["per_case"]["mean_iou"]["mean"] for missed in MISSED]]
    overlaps += [[summaries[missed]["dataset"]["mean_iou"] for missed in MISSED]]
    for found in overlaps:
        assert found[-1] == 0
        assert all(one > other for one, other in itertools.pairwise(found))
    assert [overlaps[2][0], overlaps[3][0]] == pytest.approx([1 / 3] * 2, rel=1e-12)  # half of 8 x 8 is common


def test_a_finite_penalty_makes_the_mean_rise_with_every_miss(tmp_path):
    found = [
        scores_with(tmp_path / str(missed), missed, penalty="diagonal")["measures"]["hd95"][CELL]["mean"]
        for missed in MISSED
    ]
    assert found == pytest.approx([4 + (math.hypot(20, 24) - 4) * missed / CASES for missed in MISSED], rel=1e-12)
