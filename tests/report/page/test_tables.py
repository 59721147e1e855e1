"""Rows of an evaluation's tables: every number of cases is a link to exactly these."""

from dataclasses import replace
from urllib.parse import parse_qs

import numpy as np
import pytest

from segmeter.metrics.cases.table import as_table
from segmeter.metrics.config.measures import ErrorTypesConfig
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.summary.summarise import summarise
from segmeter.report.cases import board_of, case_columns
from segmeter.report.columns import CaseColumn
from segmeter.report.page import tables

from ..conftest import make_rows, row_of


def choice(link):
    """What a link chooses, by name."""
    assert link.startswith("#?")
    return {name: values[0] for name, values in parse_qs(link[2:]).items()}


def all_by(key):
    """All cases, the worst by a column first."""
    return {"sort": key, "h": key}


@pytest.fixture
def found(rng, spec):
    """The summary of 6 cases in two slices with types of errors, and its columns."""
    config = MetricsConfig(
        bootstrap=0, measures=(ErrorTypesConfig(),), groups={"all": ("tree", "car")}, slice_by=("prefix:/",)
    )
    rows = make_rows(rng, spec, ("x/1", "x/2", "y/1", "y/2", "y/3", "y/4"))
    measured = row_of("", *rng.integers(0, 3, (2, 12, 16)).astype(np.uint8), spec, config).measured
    rows = [replace(row, measured=measured) for row in rows]
    summary = summarise(rows, spec, config)
    table = as_table(rows)
    return summary, {column.key: column for column in case_columns(board_of(table, spec, summary), table, summary)}


def test_a_class_and_each_of_its_scores_are_linked_to_the_cases_that_have_them(found):
    summary, columns = found
    row = tables.classes(summary, columns, columns)[1]
    assert choice(row["link"]) == {"has": "1", **all_by("iou/1")}
    for score in ("iou", "dice", "precision", "recall"):
        key = f"{score}/1"
        assert choice(row["links"][score]) == {f"un.{key}": "defined", **all_by(key)}
    assert choice(row["links"]["support"]) == {"un.support/1": "above 0", "sort": "-support/1", "h": "support/1"}
    fewer = {key: column for key, column in columns.items() if not key.startswith(("dice/", "support/"))}
    row = tables.classes(summary, fewer, columns)[1]
    assert row["links"]["dice"] == row["links"]["support"] == row["link"]
    fewer = {key: column for key, column in columns.items() if not key.startswith("iou/")}
    assert choice(tables.classes(summary, fewer, columns)[1]["link"]) == {"has": "1", **all_by("headline")}
    assert tables.calibration(summary, columns) == ([], [])
    summary["calibration"] = {"per_class": {"car": {"ece": 0.5}}}
    _, (row,) = tables.calibration(summary, columns)
    assert (row["name"], row["ece"]) == ("car", 0.5)
    assert choice(row["links"]["name"]) == {"has": "2", **all_by("iou/2")}


def test_headlines_groups_and_measures_are_linked_to_all_cases_the_worst_first(found):
    """PQ of one class has no mean over classes, and so no column."""
    found[0]["headline_score"] = "mean_iou"  # what is added below was not there when the headline was decided
    summary, columns = found
    summary["measures"]["pq"] = {"mean": {"dataset": None, "n_undefined": 2}}
    rows = {row["name"]: row for row in tables.aggregates(summary, columns)}
    assert choice(rows["mean IoU"]["link"]) == all_by("headline")
    assert choice(rows["pixel accuracy"]["link"]) == all_by("pixel_accuracy")
    assert choice(rows["mean IoU"]["undefined"]) == {"un.headline": "undefined", "h": "headline"}
    assert rows["mean PQ"]["undefined"] is None
    assert {row["link"] for row in tables.aggregates(summary, {})} == {None}
    assert choice(tables.groups(summary, columns)[0]["links"]["name"]) == all_by("group/0")
    rows = {(row["metric"], row["region"]): row for row in tables.measures(summary, columns)}
    wanted = {"sort": "-measure/extent_errors/car", "h": "measure/extent_errors/car"}
    assert choice(rows["extent_errors", "car"]["links"]["mean"]) == wanted
    assert choice(rows["extent_gain", "car"]["links"]["dataset"]) == wanted  # cases have no gain


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


def test_the_cases_of_a_class_are_counted_by_tenths_of_their_iou(found):
    summary, columns = found
    for k, row in enumerate(tables.classes(summary, columns, columns)):
        wanted = np.histogram(np.round(columns[f"iou/{k}"].values, 4), np.arange(11) / 10)[0]
        assert row["bars"] == wanted.tolist()
        assert row["key"] == f"iou/{k}"
    assert tables.classes(summary, {}, columns)[0]["key"] is None


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
    # the shares are of the maps that were measured, whose IoU another formula gives
    sums = {name: entry["car"]["dataset"] for name, entry in summary["measures"].items()}
    kinds = ("boundary", "extent", "segment")
    assert rows[2]["iou"] == pytest.approx(1 - sum(sums[f"{kind}_errors"] for kind in kinds))
    assert [part["gain"] for part in rows[2]["parts"]] == [sums[f"{kind}_gain"] for kind in kinds]
    del summary["measures"], summary["slices"]
    assert tables.error_types(summary, {}) == tables.slices(summary, {}) == []


def test_failures_of_a_group_and_of_a_mean_are_linked_to_the_cases_of_all_its_classes(found):
    summary, columns = found
    for entry in summary["measures"]["extent_errors"].values():
        entry["n_penalised"] = 1
    rows = {row["region"]: row for row in tables.measures(summary, columns) if row["metric"] == "extent_errors"}
    wanted = {"tree": "1", "all": "1-2", "mean": "0.1.2"}
    assert {name: choice(rows[name]["links"]["n_penalised"])["wrong"] for name in wanted} == wanted
