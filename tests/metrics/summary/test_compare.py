"""Runs are compared case by case on one reference, with one spacing for lengths, or not at all."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from segmeter.errors import InputError
from segmeter.metrics.cases.run_columns import check_same_cases, lay_out_run
from segmeter.metrics.cases.table import CaseRow
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.statistics.paired_tests import holm, sign_flip, wilcoxon
from segmeter.metrics.summary.compare import compare_runs
from segmeter.metrics.summary.scoreboard import PER_CASE
from segmeter.metrics.summary.summarise import summarise
from tests.metrics.build import case_row, class_spec, random_rows

QUICK = MetricsConfig(bootstrap=300)


def spoil(rows: list[CaseRow], share: float, seed: int = 0) -> list[CaseRow]:
    """The same references, predicted worse: `share` of the correct pixels of each class go to the next one."""
    rng = np.random.default_rng(seed)
    worse = []
    for row in rows:
        counts = row.counts.copy()
        k = np.arange(len(counts))
        moved = rng.binomial(counts[k, k], share)
        counts[k, k] -= moved
        counts[k, (k + 1) % len(counts)] += moved
        worse.append(replace(row, counts=counts))
    return worse


def test_the_difference_is_that_of_the_two_summaries():
    rows, config = random_rows(30), QUICK.replace(groups={"solid": ("road", "car")})
    worse = spoil(rows, 0.3)
    result = compare_runs({"b": worse[::-1], "a": rows}, class_spec(), config)
    summaries = {"a": summarise(rows, class_spec(), config), "b": summarise(worse, class_spec(), config)}
    assert result["n_cases"] == 30
    for metric in PER_CASE:
        entry = result["metrics"][metric]
        (pair,), scores = entry["pairs"], {name: one["dataset"][metric] for name, one in summaries.items()}
        assert entry["dataset"] == scores
        assert (pair["base"], pair["new"], pair["dataset_change"]) == ("b", "a", "better")
        assert pair["dataset_difference"] == pytest.approx(scores["a"] - scores["b"], rel=1e-12)
        low, high = pair["dataset_ci95"]
        assert 0 < low < pair["dataset_difference"] < high
        assert pair["per_case_ci95"][0] > 0
        assert pair["wilcoxon_p"] < 0.01
        assert entry["ranking"]["order"] == ["a", "b"]
    regions = [("per_class", "sky"), ("per_class", "road"), ("per_class", "car"), ("per_group", "solid")]
    for (part, region), score in product(regions, ("iou", "dice", "precision", "recall")):
        entry, own = result["metrics"][f"{score}/{region}"], {name: s[part][region] for name, s in summaries.items()}
        assert entry["dataset"] == pytest.approx({name: each[score] for name, each in own.items()}, rel=1e-12)
        assert entry["better"] == "higher"
        if score == "iou":
            means = {name: each["per_case"]["iou"]["mean"] for name, each in own.items()}
            assert entry["per_case"] == pytest.approx(means, rel=1e-12)


def test_a_paired_interval_is_narrower_than_the_two_alone():
    # the same hard and easy cases in both: only the difference of .1 +- .01 is uncertain
    rng = np.random.default_rng(0)
    hard, noise = rng.normal(0, 1, 60), 0.01 * rng.normal(size=60)
    base, new = ([case_row(f"{i:02}", [[9, 0], [0, 9]], scores={"hd95/road": 9 + v}) for i, v in enumerate(values)]
                 for values in (hard + noise, hard + 0.1))  # fmt: skip
    (pair,) = compare_runs({"a": base, "b": new}, class_spec(2), QUICK)["metrics"]["hd95/road"]["pairs"]
    low, high = pair["per_case_ci95"]
    assert 0.09 < low < 0.1 < high < 0.11


def test_p_values_are_those_of_the_per_case_scores_adjusted_over_the_pairs():
    rows = random_rows(12)
    runs = {"a": rows, "b": spoil(rows, 0.02), "c": spoil(rows, 0.3)}
    metrics = compare_runs(runs, class_spec(), QUICK)["metrics"]
    values = {n: np.array([np.trace(r.counts) / r.counts.sum() for r in rs]) for n, rs in runs.items()}
    pairs = [("a", "b"), ("a", "c"), ("b", "c")]
    entry = metrics["pixel_accuracy"]
    assert [(pair["base"], pair["new"]) for pair in entry["pairs"]] == pairs
    for name, test in (("wilcoxon_p", wilcoxon), ("sign_flip_p", lambda a, b: sign_flip(a, b, resamples=300))):
        raw = [test(values[a], values[b]).p_value for a, b in pairs]
        assert [pair[name] for pair in entry["pairs"]] == pytest.approx(raw, rel=1e-12)
    for family in ([m for m in metrics if "/" not in m], [m for m in metrics if "/" in m]):  # as they are shown
        for name in ("wilcoxon_p", "sign_flip_p", "dataset_p"):
            tested = [pair for metric in family for pair in metrics[metric]["pairs"]]
            expected = holm([pair[name] for pair in tested])
            assert [pair[f"{name}_holm"] for pair in tested] == pytest.approx(list(expected), rel=1e-12)


def test_cases_of_a_cluster_are_one_piece_of_evidence():
    patients = random_rows(8)
    worse = spoil(patients, 0.02)
    slices = [
        [replace(row, case_id=f"{row.case_id}-{i}") for row in rows for i in range(5)] for rows in (patients, worse)
    ]
    config = QUICK.replace(cluster=r"(.*)-\d")
    alone = compare_runs({"a": patients, "b": worse}, class_spec(), QUICK)["metrics"]["mean_iou"]["pairs"][0]
    repeated = compare_runs({"a": slices[0], "b": slices[1]}, class_spec(), config)["metrics"]["mean_iou"]["pairs"][0]
    for name in ("wilcoxon_p", "sign_flip_p"):
        assert repeated[name] == pytest.approx(alone[name], rel=1e-12)
    assert (repeated["n_used"], repeated["n_undefined"]) == (40, 0)


def test_cases_undefined_in_one_run_are_left_out_of_both_sides_and_counted():
    # "c" holds nothing but the second class: without background, the first run's score is undefined there
    spec, config = class_spec(2), QUICK.replace(background=False)
    one = [case_row("a", [[5, 0], [1, 4]]), case_row("b", [[5, 0], [2, 4]]), case_row("c", [[9, 0], [0, 0]])]
    two = [case_row("a", [[5, 0], [2, 3]]), case_row("b", [[5, 0], [4, 2]]), case_row("c", [[8, 1], [0, 0]])]
    (pair,) = compare_runs({"one": one, "two": two}, spec, config)["metrics"]["mean_iou"]["pairs"]
    assert (pair["n_used"], pair["n_undefined"]) == (2, 1)
    expected = (3 / 5 + 2 / 6) / 2 - (4 / 5 + 4 / 6) / 2
    assert pair["per_case_difference"] == pytest.approx(expected, rel=1e-12)


def test_a_run_compared_with_itself_differs_by_nothing():
    rows = random_rows(15)
    entry = compare_runs({"a": rows, "b": rows}, class_spec(), QUICK)["metrics"]["mean_iou"]
    (pair,), ranking = entry["pairs"], entry["ranking"]
    assert (pair["dataset_difference"], pair["dataset_ci95"]) == (0, [0, 0])
    assert (pair["wilcoxon_p"], pair["sign_flip_p_holm"], ranking["stability"]) == (1, 1, None)
    assert (ranking["ranks"], ranking["rank_shares"]) == (dict.fromkeys("ab", 1.5), {"a": [0.5, 0.5], "b": [0.5, 0.5]})


ROWS = random_rows(12)


@pytest.mark.parametrize(
    ("runs", "message"),
    [
        ({"a": ROWS, "b": ROWS[10:]}, "10 missing from 'b': case-000, .* case-008, case-009"),
        ({"a": ROWS, "b": [replace(ROWS[0], counts=ROWS[0].counts + 1), *ROWS[1:]]}, "another target: case-000"),
        ({"a": ROWS}, "to be two or more, with a bootstrap, got 1 runs"),
        ({"a": [], "b": []}, "`runs` to hold a case, got none"),
    ],
    ids=["cases", "references", "one run", "no case"],
)
def test_refusals(runs, message):
    with pytest.raises(InputError, match=message):
        compare_runs(runs, class_spec(), QUICK)


def laid_out(runs):
    spec = class_spec()
    return {name: lay_out_run(rows, spec, {}) for name, rows in runs.items()}


@pytest.mark.parametrize("metric", ["hd95/car", "nsd@2/car", "object_masd/car", "autopet_fp_volume/car", "mine/car"])
def test_lengths_by_another_spacing_are_refused(metric):
    rows = [case_row(f"c{i}", r.counts, scores={metric: 1.0}) for i, r in enumerate(random_rows(6))]
    apart = [replace(row, spacing=(0.5, 0.5), unit="mm") for row in rows]
    wider = [replace(row, spacing=(0.5, 0.6), unit="mm") for row in rows]
    metres = [replace(row, spacing=(0.5, 0.5), unit="m") for row in rows]
    for one, other, message in (
        (rows, apart, "as 'a' with pixels in 'c0', got 0.5 x 0.5 mm in 'b' .6 cases differ"),
        (apart, wider, "as 'a' with 0.5 x 0.5 mm in 'c0', got 0.5 x 0.6 mm in 'b'"),
        (apart, metres, "got 0.5 x 0.5 m in 'b'"),
        (apart, [*apart[:5], rows[5]], "0.5 x 0.5 mm in 'c5', got pixels in 'b' .1 cases"),
    ):
        with pytest.raises(InputError, match=message):
            compare_runs({"a": one, "b": other}, class_spec(), QUICK)


def test_scores_that_are_no_lengths_need_no_spacing():
    rows = [case_row(f"c{i}", r.counts, scores={"pq/car": 1.0}) for i, r in enumerate(random_rows(6))]
    apart = [replace(row, spacing=(0.5, 0.5), unit="mm") for row in rows]
    rounded = [replace(row, spacing=(0.5 + 1e-8, 0.5), unit="mm") for row in apart]
    assert compare_runs({"a": rows, "b": apart}, class_spec(), QUICK)["n_cases"] == 6
    both = [[replace(r, measured=case_row("c", r.counts, scores={"hd/car": 1.0}).measured) for r in one]
            for one in (apart, rounded)]  # fmt: skip
    assert compare_runs(dict(zip("ab", both, strict=True)), class_spec(), QUICK)["n_cases"] == 6


@pytest.mark.parametrize(
    ("changes", "difference"),
    [
        ({"target_crc32": 9}, "labels"),
        ({"objects_crc32": 9}, "objects"),
        ({"height": 9}, r"shape \d+ x \d+ and 9 x \d+"),
        ({"depth": 1}, None),
        ({"objects_crc32": None}, None),
        ({"depth": 2}, r"shape \d+ x \d+ and 2 x \d+ x \d+"),
    ],
    ids=str,
)
def test_what_targets_differ_in_is_said(changes, difference):
    rows = [replace(row, target_crc32=i, objects_crc32=i) for i, row in enumerate(random_rows(6))]
    runs = {"a": rows, "b": [replace(rows[0], **changes), *rows[1:]]}
    if difference is None:
        check_same_cases(laid_out(runs))
        return
    message = rf"got 1 cases of 'b' with another target: case-000 \({difference}\). Score them again"
    for compare in (lambda: check_same_cases(laid_out(runs)), lambda: compare_runs(runs, class_spec(), QUICK)):
        with pytest.raises(InputError, match=message):
            compare()


def test_references_without_checksums_are_said_to_be_unverified_once(caplog):
    rows = [replace(row, target_crc32=i) for i, row in enumerate(random_rows(6))]
    check_same_cases(laid_out({"a": rows, "b": rows}))
    assert not caplog.records
    unknown = [replace(row, target_crc32=None) for row in rows]
    check_same_cases(laid_out({"a": rows, "b": unknown, "c": rows, "d": unknown}))
    (record,) = caplog.records
    assert "references of 'a' were compared with those of 'b' (6 cases), 'd' (6 cases)" in record.getMessage()
