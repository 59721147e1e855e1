"""resume=RUN or resume=auto -> the folder of the run that is continued."""

import re
import sys
from pathlib import Path

from segmeter.cli.app import Job
from segmeter.cli.config.schema import Common
from segmeter.cli.run_folder import run_name
from segmeter.errors import ConfigError


def find_resumed(config: Common, job: Job, resume: str | Path | None, *, holds: str) -> Path | None:
    """Find the run folder that `resume` means: None for a new run, "auto" for the newest of this very name.

    Parameters
    ----------
    holds
        The file or folder in it without which there is nothing to go on with.

    Raises
    ------
    ConfigError
        There is no such run.
    """
    if resume is None:
        return None
    if resume != "auto":
        folder = Path(resume)
        if not (folder / holds).exists():
            found = folder.absolute()
            raise ConfigError(f"{job.command}: expected `resume` to be a run folder with {holds}, got {found}.")
        return folder
    if job.folder is not None and (job.folder / holds).exists():
        return job.folder
    name, root = run_name(config, job), config.run.root / job.command
    named = re.compile(rf"[\d-]+_\d+_{re.escape(name)}(-\d+)?")
    runs = sorted(path.parent for path in root.glob(f"*/{holds}") if named.fullmatch(path.parent.name))
    if not runs:
        raise ConfigError(
            f"{job.command}: resume=auto found no run named {name!r} with {holds} in {root.absolute()}. "
            "Set resume=RUN, or resume=null to start."
        )
    sys.stderr.write(f"resuming {runs[-1]}\n")
    return runs[-1]
