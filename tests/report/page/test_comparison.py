"""Tables and lines of a comparison, in every text and on its page: what is shown, and what must stand beside it."""

import json
from pathlib import Path

import numpy as np
import pytest

from segmeter.evaluation.compare import compare
from segmeter.files import write_json
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.report.config import ReportConfig
from segmeter.report.differences import comparison_tables
from segmeter.report.html import write_report
from segmeter.report.page import comparison

from ..conftest import make_rows, unpack_page, write_run
from ..test_differences import RESAMPLING, compared, ran

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


def test_rows_are_those_of_the_result_and_every_case_has_the_values_of_both_runs(tmp_path, result):
    found = comparison.comparison_values(tmp_path, result, ReportConfig())
    page, table = unpack_page(found["explorer"]["data"]), found["comparison"]["tables"]["differences"]
    columns = {column["key"]: column["values"] for column in page["columns"]}
    assert (columns["0/iou/1"] > columns["1/iou/1"]).all()
    np.testing.assert_array_equal(columns["0/iou/0"], columns["1/iou/0"])
    assert page["runs"] == [NAMES[0], "run1"]
    first = dict(zip(table.heads, table.rows[0], strict=True))
    pair = result["metrics"]["mean_iou"]["pairs"][0]
    assert (first["score"], first["new minus base"].value) == ("mean IoU", pair["dataset_difference"])
    assert first["score"].link == first["new minus base"].link == "#?pair=0.1&by=difference%2Fheadline"
    assert first["cases"].link == first["score"].link + "&un.difference%2Fheadline=defined"


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
    return comparison.comparison_values(folder, result, ReportConfig())["comparison"]["tables"]


def links_of(folder, result):
    """The link of each score."""
    return {row[0]: row[0].link for row in tables_of(folder, result)["differences"].rows}


def test_a_metric_whose_columns_are_left_out_has_no_link_and_a_run_that_has_gone_is_named(
    tmp_path, result, monkeypatch
):
    assert links_of(tmp_path, result)["IoU of tree"].endswith("difference%2Fiou%2F1")
    monkeypatch.setattr("segmeter.report.columns.DATA_BYTES", 0)
    monkeypatch.setattr("segmeter.report.columns.CASE_BYTES", 30)  # scores, sizes and losses of both runs
    found = comparison.comparison_values(tmp_path, result, ReportConfig())["explorer"]["notes"]
    assert "IoU by class (6)" in found[0]
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


def test_runs_are_ranked_only_where_a_difference_can_be_told():
    told = compared(mean_iou=[0.01]) | {"n_cases": 12, "order": ["a", "b\n"], "other_orders": {"pq/mean": ["b\n", "a"]}}
    first, second = comparison.order_lines(told)
    assert first.startswith("ranked by mean IoU: a, b")
    assert second.startswith("otherwise by mean PQ: b")
    assert "\n" not in first + second
    assert len(comparison.order_lines(told | {"other_orders": {}})) == 1
    (line,) = comparison.order_lines(told | compared(mean_iou=[0.2]))
    assert line == "no difference in mean IoU can be told from 12 cases, so that the runs are not ranked"


def test_notes_say_what_was_resampled_and_what_was_left_out():
    result = {"convention": "monai", "n_cases": 12, "bootstrap": RESAMPLING, "not_shared": []}
    lines = comparison.notes(result)
    assert lines[:3] == ["convention monai", "12 cases", "95 % intervals: expanded bootstrap, 500 draws of cases"]
    assert len(lines) == 4
    grouped = RESAMPLING | {"cluster": "prefix:_", "warning": "Only 3 independent units."}
    lines = comparison.notes(result | {"bootstrap": grouped, "not_shared": ["hd95", "pq"]})
    assert lines[2].endswith("500 draws of clusters")
    assert "sign-flip test on the clusters" in lines[3]
    assert lines[4:] == ["Only 3 independent units.", "not measured in all runs: hd95, pq"]


UNKNOWN = "can't be told from 30 wards, margin +0.0100 [-0.0200, 0.0400]; {}"


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"outcome": "pass"}, "met, margin +0.0100 [-0.0200, 0.0400]; {}"),
        ({"outcome": "regression", "margin_ci95": None}, "REGRESSION, margin +0.0100; {}"),
        ({"outcome": "unknown", "n_units_needed": 12345}, f"{UNKNOWN}; about 12,345 wards like these would tell"),
        ({"outcome": "unknown"}, f"{UNKNOWN}; the interval contains the bound"),
    ],
    ids=lambda value: value["outcome"] if isinstance(value, dict) else None,
)
def test_a_requirement_is_one_line(changes, line):
    entry = {
        "require": "mean_iou >= base", "margin": 0.01, "margin_ci95": [-0.02, 0.04],
        "reason": "the interval contains the bound", "n_units": 30, "n_units_needed": None,
        "difference": 0.01, "change": "better",
    }  # fmt: skip
    said = line.format("new minus base +0.0100 better")
    assert comparison.requirement_line(entry | changes, units="wards") == f"mean_iou >= base: {said}"


def test_requirements_stand_in_80_columns_with_their_change(capsys):
    """With the base and the new run it would be 90 columns wide."""
    result = ran(0, 0.6, require=("mean_iou >= base - 0.005", "mean_dice >= base - 0.9"))
    comparison.print_comparison(result)
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 80
    first = result["gate"]["requirements"][0]
    (line,) = (line for line in text.splitlines() if "0.005" in line and "iou" in line)
    assert f"{first['difference']:+.4f} worse" in line
    assert "REGRESSION" in line
    (table, *_) = comparison_tables(result).values()
    assert {"base", "new", "margin", "outcome"} <= {*table.heads}
