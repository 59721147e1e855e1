"""resume=RUN or resume=auto -> the folder of the evaluation that is continued."""

import sys
from pathlib import Path

from segmeter.cli.app import Job
from segmeter.cli.run_folder import run_name
from segmeter.cli.schema import Common
from segmeter.errors import ConfigError
from segmeter.evaluation.manifest import NAME


def find_resumed(config: Common, job: Job, resume: str | None) -> Path | None:
    """Find the run folder that `resume` means: None for a new run, "auto" for the newest of this name.

    Raises
    ------
    ConfigError
        There is no such run.
    """
    if resume is None:
        return None
    if resume != "auto":
        folder = Path(resume)
        if not (folder / NAME).is_file():
            found = folder.absolute()
            raise ConfigError(f"{job.command}: expected `resume` to be a run folder with {NAME}, got {found}.")
        return folder
    if job.folder is not None and (job.folder / NAME).is_file():
        return job.folder
    name, root = run_name(config, job), config.run.root / job.command
    runs = sorted(path.parent for path in root.glob(f"*_{name}*/{NAME}"))
    if not runs:
        raise ConfigError(
            f"{job.command}: resume=auto found no run named {name!r} in {root.absolute()}. "
            "Set resume=RUN, or resume=null to start."
        )
    sys.stderr.write(f"resuming {runs[-1]}\n")
    return runs[-1]
