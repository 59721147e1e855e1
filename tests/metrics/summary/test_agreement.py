"""Agreement of readers: the matrix, contrasts, who stands apart, and the majority and STAPLE of their maps."""

from collections import Counter
from itertools import permutations

import numpy as np
import pytest

from segmeter.classes import ClassSpec
from segmeter.metrics.cases.table import CaseRow
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.statistics.paired_tests import holm
from segmeter.metrics.summary.agreement import (
    Agreement,
    Readings,
    lay_out_readings,
    majority_vote,
    staple,
    summarise_agreement,
)
from tests.data.crafted import BINARY, THREE
from tests.metrics.build import case_row

CONFIG = MetricsConfig(bootstrap=500, headline="iou/cell")


def readings(masks: dict[str, np.ndarray], *, models: tuple[str, ...] = ()) -> Readings:
    """Comparisons of masks (N, pixels) of each reader."""

    def compared(a: str, b: str) -> list[CaseRow]:
        counts = [np.bincount(2 * one + other, minlength=4) for one, other in zip(masks[a], masks[b], strict=True)]
        return [case_row(f"p{i // 2}_{i:02}", each.reshape(2, 2)) for i, each in enumerate(counts)]

    rows = {(a, b): compared(a, b) for a in masks for b in masks if a != b}
    return Readings(readers=[name for name in masks if name not in models], models=models, rows=rows, tied={})


def noisy(errors: dict[str, float], cases: int = 16, seed: int = 0) -> dict[str, np.ndarray]:
    """Masks that share a truth, in which each reader has a share of wrong pixels."""
    rng = np.random.default_rng(seed)
    truth = rng.random((cases, 200)) < 0.4
    return {name: (truth ^ (rng.random(truth.shape) < share)).astype(int) for name, share in errors.items()}


def agreement(given: Readings, config: MetricsConfig = CONFIG) -> dict:
    return summarise_agreement(given, lay_out_readings(given, BINARY, config))


def test_the_matrix_of_a_symmetric_score_is_symmetric_though_both_directions_are_measured() -> None:
    found = agreement(readings(noisy({"a": 0.1, "b": 0.2, "c": 0.3})))
    for name in ("iou/cell", "mean_dice", "pixel_accuracy"):
        matrix = found["scores"][name]["matrix"]
        for a, row in matrix.items():
            assert {b: matrix[b][a] for b in row} == row
    assert set(Agreement.model_validate(found).scores) == set(found["scores"])


