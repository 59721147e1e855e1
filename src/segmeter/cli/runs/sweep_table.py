"""Writes the settings and results of a sweep's jobs as one table: on the terminal, sweep.csv and sweep.html."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from segmeter.cli.runs.objective import better
from segmeter.files import csv_bytes, write_bytes
from segmeter.report.figures import quantity
from segmeter.report.page.render import render
from segmeter.report.tables import Printer, Table

DONE = "done"


@dataclass(frozen=True, kw_only=True)
class SweepJob:
    """One job of a sweep.

    Parameters
    ----------
    number, folder
        Its number in the sweep, and the name of its folder.
    settings
        The keys that vary, with their values as written.
    result
        Named numbers, None if undefined. The sweep compares the first. Empty if the job gave none.
    state
        "done", or how else it ended.
    """

    number: int
    folder: str
    settings: Mapping[str, str]
    result: Mapping[str, float | None]
    state: str


def best_job(jobs: Sequence[SweepJob]) -> SweepJob | None:
    """The job with the best first result (highest or lowest, depending on its name), or None."""
    objective = next(iter(_results(jobs)), None)
    scored = [job for job in jobs if objective is not None and job.result.get(objective) is not None]
    sign = -1.0 if better(objective) == "lower" else 1.0
    return max(scored, key=lambda job: sign * (job.result[str(objective)] or 0.0), default=None)


def print_sweep(jobs: Sequence[SweepJob], *, file: IO[str] | None = None) -> None:
    """Print one row per job. The best is bold, and marked for terminals without bold.

    Parameters
    ----------
    jobs
        In the order of the table.
    file
        None means standard output.
    """
    best, names, rows = best_job(jobs), _results(jobs), []
    for job in jobs:
        state = "best" if job is best and job.state == DONE else job.state
        rows.append([str(job.number), *_values(job, jobs), state, *(quantity(job.result.get(name)) for name in names)])
    heads, strong = ["job", *_keys(jobs), "state"], [i for i, job in enumerate(jobs) if job is best]
    Printer(file).table(Table(heads=[*heads, *names], rows=rows, names=len(heads), strong=strong))


def write_sweep(folder: Path, jobs: Sequence[SweepJob]) -> None:
    """Write sweep.csv, with all digits, and sweep.html into the folder of a sweep."""
    keys, names = _keys(jobs), _results(jobs)
    rows = [
        [job.number, *_values(job, jobs), *(job.result.get(name) for name in names), job.state, job.folder]
        for job in jobs
    ]
    write_bytes(folder / "sweep.csv", csv_bytes([["job", *keys, *names, "state", "folder"], *rows]))
    reported = {job.folder for job in jobs if (folder / job.folder / "report.html").is_file()}
    page = render(
        "sweep.html", title=folder.name, jobs=jobs, keys=keys, names=names, best=best_job(jobs), reported=reported
    )
    write_bytes(folder / "sweep.html", page)


def _keys(jobs: Sequence[SweepJob]) -> list[str]:
    return list(dict.fromkeys(key for job in jobs for key in job.settings))


def _results(jobs: Sequence[SweepJob]) -> list[str]:
    """The names of all results, the first job's first."""
    return list(dict.fromkeys(name for job in jobs for name in job.result))


def _values(job: SweepJob, jobs: Sequence[SweepJob]) -> list[str]:
    return [job.settings.get(key, "") for key in _keys(jobs)]
