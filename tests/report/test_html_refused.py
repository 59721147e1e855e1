"""Folders whose files are damaged or lack something are refused by name, without a page."""

import json

import pytest

from segmeter.errors import InputError
from segmeter.files import write_json
from segmeter.report.html import write_report


@pytest.mark.parametrize("changed", [{"n_cases": "<b>"}, {"per_class": 3}, {"dataset": None}])
def test_figures_that_a_run_did_not_write_are_refused_by_name(run, changed):
    summary = json.loads((run / "metrics.json").read_text())
    write_json(run / "metrics.json", summary | changed)
    with pytest.raises(InputError, match=r"metrics.json(`|: is damaged, or was not written by segmeter)"):
        write_report(run)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (None, None, r"to hold metrics.json, .* or predictions, got .* Give a run's folder"),
        *(
            (name, "{broken\n", rf"{name}(, line 1)?: is damaged, or was not written by segmeter \(it is not JSON")
            for name in ("metrics.json", "history.jsonl")
        ),
        (
            "compare.json",
            '{"schema": 2, "folders": {}, "metrics": {}, "order": [], "rank_by": "iou"}',
            r"expected `compare\.json` to be what the run wrote beside its other files",
        ),
    ],
)
def test_a_folder_whose_file_is_missing_damaged_or_lacks_something_is_refused(tmp_path, name, content, message):
    """Mutation seen to fail: the error of whatever looked at it first."""
    if name:
        (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=message):
        write_report(tmp_path)
