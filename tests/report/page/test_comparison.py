"""compare.json -> the tables of its page."""

import json
from pathlib import Path

import numpy as np
import pytest

from segmeter.evaluation.compare import compare
from segmeter.files import write_json
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.report.config import ReportConfig
from segmeter.report.html import write_report
from segmeter.report.page import evaluation
from segmeter.report.page.comparison import comparison_values

from ..conftest import make_rows, unpack_page, write_run

NAMES = ("<b>one</b>", "two")


@pytest.fixture
def result(tmp_path, spec):
    for number in range(2):
        rng = np.random.default_rng(1)  # the same targets
        rows = make_rows(rng, spec, "abcdef")
        if number:
            for row in rows:
                moved = row.counts[1, 1] // 2
                row.counts[1, 1] -= moved
                row.counts[1, 2] += moved
        write_run(tmp_path / f"run{number}", rows, spec, MetricsConfig(bootstrap=50))
    found = compare([tmp_path / "run0", tmp_path / "run1"], MetricsConfig(bootstrap=50))
    found = json.loads(json.dumps(found).replace("run0", NAMES[0]))
    found["folders"] = {NAMES[0]: str(tmp_path / "run0"), "run1": str(tmp_path / "run1")}
    return found


def test_rows_are_those_of_the_result(tmp_path, result):
    table = tables_of(tmp_path, result)["differences"]
    first = dict(zip(table.heads, table.rows[0], strict=True))
    pair = result["metrics"]["mean_iou"]["pairs"][0]
    assert (first["score"], first["new minus base"].value) == ("mean IoU", pair["dataset_difference"])
    assert first["score"].link == first["new minus base"].link == "#?pair=0.1&by=difference%2Fheadline"
    assert first["cases"].link == first["score"].link + "&un.difference%2Fheadline=defined"


def test_every_case_has_the_values_of_both_runs(tmp_path, result):
    page = unpack_page(comparison_values(tmp_path, result, ReportConfig())["explorer"]["data"])
    columns = {column["key"]: column["values"] for column in page["columns"]}
    assert (columns["0/iou/1"] > columns["1/iou/1"]).all()
    np.testing.assert_array_equal(columns["0/iou/0"], columns["1/iou/0"])
    assert page["runs"] == [NAMES[0], "run1"]


def test_the_page_is_compare_html_and_escapes_names(tmp_path, result):
    folder = tmp_path / "comparison"
    folder.mkdir()
    write_json(folder / "compare.json", result)
    path = write_report(folder)
    assert path == folder / "compare.html"
    text = path.read_text()
    assert "&lt;b&gt;one&lt;/b&gt;" in text
    assert "<b>one" not in text


def tables_of(folder, result):
    return comparison_values(folder, result, ReportConfig())["comparison"]["tables"]


def links_of(folder, result):
    """The link of each score."""
    return {row[0]: row[0].link for row in tables_of(folder, result)["differences"].rows}


def test_a_metric_whose_columns_are_left_out_has_no_link_and_a_run_that_has_gone_is_named(
    tmp_path, result, monkeypatch
):
    assert links_of(tmp_path, result)["IoU of tree"].endswith("difference%2Fiou%2F1")
    monkeypatch.setattr(evaluation, "DATA_BYTES", 0)
    monkeypatch.setattr(evaluation, "CASE_BYTES", 30)  # scores, sizes and losses of both runs
    notes = comparison_values(tmp_path, result, ReportConfig())["explorer"]["notes"]
    assert "IoU by class (6)" in notes[0]
    links = links_of(tmp_path, result)
    assert links["IoU of tree"] is None
    assert links["mean IoU"] is not None
    result["folders"]["run1"] = str(tmp_path / "gone")
    with pytest.raises(ValueError, match="gone"):
        links_of(tmp_path, result)


def test_a_requirement_is_linked_to_its_cases_of_the_new_run_against_the_base(tmp_path, result):
    folders = list(map(Path, result["folders"].values()))
    require = ["mean_iou >= base - 1", "iou/tree[(.)=a] >= base - 1"]
    found = compare(folders, MetricsConfig(bootstrap=1000, slice_by=("(.)",)), require=require)
    rows = tables_of(tmp_path, found)["required"].rows
    assert [row[0].link for row in rows] == [
        "#?pair=0.1&by=difference%2Fheadline",
        "#?pair=0.1&by=difference%2Fiou%2F1&is.slice%2F%28.%29=a",
    ]
    assert rows[0][-1] == "met"
    found["gate"]["requirements"][0]["metric"] = "mean_average_precision"  # which no case has
    rows = tables_of(tmp_path, found)["required"].rows
    assert rows[0][0].link is None
