"""Rows of an evaluation's tables: every number of cases is a link to exactly these."""

from dataclasses import replace
from urllib.parse import parse_qs

import numpy as np
import pytest

from segmeter.metrics.cases.table import as_table
from segmeter.metrics.config.measures import ErrorTypesConfig
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.measures.protocol import CaseMaps, build_measures, measure_case
from segmeter.metrics.summary.summarise import summarise
from segmeter.report.cases import board_of, case_columns
from segmeter.report.columns import CaseColumn
from segmeter.report.page import tables

from ..conftest import make_rows


def choice(link):
    """What a link chooses, by name."""
    assert link.startswith("#?")
    return {name: values[0] for name, values in parse_qs(link[2:]).items()}


@pytest.fixture
def found(rng, spec):
    """The summary of 6 cases in two slices with types of errors, and its columns."""
    config = MetricsConfig(
        bootstrap=0, measures=(ErrorTypesConfig(),), groups={"all": ("tree", "car")}, slice_by=("prefix:/",)
    )
    rows = make_rows(rng, spec, ("x/1", "x/2", "y/1", "y/2", "y/3", "y/4"))
    measures = build_measures(config, spec)
    target, labels = rng.integers(0, 3, (2, 12, 16)).astype(np.uint8)
    maps = CaseMaps(case_id="x/1", target=target, labels=labels, spacing=(1.0, 1.0), spec=spec)
    rows = [replace(row, measured=measure_case(maps, measures)) for row in rows]
    summary = summarise(rows, spec, config)
    table = as_table(rows)
    return summary, {column.key: column for column in case_columns(board_of(table, spec, summary), table, summary)}


def test_a_class_is_linked_to_its_cases_by_a_column_that_the_page_has(found):
    summary, columns = found
    assert choice(tables.classes(summary, columns, columns)[1]["link"]) == {"has": "1", "sort": "iou/1", "h": "iou/1"}
    fewer = {key: column for key, column in columns.items() if not key.startswith("iou/")}
    assert choice(tables.classes(summary, fewer, columns)[1]["link"]) == {
        "has": "1",
        "sort": "headline",
        "h": "headline",
    }


def test_each_score_of_a_class_is_linked_to_the_cases_that_have_it(found):
    summary, columns = found
    row = tables.classes(summary, columns, columns)[1]
    for score in ("iou", "dice", "precision", "recall"):
        key = f"{score}/1"
        assert choice(row["links"][score]) == {f"un.{key}": "defined", "sort": key, "h": key}
    assert choice(row["links"]["support"]) == {"un.support/1": "above 0", "sort": "-support/1", "h": "support/1"}
    fewer = {key: column for key, column in columns.items() if not key.startswith(("dice/", "support/"))}
    row = tables.classes(summary, fewer, columns)[1]
    assert row["links"]["dice"] == row["links"]["support"] == row["link"]


def test_the_headline_figures_are_linked_to_all_cases_the_worst_first(found):
    summary, columns = found
    links = {row["name"]: row["link"] for row in tables.aggregates(summary, columns)}
    assert choice(links["mean IoU"]) == {"sort": "headline", "h": "headline"}
    assert choice(links["pixel accuracy"]) == {"sort": "pixel_accuracy", "h": "pixel_accuracy"}
    assert {row["link"] for row in tables.aggregates(summary, {})} == {None}


def test_undefined_cases_are_linked_only_by_a_column_that_the_page_has(found):
    """PQ of one class has no mean over classes, and so no column."""
    found[0]["headline_score"] = "mean_iou"  # what is added below was not there when the headline was decided
    summary, columns = found
    summary["measures"]["pq"] = {"mean": {"dataset": None, "n_undefined": 2}}
    links = {row["name"]: row["undefined"] for row in tables.aggregates(summary, columns)}
    assert links["mean PQ"] is None
    assert choice(links["mean IoU"]) == {"un.headline": "undefined", "h": "headline"}


def test_pixels_of_no_class_are_linked_to_their_cases(found):
    summary, columns = found
    invalid = CaseColumn(key="invalid", label="", values=[1] * 6, kind="count", group="case")
    summary |= {"invalid": {"tree": 5, "car": 1}}
    links = dict(tables.notes(summary, columns | {"invalid": invalid}))
    line = "6 pixels predicted outside the classes, counted as missed"
    assert choice(links.pop(line)) == {"un.invalid": "above 0", "sort": "-invalid", "h": "invalid"}
    assert set(links.values()) == {None}
    assert dict(tables.notes(summary, columns))[line] is None


