"""One job of a command line: how it was asked for, and the command that runs it."""

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from segmeter.distributed.place import check_alone


@dataclass(frozen=True)
class Job:
    """How a job was asked for.

    Parameters
    ----------
    command
        "train", "eval" and so on.
    overrides
        As they were written on the command line.
    folder
        Where this job of a sweep goes; None for a single job.
    argv
        The whole command line, as it was typed: program, command and arguments.
    launch
        The values of `launch` where other processes than that of the command line run the job: its records say them,
        so that a resume goes on in the same way.
    """

    command: str
    overrides: tuple[str, ...]
    folder: Path | None
    argv: tuple[str, ...] = ()
    launch: Mapping[str, Any] | None = field(default=None, compare=False)


def run_job(command: str, config: Any, job: Job) -> Any:
    """Run one job, here or where its `launch` says; returns the score that a sweep may optimise."""
    if hasattr(config, "shard"):
        check_alone(config.shard)
    if getattr(getattr(config, "launch", None), "name", "local") != "local":
        return import_module("segmeter.cli.launched").run_launched(config, job)
    return import_module(f"segmeter.cli.commands.{command}").run(config, job)


def sweep_folder(root: Path | str) -> Path:
    """Where the jobs of a sweep go, one folder each."""
    return Path(root) / "multirun" / f"{time.strftime('%Y-%m-%d_%H%M%S')}_{os.getpid()}"
