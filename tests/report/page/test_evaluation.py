"""Values of an evaluation's page: what is left out is said, and nothing in a script element ends it."""

import json
from dataclasses import replace

import numpy as np

from segmeter.report.config import ReportConfig
from segmeter.report.page import evaluation
from segmeter.report.page.evaluation import evaluation_values, script_json

from ..conftest import make_rows, unpack_page, write_run


def values_of(folder, rows, spec):
    return evaluation_values(folder, write_run(folder, rows, spec), ReportConfig())


def test_columns_that_are_too_much_are_left_out_and_named_the_iou_of_each_class_last(tmp_path, rng, spec, monkeypatch):
    rows = make_rows(rng, spec, [f"{i:03}" for i in range(100)])
    whole = values_of(tmp_path, rows, spec)["explorer"]
    assert not whole["notes"]
    monkeypatch.setattr(evaluation, "DATA_BYTES", 0)
    large = unpack_page(values_of(tmp_path, rows, spec)["explorer"]["data"])
    assert {f"iou/{k}" for k in range(3)} <= {column["key"] for column in large["columns"]}
    monkeypatch.setattr(evaluation, "CASE_BYTES", 35)  # 3 scores, 2 counts, a loss, then IoU and Dice of 3 classes
    cut = values_of(tmp_path, rows, spec)["explorer"]
    left = "pixels by class (3), precision by class (3), recall by class (3)"
    assert cut["notes"] == [f"Left out of this page, not of cases.csv: {left}."]
    assert len(cut["data"]) < len(whole["data"])


def test_a_page_that_leaves_scores_out_still_opens_what_became_of_a_class(tmp_path, rng, spec, monkeypatch):
    rows = make_rows(rng, spec, "ab")
    rows[0].counts[:] = [[5, 0, 0], [3, 0, 0], [0, 0, 4]]
    monkeypatch.setattr(evaluation, "CASE_BYTES", 10)
    monkeypatch.setattr(evaluation, "DATA_BYTES", 10)
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


def test_pixels_of_no_class_are_shares_of_their_row(tmp_path, rng, spec):
    spec = spec.replace(count_invalid=True)
    made, outside = make_rows(rng, spec, "abc"), ((0, 0), (0, 1))
    rows = [replace(row, counts=np.pad(row.counts, outside, constant_values=3)) for row in made]
    page = unpack_page(values_of(tmp_path, rows, spec)["explorer"]["data"])
    assert page["outside"] == [9, 9, 9]
    assert np.shape(page["matrix"]) == (3, 3)


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