def test_a_number_of_objects_is_linked_to_the_cases_that_have_any(found):
    summary, columns = found
    key = "measure/fn/car"
    summary["measures"]["fn"] = {"car": {"dataset": 6.0}}
    columns = columns | {key: CaseColumn(key=key, label="", values=[1] * 6, kind="count", group="fn")}
    (row,) = (row for row in tables.measures(summary, columns) if row["metric"] == "fn")
    assert choice(row["links"]["label"]) == {f"un.{key}": "above 0", "sort": f"-{key}", "h": key}


def test_probabilities_of_a_class_are_linked_to_the_cases_that_hold_it(found):
    summary, columns = found
    assert tables.calibration(summary, columns) == ([], [])
    summary["calibration"] = {"per_class": {"car": {"ece": 0.5}}}
    _, (row,) = tables.calibration(summary, columns)
    assert (row["name"], row["ece"]) == ("car", 0.5)
    assert choice(row["links"]["name"]) == {"has": "2", "sort": "iou/2", "h": "iou/2"}


def test_the_cases_of_a_class_are_counted_by_tenths_of_their_iou(found):
    summary, columns = found
    for k, row in enumerate(tables.classes(summary, columns, columns)):
        wanted = np.histogram(np.round(columns[f"iou/{k}"].values, 4), np.arange(11) / 10)[0]
        assert row["bars"] == wanted.tolist()
        assert row["key"] == f"iou/{k}"
    assert tables.classes(summary, {}, columns)[0]["key"] is None
    column = CaseColumn(key="", label="", values=[np.nan, 0.09996, 0.3, 1.0], kind="score", group="")
    assert tables.count_tenths(column) == [0, 1, 0, 1, 0, 0, 0, 0, 0, 1]


def test_types_of_errors_and_the_iou_add_up_and_lead_to_their_cases(found):
    summary, columns = found
    rows = tables.error_types(summary, columns)
    assert [row["region"] for row in rows] == ["ground", "tree", "car", "all"]
    for row in rows:
        assert row["iou"] + sum(part["share"] for part in row["parts"]) == pytest.approx(1)
        assert row["parts"][-1]["left"] + row["parts"][-1]["width"] == pytest.approx(100)
    assert choice(rows[1]["link"]) == {"un.iou/1": "defined", "sort": "iou/1", "h": "iou/1"}
    assert choice(rows[3]["link"]) == {"un.group/0": "defined", "sort": "group/0", "h": "group/0"}
    part = next(part for part in rows[1]["parts"] if part["share"])
    key = f"measure/{part['name']}_errors/tree"
    assert choice(part["link"]) == {f"un.{key}": "above 0", "sort": f"-{key}", "h": key}
    assert all(part["link"] is None for row in tables.error_types(summary, {}) for part in row["parts"])


def test_the_iou_of_the_error_types_is_that_of_the_measured_pixels(found):
    """The shares are of the maps that were measured, whose IoU another formula gives."""
    summary, columns = found
    sums = {name: entry["car"]["dataset"] for name, entry in summary["measures"].items()}
    row = tables.error_types(summary, columns)[2]
    assert row["iou"] == pytest.approx(1 - sums["boundary_errors"] - sums["extent_errors"] - sums["segment_errors"])
    assert [part["gain"] for part in row["parts"]] == [sums[f"{part['name']}_gain"] for part in row["parts"]]


def test_failures_of_a_group_and_of_a_mean_are_linked_to_the_cases_of_all_its_classes(found):
    summary, columns = found
    for entry in summary["measures"]["extent_errors"].values():
        entry["n_penalised"] = 1
    rows = {row["region"]: row for row in tables.measures(summary, columns) if row["metric"] == "extent_errors"}
    wanted = {"tree": "1", "all": "1-2", "mean": "0.1.2"}
    assert {name: choice(rows[name]["links"]["n_penalised"])["wrong"] for name in wanted} == wanted


def test_groups_and_measures_are_sorted_the_worst_first(found):
    summary, columns = found
    assert choice(tables.groups(summary, columns)[0]["links"]["name"]) == {"sort": "group/0", "h": "group/0"}
    rows = {(row["metric"], row["region"]): row for row in tables.measures(summary, columns)}
    wanted = "measure/extent_errors/car"
    assert choice(rows["extent_errors", "car"]["links"]["mean"]) == {"sort": f"-{wanted}", "h": wanted}
    assert choice(rows["extent_gain", "car"]["links"]["dataset"]) == {
        "sort": f"-{wanted}",
        "h": wanted,
    }  # cases have no gain


def test_a_run_without_types_of_errors_has_no_rows(rng, spec):
    summary = summarise(make_rows(rng, spec, "ab"), spec, MetricsConfig(bootstrap=0))
    assert tables.error_types(summary, {}) == []
    assert tables.slices(summary, {}) == []
