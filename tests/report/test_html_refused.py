"""Folders whose files are damaged or lack something are refused by name, without a page."""

import json

import pytest

from segmeter.errors import InputError
from segmeter.files import write_json
from segmeter.report.html import write_report


def test_a_folder_without_figures_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"to hold metrics.json, .* or predictions, got .* Give a run's folder"):
        write_report(tmp_path)


@pytest.mark.parametrize("name", ["metrics.json", "history.jsonl"])
def test_a_damaged_file_is_named(tmp_path, name):
    (tmp_path / name).write_text("{broken\n")
    with pytest.raises(
        InputError, match=rf"{name}(, line 1)?: is damaged, or was not written by segmeter \(it is not JSON"
    ):
        write_report(tmp_path)


@pytest.mark.parametrize("changed", [{"n_cases": "<b>"}, {"per_class": 3}, {"dataset": None}])
def test_figures_that_a_run_did_not_write_are_refused_by_name(run, changed):
    summary = json.loads((run / "metrics.json").read_text())
    write_json(run / "metrics.json", summary | changed)
    with pytest.raises(InputError, match=r"metrics.json(`|: is damaged, or was not written by segmeter)"):
        write_report(run)


def test_a_comparison_that_lacks_something_is_refused_by_name(tmp_path):
    """Mutation seen to fail: the error of whatever looked at it first."""
    write_json(tmp_path / "compare.json", {"schema": 2, "folders": {}, "metrics": {}, "order": [], "rank_by": "iou"})
    with pytest.raises(InputError, match=r"expected `compare\.json` to be what the run wrote beside its other files"):
        write_report(tmp_path)
