"""A checked job -> its outcome, in this process or in any other one."""

import os
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from segmeter.cli.config.groups import load_plugins
from segmeter.cli.config.schema import ROOTS
from segmeter.cli.messages import describe, shown_warnings
from segmeter.cli.runs.job import Job, run_job
from segmeter.errors import EXIT_FAULT, Interrupted
from segmeter.schema import Config, as_plain
from segmeter.training.run.signals import StopSignals


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a job ended.

    Parameters
    ----------
    job
        How it was asked for.
    value
        The score that a sweep may optimise; None where there is none.
    problems
        What went wrong, one line each; empty where nothing did.
    exit_code
        That of the job, as if it had been a command of its own.
    """

    job: Job
    value: float | None = None
    problems: tuple[str, ...] = ()
    exit_code: int = 0


def joint(outcomes: Sequence[Outcome]) -> Outcome:
    """The one outcome of a job that several processes ran: the first that failed, else the one with a value."""
    failed = (each for each in outcomes if each.exit_code)
    valued = (each for each in outcomes if each.value is not None)
    return next(failed, None) or next(valued, outcomes[0])


@dataclass(frozen=True, kw_only=True)
class Shipped:
    """A job as plain values, which any process can take: nothing is composed again, and no command line is read.

    Parameters
    ----------
    job
        How it was asked for.
    values
        The checked configuration.
    plugins
        Modules that register components; they are imported where the job runs.
    path
        Where modules are found.
    """

    job: Job
    values: Mapping[str, Any]
    plugins: tuple[str, ...]
    path: tuple[str, ...]

    def __call__(self) -> Outcome:
        """Run the job here; whatever goes wrong in it is in the outcome."""
        sys.path.extend(part for part in self.path if part not in sys.path)
        with shown_warnings(), StopSignals(raises=True):
            try:
                load_plugins(self.plugins)
                return attempt(ROOTS[self.job.command](**self.values), self.job)
            except KeyboardInterrupt as error:
                return Outcome(job=self.job, problems=(f"{error}.",), exit_code=getattr(error, "exit_code", EXIT_FAULT))
            except Interrupted as error:
                stopped = Outcome(job=self.job, problems=error.problems, exit_code=error.exit_code)
            except Exception as error:  # a plugin, or a key, that is not known here
                return _failed(error, self.job)
        if "SUBMITIT_FOLDER" in os.environ and stopped.exit_code == EXIT_FAULT:
            signal.raise_signal(signal.SIGUSR1)  # now that the run is saved, submitit's own handler queues it again
        return stopped

    def checkpoint(self) -> Any:
        """What submitit queues when the job is preempted: the same job, which goes on in its folder."""
        from submitit.helpers import DelayedSubmission

        resumes = {"resume": "auto"} if "resume" in self.values else {}
        return DelayedSubmission(replace(self, values={**self.values, **resumes}))


def ship(config: Config, job: Job) -> Shipped:
    """Make a job ready to run elsewhere."""
    values = as_plain(config)
    path = tuple(str(Path(part).absolute()) for part in sys.path)  # "" is the folder that the command was typed in
    return Shipped(job=job, values=values, plugins=tuple(values.get("plugins", ())), path=path)


def attempt(config: Any, job: Job) -> Outcome:
    """Run a job here; only what stops the whole program is raised."""
    try:
        return Outcome(job=job, value=run_job(job.command, config, job))
    except Interrupted:
        raise
    except Exception as error:
        return _failed(error, job)


def _failed(error: Exception, job: Job) -> Outcome:
    problems, code = describe(error)
    return Outcome(job=job, problems=tuple(problems), exit_code=code)
