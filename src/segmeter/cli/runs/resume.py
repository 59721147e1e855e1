"""Finds the folder of the run that `resume=RUN` or `resume=auto` continues."""

import re
import sys
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from segmeter.cli.config.schema import Common
from segmeter.cli.runs.run_folder import Job, read_record, run_name
from segmeter.errors import ConfigError

CHECKPOINTS = "checkpoints/step-*/manifest.json"  # what a training resumes from


def find_resumed(config: Common, job: Job, resume: str | Path | None, *, holds: str) -> Path | None:
    """Find the run folder to continue: `resume` itself, the newest run of this name for "auto", None for a new run.

    "auto" skips runs with nothing to resume from. If there is no other, it says so and starts a new run, so that the
    same command also restarts a job that was stopped early. The newest run has the latest start in run.json, which is
    in UTC. The local time in a folder's name may come from another zone.

    Parameters
    ----------
    holds
        The file in the folder, or a pattern of files, from which the command resumes.

    Raises
    ------
    ConfigError
        `resume` is not such a run.
    """
    if resume is None:
        return None
    if resume != "auto":
        folder = Path(resume)
        if not _holds(folder, holds):
            rule = f"expected `resume` to be a run folder with {holds}"
            raise ConfigError(f"{job.command}: {rule}, got {folder.absolute()}.")
        return folder
    found = job.folder if job.folder is not None else _newest(config, job, holds)
    if found is not None and _holds(found, holds):
        sys.stderr.write(f"resuming {found}\n")
        return found
    place = (found or config.run.root / job.command).absolute()
    sys.stderr.write(f"resume=auto: no run named {run_name(config, job)!r} with {holds} in {place}; starting anew\n")
    return None


def _newest(config: Common, job: Job, holds: str) -> Path | None:
    named = re.compile(rf"[\d-]+_\d+_{re.escape(run_name(config, job))}(-\d+)?")
    found = (config.run.root / job.command).glob("*")
    runs = [path for path in found if named.fullmatch(path.name) and _holds(path, holds)]
    return max(runs, key=lambda path: (_start(path), path.name), default=None)


def _start(folder: Path) -> datetime:
    """Return the start of a run; the distant past if run.json has none."""
    with suppress(ValueError, TypeError):
        found = datetime.fromisoformat(read_record(folder).get("start"))  # type: ignore[arg-type]
        return found if found.tzinfo else found.replace(tzinfo=UTC)
    return datetime.min.replace(tzinfo=UTC)


def _holds(folder: Path, pattern: str) -> bool:
    return next(folder.glob(pattern), None) is not None
