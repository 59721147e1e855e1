"""Runs the jobs of a sweep (--multirun), each in its own folder, and prints one table with the result of every job."""

import os
import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from segmeter.cli.config.compose import Composed, is_searched
from segmeter.cli.config.hydra_rules import read_search
from segmeter.cli.engines import JobOutcome
from segmeter.cli.folders import Job, try_read_run
from segmeter.cli.launch import Jobs, run_jobs
from segmeter.cli.results import as_number, better
from segmeter.cli.run_folder import mask_override
from segmeter.errors import SweepError
from segmeter.files import csv_bytes, safe_id, write_bytes
from segmeter.records import RUN
from segmeter.report.figures import quantity
from segmeter.report.page.render import render
from segmeter.report.tables import PAGE, Cell, Column, Table, print_tables

_LONGEST = 100  # a folder's name is cut to this many characters


@dataclass(frozen=True, kw_only=True)
class SweepJob:
    """One job of a sweep.

    Parameters
    ----------
    number, folder
        The job's number in the sweep, and the name of its folder.
    settings
        The keys that vary in the sweep, with their values as written.
    result
        Named numbers, None if undefined. The sweep compares the first. Empty if the job gave no numbers.
    state
        "done", or another state in which the job ended.
    """

    number: int
    folder: str
    settings: Mapping[str, str]
    result: Mapping[str, float | None]
    state: str


class Sweep:
    """Says where the jobs of a sweep write, and runs them.

    Parameters
    ----------
    command
        The command of all jobs.
    composed
        One of the jobs. Its `hydra` node holds the settings of the sweep.
    root
        The folder of all runs.
    argv
        The command line as typed.
    """

    def __init__(self, command: str, composed: Composed, *, root: Path, argv: Sequence[str]) -> None:
        sweep_dir = str(composed.hydra["sweep"]["dir"])
        usual = root / "multirun" / f"{time.strftime('%Y-%m-%d_%H%M%S')}_{os.getpid()}"
        self.command = command
        self.argv = tuple(argv)
        self.options = read_search(composed.hydra)
        self.searched = is_searched(composed)
        self.folder = usual if "${now:" in sweep_dir else Path(sweep_dir)  # Hydra's default is named by the time

    def job(self, number: int, overrides: Sequence[str], values: Mapping[str, str]) -> Job:
        """Describe one job. Its folder is named by its number and the values that vary."""
        return Job(self.command, tuple(overrides), self.folder / job_name(number, values), self.argv)

    def run(self, jobs: Jobs) -> list[JobOutcome]:
        """Run all jobs, even if some fail, and return their outcomes in the order of the jobs."""
        positions = {job.folder: position for position, (_, job) in enumerate(jobs)}
        return sorted(run_jobs(jobs), key=lambda outcome: positions[outcome.job.folder])


def run_sweep(plan: Sweep, jobs: Sequence[tuple[Composed, Any]]) -> None:
    """Run all jobs of a sweep over listed values.

    Raises
    ------
    SweepError
        One line for each job that failed.
    """
    settings_per_job = [settings(composed.overrides) for composed, _ in jobs]
    keys = varied(settings_per_job)
    planned = [
        (config, plan.job(number, composed.overrides, {key: settings_per_job[number].get(key, "") for key in keys}))
        for number, (composed, config) in enumerate(jobs)
    ]
    with summarised(plan.folder):
        outcomes = plan.run(planned)
    raise_failures([*enumerate(outcomes)], plan.folder)


def raise_failures(outcomes: Sequence[tuple[int, JobOutcome]], folder: Path) -> None:
    """Raise an error with the exit code of the first failed job, if any failed.

    Raises
    ------
    SweepError
        One line for each failed job.
    """
    failed = [(number, outcome) for number, outcome in outcomes if outcome.exit_code]
    lines = list[str]()
    for number, outcome in failed:
        overrides = ", ".join(map(mask_override, outcome.job.overrides)) or "no overrides"
        end = f"ended with {outcome.exit_code}"
        lines += [f"sweep: job {number} ({overrides}) {end}: {problem}" for problem in outcome.problems]
    if failed:
        lines.append(f"sweep: {len(failed)} of {len(outcomes)} jobs failed; the results of the others are in {folder}.")
        raise SweepError(lines, exit_code=failed[0][1].exit_code)


def settings(overrides: Sequence[str]) -> dict[str, str]:
    """Return the value of each override by its key, as written, with secrets masked.

    Examples
    --------
    >>> settings(["loss.gamma=1", "+logger.api_key=abc"])
    {'loss.gamma': '1', 'logger.api_key': '[REDACTED]'}
    """
    pairs = (mask_override(line).lstrip("+~").partition("=") for line in overrides)
    return {key: value for key, _, value in pairs}


