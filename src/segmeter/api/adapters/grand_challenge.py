"""An evaluation -> the metrics.json that an evaluation container of grand-challenge.org leaves."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from segmeter.api.adapters.flat import flatten
from segmeter.classes import ClassSpec
from segmeter.files import write_json
from segmeter.metrics.cases.stored import case_table
from segmeter.metrics.cases.table import CaseRow


def write_metrics(path: Path, rows: Sequence[CaseRow], spec: ClassSpec, summary: dict[str, Any]) -> None:
    """Write ``{"results": [one per case], "aggregates": {...}}``.

    A result has the columns of cases.csv; aggregates are the numbers of `flatten`, nested at each "/", so that a
    leaderboard takes "aggregates.dataset.mean_iou". Undefined is null, and infinity the text "inf".
    """
    table = case_table(rows, spec).drop_columns(["confusion"])
    results = [{name: _plain(value) for name, value in row.items()} for row in table.to_pylist()]
    aggregates: dict[str, Any] = {}
    for name, value in flatten(summary).items():
        *folders, leaf = name.split("/")
        place = aggregates
        for folder in folders:
            place = place.setdefault(folder, {})
        place[leaf] = _plain(value)
    write_json(path, {"results": results, "aggregates": aggregates})


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, float) and value in (float("inf"), float("-inf")) else value