def test_a_contrast_is_the_agreement_with_the_others_minus_theirs_among_each_other() -> None:
    masks = noisy({"a": 0.05, "b": 0.05, "c": 0.3, "d": 0.05})
    one = agreement(readings(masks))["scores"]["iou/cell"]["contrast"]["c"]

    def iou(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return (x & y).sum(1) / (x | y).sum(1)

    own = np.mean([iou(masks["c"], masks[name]) for name in "abd"], axis=0)
    among = np.mean([iou(masks[x], masks[y]) for x, y in ("ab", "ad", "bd")], axis=0)
    assert one["mean"] == pytest.approx((own - among).mean(), rel=1e-12)
    assert one["ci95"][0] < one["mean"] < one["ci95"][1]
    assert one["apart"]


def test_the_outlier_alone_stands_apart_and_no_model_hides_or_makes_one() -> None:
    masks = noisy({"a": 0.1, "b": 0.1, "c": 0.1, "d": 0.25, "m": 0.4})
    found = agreement(readings(masks, models=("m",)))
    assert found["apart"] == ["d"]
    people = {name: mask for name, mask in masks.items() if name != "m"}
    alone = agreement(readings(people))["scores"]["iou/cell"]["contrast"]
    with_model = found["scores"]["iou/cell"]["contrast"]
    assert {name: with_model[name] for name in people} == alone
    assert with_model["m"]["change"] == "worse"
    assert with_model["m"]["ci95"][1] < 0
    assert "p" not in with_model["m"]


def test_a_reader_who_is_farther_from_the_others_stands_apart_though_less_is_better() -> None:
    rng, rows = np.random.default_rng(0), {}
    for pair in permutations("abcd", 2):
        distances = 2 + rng.random(16) + 3 * ("c" in pair)
        rows[pair] = [case_row(f"{i:02}", np.eye(2), scores={"hd95/cell": d}) for i, d in enumerate(distances)]
    given = Readings(readers=list("abcd"), models=(), rows=rows, tied={})
    assert agreement(given, CONFIG.replace(headline="hd95/cell"))["apart"] == ["c"]


def test_two_readers_have_no_contrast_and_clusters_are_the_units() -> None:
    found = agreement(readings(noisy({"a": 0.1, "b": 0.1})))
    assert found["scores"]["iou/cell"]["contrast"] == {}
    few = agreement(readings(noisy({"a": 0.1, "b": 0.1, "c": 0.3})), CONFIG.replace(cluster="prefix:_"))
    p = few["scores"]["iou/cell"]["contrast"]["c"]["p"]
    assert few["bootstrap"]["n_units"] == 8
    assert p >= 1 / 501
    contrasts = few["scores"]["iou/cell"]["contrast"]
    assert [one["p_holm"] for one in contrasts.values()] == holm([one["p"] for one in contrasts.values()]).tolist()


TWO = BINARY.replace(ignore_index=255)
PLANES = ClassSpec(task="multilabel", names=("a", "b"), colours=((0, 0, 0),) * 2, ignore_index=255)


def readers(seed: int, count: int, shape: tuple[int, ...], values: int) -> list[np.ndarray]:
    """Maps of readers who mostly agree."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, values, shape)
    return [
        np.where(rng.random(shape) < 0.7, truth, rng.integers(0, values, shape)).astype(np.uint8) for _ in range(count)
    ]


@pytest.mark.parametrize("count", [2, 3, 4, 5])
def test_a_majority_is_the_label_with_most_votes_and_undecided_on_a_tie(count: int) -> None:
    maps = readers(count, count, (9, 8), 3)
    maps[0][2, 2] = 255
    found = majority_vote(maps, THREE)
    for place in np.ndindex(9, 8):
        votes = Counter(int(one[place]) for one in maps).most_common()
        tied = len(votes) > 1 and votes[0][1] == votes[1][1]
        assert found[place] == (255 if tied or place == (2, 2) else votes[0][0])


def test_planes_of_a_multilabel_map_are_voted_on_one_by_one() -> None:
    maps = readers(1, 3, (2, 5, 5), 2)
    assert (majority_vote(maps, PLANES) == (sum(maps) >= 2)).all()


def test_staple_is_simpleitks_for_two_classes_several_and_planes() -> None:
    sitk = pytest.importorskip("SimpleITK")
    two, three, planes = readers(2, 4, (12, 9), 2), readers(3, 4, (12, 9), 3), readers(4, 3, (2, 6, 7), 2)

    def ours_and_theirs(maps: list[np.ndarray]) -> np.ndarray:
        return sitk.GetArrayFromImage(sitk.STAPLE([sitk.GetImageFromArray(one) for one in maps], 1.0)) >= 0.5

    assert (staple(two, TWO) == ours_and_theirs(two)).all()
    theirs = sitk.GetArrayFromImage(sitk.MultiLabelSTAPLE([sitk.GetImageFromArray(one) for one in three], 255))
    assert (staple(three, THREE) == theirs).all()
    assert (staple(planes, PLANES) == np.stack([ours_and_theirs([one[k] for one in planes]) for k in (0, 1)])).all()


def test_staple_of_empty_maps_is_empty_and_keeps_ignored_pixels() -> None:
    pytest.importorskip("SimpleITK")
    maps = [np.zeros((4, 4), np.uint8) for _ in range(3)]
    maps[1][0, 0] = 255
    found = staple(maps, TWO)
    assert found[0, 0] == 255
    assert found.sum() == 255
