"""The page of an evaluation: what is left out is said, nothing ends a script element, and numbers link to cases."""

import json
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
from segmeter.report.config import ReportConfig
from segmeter.report.page import evaluation
from segmeter.report.page.evaluation import evaluation_values, script_json

from ..conftest import make_rows, row_of, unpack_page, write_run


def values_of(folder, rows, spec):
    return evaluation_values(folder, write_run(folder, rows, spec), ReportConfig())


def test_columns_that_are_too_much_are_left_out_and_named_the_iou_of_each_class_last(tmp_path, rng, spec, monkeypatch):
    rows = make_rows(rng, spec, [f"{i:03}" for i in range(100)])
    whole = values_of(tmp_path, rows, spec)["explorer"]
    assert not whole["notes"]
    monkeypatch.setattr("segmeter.report.columns.DATA_BYTES", 0)
    large = unpack_page(values_of(tmp_path, rows, spec)["explorer"]["data"])
    assert {f"iou/{k}" for k in range(3)} <= {column["key"] for column in large["columns"]}
    monkeypatch.setattr(
        "segmeter.report.columns.CASE_BYTES", 35
    )  # 3 scores, 2 counts, a loss, then IoU and Dice of 3 classes
    cut = values_of(tmp_path, rows, spec)["explorer"]
    left = "pixels by class (3), precision by class (3), recall by class (3)"
    assert cut["notes"] == [f"Left out of this page, not of cases.csv: {left}."]
    assert len(cut["data"]) < len(whole["data"])


def test_a_page_that_leaves_scores_out_still_opens_what_became_of_a_class(tmp_path, rng, spec, monkeypatch):
    rows = make_rows(rng, spec, "ab")
    rows[0].counts[:] = [[5, 0, 0], [3, 0, 0], [0, 0, 4]]
    monkeypatch.setattr("segmeter.report.columns.CASE_BYTES", 10)
    monkeypatch.setattr("segmeter.report.columns.DATA_BYTES", 10)
    found = values_of(tmp_path, rows, spec)
    assert found["evaluation"]["classes"][1]["statuses"] == [
        (1, "#?is.status%2F1=missed"),
        (0, "#?is.status%2F1=false+alarm"),
    ]
    keys = {column["key"] for column in unpack_page(found["explorer"]["data"])["columns"]}
    assert {"id", "headline", "status/1"} <= keys
    assert not {"iou/1", "support/1"} & keys
    assert found["evaluation"]["classes"][1]["link"] == "#?has=1&sort=headline&h=headline"


def test_json_for_a_script_element_holds_no_tag():
    content = {"</script><!--<script>": "\udce4 <b>"}
    text = script_json(content)
    assert "<" not in text
    assert json.loads(text) == {"</script><!--<script>": "? <b>"}


def test_the_file_of_each_prediction_is_named(tmp_path, rng, spec):
    labels = tmp_path / "predictions" / "labels"
    labels.mkdir(parents=True)
    (labels / "a.b.png").touch()
    found = values_of(tmp_path, make_rows(rng, spec, ["a.b", "c"]), spec)
    columns = {column["key"]: column["values"] for column in unpack_page(found["explorer"]["data"])["columns"]}
    assert columns["file"] == ["predictions/labels/a.b.png", ""]


ENTRY = {
    "ece": 0.1,
    "average_precision": 0.7,
    "reliability": {"confidence": [0.0, None, 1.0], "accuracy": [0.5, None, 1.0]},
    "curve": {"recall": [0.0, 1.0], "precision": [1.0, 0.5]},
}


def charts_of(**entries):
    return evaluation.calibration_charts({"per_class": entries, "reliability": None})


def test_reliability_and_precision_have_named_axes_and_rising_places():
    said, curve = charts_of(car=ENTRY)
    assert (said["axes"], curve["axes"]) == (("probability", "share that came true"), ("recall", "precision"))
    assert [(line["name"], line["last"]) for line in said["lines"]] == [("as said", None), ("car, ECE", 0.1)]
    assert (said["lines"][1]["xs"], said["lines"][1]["ys"]) == ([0, 1], [0.5, 1])  # an empty bin is left out
    (line,) = charts_of(car=ENTRY | {"curve": {"recall": [1.0, 0.5], "precision": [0.2, 1.0]}})[1]["lines"]
    assert (line["xs"], line["ys"]) == ([0.5, 1], [1, 0.2])


