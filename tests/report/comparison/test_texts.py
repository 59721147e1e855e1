"""Rows and lines of a comparison: which metrics are shown, their p-values, and what must stand beside them."""

import numpy as np
import pytest

from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.summary.compare import compare_runs
from segmeter.report.comparison.texts import (
    adjusted,
    notes,
    order_lines,
    pair_cells,
    requirement_line,
    shown_metrics,
    title,
)
from tests.metrics.build import case_row, class_spec, random_rows

RESAMPLING = {"interval": "expanded", "resamples": 500, "cluster": None, "warning": None}


def compared(**metrics):
    """Metrics by name, with the p-values of their pairs."""
    pairs = {name.replace("__", "/"): [{"sign_flip_p_holm": p} for p in ps] for name, ps in metrics.items()}
    entries = {name: {"pairs": each} for name, each in pairs.items()}
    return {"rank_by": next(iter(entries)), "metrics": entries}


@pytest.mark.parametrize(
    ("metric", "words"),
    [
        ("mean_dice", "mean Dice"),
        ("pq/mean", "mean PQ"),
        ("iou/car", "IoU of car"),
        ("iou/a/b", "IoU of a/b"),
        ("iou/a\x1b[2Jb", "IoU of a\N{REPLACEMENT CHARACTER}[2Jb"),
    ],
)
def test_a_metric_has_words(metric, words):
    assert title(metric) == words


def test_the_first_test_that_has_a_value_is_shown():
    ps = {"sign_flip_p_holm": 0.25, "wilcoxon_p_holm": 0.5, "dataset_p_holm": 0.75}
    assert adjusted(ps) == 0.25
    assert adjusted(ps | {"sign_flip_p_holm": None}) == 0.5
    assert adjusted({"dataset_p_holm": 0.75}) == 0.75
    assert adjusted({"sign_flip_p": 0.01}) is None  # not adjusted


def test_cells_of_a_pair_are_empty_where_there_is_nothing():
    whole = {"dataset_difference": 0.125, "dataset_ci95": [0.1, 0.15], "dataset_p_holm": 0.00001}
    whole["dataset_change"] = "better"
    cases = {"per_case_difference": "inf", "per_case_ci95": [None, None], "n_used": 3, "n_undefined": 2}
    cases["per_case_change"] = None
    assert pair_cells(whole) == ["+0.1250 better", "[0.100, 0.150]", "", "", "< 0.0001", ""]
    assert pair_cells(cases) == ["", "", "+inf", "", "", "3 of 5"]
    assert pair_cells(whole | cases)[:4] == ["+0.1250 better", "[0.100, 0.150]", "+inf", ""]


def test_many_single_classes_are_shown_where_they_differ():
    """A p-value may be 0, as Wilcoxon's is of thousands of cases. Mutation seen to fail: 0 taken for no p-value."""
    result = compared(iou__a=[0.5], mean_iou=[0.9], iou__b=[0.0], iou__c=[0.9, 0.049], iou__d=[0.05], iou__e=[None])
    assert shown_metrics(result, 3) == (["iou/a", "mean_iou", "iou/b", "iou/c"], 2)
    assert shown_metrics(result, 4) == (["iou/a", "mean_iou", "iou/b", "iou/c", "iou/d", "iou/e"], 0)
    overall = compared(mean_iou=[None], hd95__mean=[0.9])
    assert shown_metrics(overall, 0) == (["mean_iou", "hd95/mean"], 0)


def test_a_distance_that_is_lost_in_every_one_of_many_cases_is_shown():
    tables = [row.counts for row in random_rows(3)]
    near, lost = (
        [case_row(f"{i:05d}", tables[i % 3], scores={"hd95/car": value}) for i in range(2500)]
        for value in (2.0, np.inf)
    )
    result = compare_runs({"near": near, "lost": lost}, class_spec(), MetricsConfig(bootstrap=20))
    result["rank_by"] = "mean_iou"
    (pair,) = result["metrics"]["hd95/car"]["pairs"]
    assert adjusted(pair) < 1e-300
    assert "hd95/car" in shown_metrics(result, 0)[0]


def test_what_would_rank_otherwise_is_said_by_name():
    result = {"rank_by": "mean_iou", "order": ["a", "b\n"], "other_orders": {"pq/mean": ["b\n", "a"]}}
    first, second = order_lines(result)
    assert first.startswith("ranked by mean IoU: a, b")
    assert second.startswith("otherwise by mean PQ: b")
    assert "\n" not in first + second
    assert len(order_lines(result | {"other_orders": {}})) == 1


def test_notes_say_what_was_resampled_and_what_was_left_out():
    result = {"convention": "monai", "n_cases": 12, "bootstrap": RESAMPLING, "not_shared": []}
    lines = notes(result)
    assert lines[:3] == ["convention monai", "12 cases", "95 % intervals: expanded bootstrap, 500 draws of cases"]
    assert len(lines) == 4
    grouped = RESAMPLING | {"cluster": "prefix:_", "warning": "Only 3 independent units."}
    lines = notes(result | {"bootstrap": grouped, "not_shared": ["hd95", "pq"]})
    assert lines[2].endswith("500 draws of clusters")
    assert "sign-flip test on the clusters" in lines[3]
    assert lines[4:] == ["Only 3 independent units.", "not measured in all runs: hd95, pq"]


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"outcome": "pass"}, "met, margin +0.0100 [-0.0200, 0.0400]; {}"),
        ({"outcome": "regression", "margin_ci95": None}, "REGRESSION, margin +0.0100; {}"),
        (
            {"outcome": "unknown", "n_units_needed": 12345},
            "can't be told from 30 wards, margin +0.0100 [-0.0200, 0.0400]; {}; "
            "about 12,345 wards like these would tell",
        ),
        (
            {"outcome": "unknown"},
            "can't be told from 30 wards, margin +0.0100 [-0.0200, 0.0400]; {}; the interval holds the bound",
        ),
    ],
    ids=lambda value: value["outcome"] if isinstance(value, dict) else None,
)
def test_a_requirement_is_one_line(changes, line):
    entry = {
        "require": "mean_iou >= base", "margin": 0.01, "margin_ci95": [-0.02, 0.04],
        "reason": "the interval holds the bound", "n_units": 30, "n_units_needed": None,
        "difference": 0.01, "change": "better",
    }  # fmt: skip
    said = line.format("new minus base +0.0100 better")
    assert requirement_line(entry | changes, units="wards") == f"mean_iou >= base: {said}"
