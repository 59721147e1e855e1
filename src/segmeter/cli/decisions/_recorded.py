"""Runs the commands that help to decide: they all write and show the same kinds of files."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from segmeter.cli.config.schema import Common
from segmeter.cli.runs.run_folder import Job, note_done, open_run
from segmeter.files import atomic_write, write_json
from segmeter.report.decisions import Shown, print_shown, write_charts
from segmeter.report.html import write_report


@dataclass(frozen=True, kw_only=True)
class Decision:
    """The answer of a command.

    Parameters
    ----------
    result, rows
        The contents of <name>.json, which has a schema, and of <name>.parquet.
    shown
        Tables, charts and lines for the terminal and the page.
    files
        Further files or folders to name on the terminal.
    numbers
        For run.json; a sweep compares the first.
    """

    result: dict[str, Any]
    rows: pa.Table
    shown: Shown
    files: Mapping[str, Path] = field(default_factory=dict)
    numbers: Mapping[str, float | None] = field(default_factory=dict)


def record(
    config: Common, job: Job, name: str, decide: Callable[[Path], Decision], *, facts: Mapping[str, Any]
) -> None:
    """Decide in the folder of a new run, write the files of the answer, and print it; bad input leaves no folder."""
    with open_run(config, job, facts=dict(facts)) as folder:
        decision = decide(folder)
        write_json(folder / f"{name}.json", decision.result)
        with atomic_write(folder / f"{name}.parquet") as file:
            pq.write_table(decision.rows, file)
        write_charts(folder, name, decision.shown)
        note_done(folder, decision.numbers)
        page = write_report(folder)
    files = {"result": folder / f"{name}.json", "rows": folder / f"{name}.parquet", **decision.files}
    print_shown(decision.shown, files | {"report": page})