def test_the_lowest_of_many_curves_are_drawn_and_long_ones_keep_their_ends():
    lines = charts_of(**{str(k): ENTRY | {"average_precision": k / 10} for k in range(9)})[1]["lines"]
    assert [line["name"] for line in lines] == ["0, AP", "1, AP", "2, AP", "3, AP"]
    for points in (1, 10, 100_000):
        shares = [k / max(1, points - 1) for k in range(points)]
        (line,) = charts_of(car=ENTRY | {"curve": {"recall": shares, "precision": shares}})[1]["lines"]
        assert len(line["xs"]) <= evaluation.MOST_POINTS + 1
        assert (line["xs"][0], line["xs"][-1]) == (shares[0], shares[-1])


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


def test_a_class_and_its_scores_are_linked_to_their_cases_which_are_counted_by_tenths_of_their_iou(found):
    summary, columns = found
    row = evaluation.classes(summary, columns, columns)[1]
    assert choice(row["link"]) == {"has": "1", **all_by("iou/1")}
    for score in ("iou", "dice", "precision", "recall"):
        key = f"{score}/1"
        assert choice(row["links"][score]) == {f"un.{key}": "defined", **all_by(key)}
    assert choice(row["links"]["support"]) == {"un.support/1": "above 0", "sort": "-support/1", "h": "support/1"}
    fewer = {key: column for key, column in columns.items() if not key.startswith(("dice/", "support/"))}
    row = evaluation.classes(summary, fewer, columns)[1]
    assert row["links"]["dice"] == row["links"]["support"] == row["link"]
    fewer = {key: column for key, column in columns.items() if not key.startswith("iou/")}
    assert choice(evaluation.classes(summary, fewer, columns)[1]["link"]) == {"has": "1", **all_by("headline")}
    fewer["headline"] = replace(fewer["headline"], better="lower")  # such as HD95: the largest is the worst
    link = choice(evaluation.classes(summary, fewer, columns)[1]["link"])
    assert link == {"has": "1", "sort": "-headline", "h": "headline"}
    for k, row in enumerate(evaluation.classes(summary, columns, columns)):
        wanted = np.histogram(np.round(columns[f"iou/{k}"].values, 4), np.arange(11) / 10)[0]
        assert row["bars"] == wanted.tolist()
        assert row["key"] == f"iou/{k}"
    assert evaluation.classes(summary, {}, columns)[0]["key"] is None


def test_headlines_groups_and_measures_are_linked_to_all_cases_the_worst_first(found):
    """PQ of one class has no mean over classes, and so no column."""
    found[0]["headline_score"] = "mean_iou"  # what is added below was not there when the headline was decided
    summary, columns = found
    summary["measures"]["pq"] = {"mean": {"dataset": None, "n_undefined": 2}}
    rows = {row["name"]: row for row in evaluation.aggregates(summary, columns)}
    assert choice(rows["mean IoU"]["link"]) == all_by("headline")
    assert choice(rows["pixel accuracy"]["link"]) == all_by("pixel_accuracy")
    assert choice(rows["mean IoU"]["undefined"]) == {"un.headline": "undefined", "h": "headline"}
    assert rows["mean PQ"]["undefined"] is None
    assert {row["link"] for row in evaluation.aggregates(summary, {})} == {None}
    rows = {(row["metric"], row["region"]): row for row in evaluation.measures(summary, columns)}
    wanted = {"sort": "-measure/extent_errors/car", "h": "measure/extent_errors/car"}
    assert choice(rows["extent_errors", "car"]["links"]["mean"]) == wanted
    assert choice(rows["extent_gain", "car"]["links"]["dataset"]) == wanted  # cases have no gain
    key = "measure/fn/car"
    summary["measures"]["fn"] = {"car": {"dataset": 6.0}}
    counted = columns | {key: CaseColumn(key, "", [1] * 6, "count", "fn")}
    (row,) = (row for row in evaluation.measures(summary, counted) if row["metric"] == "fn")
    assert choice(row["links"]["label"]) == {f"un.{key}": "above 0", "sort": f"-{key}", "h": key}


