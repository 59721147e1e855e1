"""Agreement of readers: the matrix, contrasts, and who stands apart."""

from itertools import permutations

import numpy as np
import pytest

from segmeter.metrics.cases.table import CaseRow
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.statistics.paired_tests import holm
from segmeter.metrics.summary.agreement import Agreement, Readings, lay_out_readings, summarise_agreement
from tests.data.crafted import BINARY
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
        matrix = found["scores"].get(name, found["scores"]["iou/cell"])["matrix"]
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
