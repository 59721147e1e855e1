"""Values of an evaluation's page: what is left out is said, and nothing in a script element ends it."""

import json

from segmeter.files import write_json
from segmeter.metrics.cases.table import write_cases
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.summary.summary import summarise
from segmeter.report.config import ReportConfig
from segmeter.report.data.columns import unpack_page
from segmeter.report.page import evaluation
from segmeter.report.page.evaluation import evaluation_values, script_json

from ..conftest import make_rows


def values_of(folder, rows, spec):
    write_cases(folder, rows, spec)
    summary = summarise(rows, spec, MetricsConfig(bootstrap=0))
    write_json(folder / "metrics.json", summary)
    return evaluation_values(folder, summary, ReportConfig())


def test_columns_that_are_too_much_are_left_out_and_named(tmp_path, rng, spec, monkeypatch):
    rows = make_rows(rng, spec, [f"{i:03}" for i in range(100)])
    whole = values_of(tmp_path, rows, spec)["explorer"]
    assert not whole["notes"]
    monkeypatch.setattr(evaluation, "DATA_BYTES", 5000)
    cut = values_of(tmp_path, rows, spec)["explorer"]
    assert cut["notes"][0].startswith("Left out of this page, not of cases.csv: ")
    assert "recall by class (" in cut["notes"][0]
    assert len(cut["data"]) < len(whole["data"])


def test_counts_of_what_became_of_a_class_stand_with_it(tmp_path, rng, spec):
    rows = make_rows(rng, spec, "ab")
    rows[0].counts[:] = [[5, 0, 0], [3, 0, 0], [0, 0, 4]]
    found = values_of(tmp_path, rows, spec)["evaluation"]["classes"]
    assert found[1]["statuses"] == {"missed": 1, "false alarm": 0}
    assert found[2]["statuses"] == {"missed": 0, "false alarm": 0}


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