def test_groups_slices_classes_of_probabilities_and_invalid_pixels_are_linked_to_their_cases(tmp_path, rng, spec):
    spec = spec.replace(count_invalid=True)
    rows = [
        replace(row, counts=np.pad(row.counts, ((0, 0), (0, 1)), constant_values=1))
        for row in make_rows(rng, spec, ("x/1", "x/2", "y/1", "y/2"))
    ]
    config = MetricsConfig(bootstrap=0, groups={"all": ("tree", "car")}, slice_by=("prefix:/",))
    summary = write_run(tmp_path, rows, spec, config)
    summary["calibration"] = {"per_class": {"car": {**ENTRY, "ece": 0.5}}, "reliability": None}
    found = evaluation_values(tmp_path, summary, ReportConfig())
    page, packed = found["evaluation"], unpack_page(found["explorer"]["data"])
    assert (packed["outside"], np.shape(packed["matrix"])) == ([4, 4, 4], (3, 3))  # beside the classes
    assert choice(page["groups"].rows[0][0].link) == all_by("group/0")
    assert choice(page["slices"].rows[0][1].link) == {"is.slice/prefix:/": "x"}
    (car,) = page["calibration"][1].rows
    assert (car[:2], choice(car[0].link)) == (["car", "0.5000"], {"has": "2", **all_by("iou/2")})
    links = dict(page["notes"])
    line = "12 pixels predicted outside the classes, counted as missed"
    assert choice(links.pop(line)) == {"un.invalid": "above 0", "sort": "-invalid", "h": "invalid"}
    assert set(links.values()) == {None}


def test_types_of_errors_and_the_iou_add_up_and_lead_to_their_cases(found):
    summary, columns = found
    rows = evaluation.error_types(summary, columns)
    assert [row["region"] for row in rows] == ["ground", "tree", "car", "all"]
    for row in rows:
        assert row["iou"] + sum(part["share"] for part in row["parts"]) == pytest.approx(1)
        assert row["parts"][-1]["left"] + row["parts"][-1]["width"] == pytest.approx(100)
    assert choice(rows[1]["link"]) == {"un.iou/1": "defined", "sort": "iou/1", "h": "iou/1"}
    assert choice(rows[3]["link"]) == {"un.group/0": "defined", "sort": "group/0", "h": "group/0"}
    part = next(part for part in rows[1]["parts"] if part["share"])
    key = f"measure/{part['name']}_errors/tree"
    assert choice(part["link"]) == {f"un.{key}": "above 0", "sort": f"-{key}", "h": key}
    assert all(part["link"] is None for row in evaluation.error_types(summary, {}) for part in row["parts"])
    # the shares are of the maps that were measured, whose IoU another formula gives
    sums = {name: entry["car"]["dataset"] for name, entry in summary["measures"].items()}
    kinds = ("boundary", "extent", "segment")
    assert rows[2]["iou"] == pytest.approx(1 - sum(sums[f"{kind}_errors"] for kind in kinds))
    assert [part["gain"] for part in rows[2]["parts"]] == [sums[f"{kind}_gain"] for kind in kinds]
    del summary["measures"]
    assert evaluation.error_types(summary, {}) == []


def test_failures_of_a_group_and_of_a_mean_are_linked_to_the_cases_of_all_its_classes(found):
    summary, columns = found
    for entry in summary["measures"]["extent_errors"].values():
        entry["n_penalised"] = 1
    rows = {row["region"]: row for row in evaluation.measures(summary, columns) if row["metric"] == "extent_errors"}
    wanted = {"tree": "1", "all": "1-2", "mean": "0.1.2"}
    assert {name: choice(rows[name]["links"]["n_penalised"])["wrong"] for name in wanted} == wanted