def varied(jobs: Sequence[Mapping[str, str]]) -> tuple[str, ...]:
    """Return the keys whose values differ between jobs, in the order of the command line."""
    keys = dict.fromkeys(key for job in jobs for key in job)
    return tuple(key for key in keys if len({job.get(key) for job in jobs}) > 1)


def job_name(number: int, values: Mapping[str, str]) -> str:
    """Return the folder name of a job: its number, then the last part and value of each key that varies.

    Examples
    --------
    >>> job_name(3, {"loss.gamma": "0.5", "model.encoder": "resnet18"})
    '3_gamma-0.5_encoder-resnet18'
    """
    parts = (f"{key.rpartition('.')[2]}-{value}" for key, value in values.items())
    name = "_".join([str(number), *parts])
    return safe_id("".join(char if char.isalnum() or char in "._-" else "-" for char in name)[:_LONGEST])


@contextmanager
def summarised(folder: Path) -> Iterator[None]:
    """Print and write the table of all results after the block, which runs the jobs, even if one failed."""
    try:
        yield
    finally:
        jobs = read_sweep(folder)
        if jobs:
            print_sweep(jobs)
            write_sweep(folder, jobs)
            sys.stdout.write(f"sweep     {folder / 'sweep.csv'}\nreport    {folder / 'sweep.html'}\n")


def read_sweep(folder: Path) -> list[SweepJob]:
    """Read the result of each job of a sweep from its folder, in the order of job numbers.

    Jobs may have run in other processes, so only run.json counts. A job that was refused because of bad input has none.
    """
    names = [path.parent.name for path in folder.glob(f"*/{RUN}")]
    numbered = sorted((int(name.partition("_")[0]), name) for name in names if name.partition("_")[0].isdigit())
    records = [try_read_run(folder / name) for _, name in numbered]
    settings_per_job = [settings(record.get("overrides", ())) for record in records]
    keys = varied(settings_per_job)
    return [
        SweepJob(
            number=number,
            folder=name,
            settings={key: values.get(key, "") for key in keys},
            result={key: as_number(value) for key, value in (record.get("result") or {}).items()},
            state=str(record.get("state", "unknown")),
        )
        for (number, name), record, values in zip(numbered, records, settings_per_job, strict=True)
    ]


def best_job(jobs: Sequence[SweepJob]) -> SweepJob | None:
    """Return the job with the best first result, or None. The result's name says whether higher or lower is better."""
    objective = next(iter(_results(jobs)), None)
    scored = [job for job in jobs if objective is not None and job.result.get(objective) is not None]
    sign = -1.0 if better(objective) == "lower" else 1.0
    return max(scored, key=lambda job: sign * (job.result[str(objective)] or 0.0), default=None)


def print_sweep(jobs: Sequence[SweepJob]) -> None:
    """Print one row per job. The best is bold, and marked for terminals without bold."""
    print_tables([_table(jobs)])


def _table(jobs: Sequence[SweepJob], reported: Collection[str] = ()) -> Table:
    """Lay out one row per job. `reported` are the folders that have a report."""
    keys = [*jobs[0].settings]
    names = _results(jobs)
    best = best_job(jobs)
    rows = []
    columns = [Column("job", "job"), *(Column(key, f"settings.{key}") for key in keys), Column("state", "state")]
    columns += [Column(name, f"results.{name}", quantity) for name in names]
    for job in jobs:
        link = f"{quote(job.folder)}/report.html" if job.folder in reported else None
        state = "best" if job is best and job.state == "done" else job.state
        row = {"job": job.number, "state": state, "folder": Cell(job.folder, link=link)}
        row |= {f"settings.{key}": value for key, value in job.settings.items()}
        rows.append(row | {f"results.{name}": job.result.get(name) for name in names})
    strong = [i for i, job in enumerate(jobs) if job is best]
    columns.append(Column("report", "folder", spare=PAGE))
    return Table.of(columns, rows, names=2 + len(keys), strong=strong)


def write_sweep(folder: Path, jobs: Sequence[SweepJob]) -> None:
    """Write sweep.csv, with all digits, and sweep.html into the folder of a sweep."""
    keys = [*jobs[0].settings]
    names = _results(jobs)
    best = best_job(jobs)
    rows = [[job.number, *job.settings.values(), *map(job.result.get, names), job.state, job.folder] for job in jobs]
    write_bytes(folder / "sweep.csv", csv_bytes([["job", *keys, *names, "state", "folder"], *rows]))
    table = _table(jobs, {job.folder for job in jobs if (folder / job.folder / "report.html").is_file()})
    when = f"{len(jobs)} jobs{f' · best: job {best.number}' if best else ''}"
    write_bytes(folder / "sweep.html", render("list.html", title=folder.name, tables=[table], kind="sweep", when=when))


def _results(jobs: Sequence[SweepJob]) -> list[str]:
    """Return the names of all results, beginning with those of the first job."""
    return list(dict.fromkeys(name for job in jobs for name in job.result))
