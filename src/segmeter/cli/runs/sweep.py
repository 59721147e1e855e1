"""The jobs of a sweep: a folder for each, named by what varied, and at the end one table of all of them."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from segmeter.cli.runs.masking import mask_override
from segmeter.cli.runs.run_folder import read_record
from segmeter.cli.runs.sweep_table import SweepJob, print_sweep, write_sweep
from segmeter.files import safe_id
from segmeter.records import RUN

_LONGEST = 100  # characters of a folder's name


def settings(overrides: Sequence[str]) -> dict[str, str]:
    """Key -> value of each override, as it was written; secrets are masked.

    Examples
    --------
    >>> settings(["loss.gamma=1", "+logger.api_key=abc"])
    {'loss.gamma': '1', 'logger.api_key': '[REDACTED]'}
    """
    pairs = (mask_override(line).lstrip("+~").partition("=") for line in overrides)
    return {key: value for key, _, value in pairs}


def varied(jobs: Sequence[Mapping[str, str]]) -> tuple[str, ...]:
    """The keys that the jobs do not all set to the same value, in the order in which they are given.

    Examples
    --------
    >>> varied([{"loss": "dice", "seed": "1"}, {"loss": "dice", "seed": "2"}])
    ('seed',)
    """
    keys = dict.fromkeys(key for job in jobs for key in job)
    return tuple(key for key in keys if len({job.get(key) for job in jobs}) > 1)


def job_name(number: int, values: Mapping[str, str]) -> str:
    """The folder of a job: its number, and the last part of each key that varied with its value.

    Examples
    --------
    >>> job_name(3, {"loss.gamma": "0.5", "model.encoder": "resnet18"})
    '3_gamma-0.5_encoder-resnet18'
    """
    parts = (f"{key.rpartition('.')[2]}-{value}" for key, value in values.items())
    name = "_".join([str(number), *parts])
    return safe_id("".join(sign if sign.isalnum() or sign in "._-" else "-" for sign in name)[:_LONGEST])


@contextmanager
def summarised(folder: Path) -> Iterator[None]:
    """Run the jobs of a sweep in the block; then show what each came to, those before one that failed too."""
    try:
        yield
    finally:
        jobs = read_sweep(folder)
        if jobs:
            print_sweep(jobs)
            write_sweep(folder, jobs)
            sys.stdout.write(f"sweep     {folder / 'sweep.csv'}\nreport    {folder / 'sweep.html'}\n")


def read_sweep(folder: Path) -> list[SweepJob]:
    """Read what each job of a sweep left in its folder, in the order of their numbers.

    Jobs may have run in other processes: only their run.json is asked. One that was refused has none.
    """
    records = {path.parent.name: read_record(path.parent) for path in folder.glob(f"*/{RUN}")}
    numbers = {name: int(name.partition("_")[0]) for name in records if name.partition("_")[0].isdigit()}
    names = sorted(numbers, key=lambda name: (numbers[name], name))
    given = [settings(records[name].get("overrides", ())) for name in names]
    keys = varied(given)
    return [
        SweepJob(
            number=numbers[name],
            folder=name,
            settings={key: values.get(key, "") for key in keys},
            result={key: _number(value) for key, value in (records[name].get("result") or {}).items()},
            state=str(records[name].get("state", "unknown")),
        )
        for name, values in zip(names, given, strict=True)
    ]


def _number(value: Any) -> float | None:
    """A number of run.json, which writes infinity as text."""
    return float(value) if value in ("inf", "-inf") else value
