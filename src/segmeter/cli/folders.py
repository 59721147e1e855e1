"""Makes, locks and finds the folders of runs, so that two processes never write into the same one."""

import errno
import os
import platform
import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from segmeter.checks import expected
from segmeter.cli.config.command_configs import Common
from segmeter.errors import ConfigError, InputError
from segmeter.files import make_folder, new_folder, operation, safe_id, write_bytes
from segmeter.records import CONFIG, MANIFEST, read_own, read_run, read_yaml

LOCK = ".lock"
# The process and machine that hold the lock, or held it last. On Windows nobody can read the locked file itself.
OWNER = ".owner"
SAVED_STEPS = "checkpoints/step-*/manifest.json"  # a training resumes from such a file, one of a checkpoint
WORK = (MANIFEST, SAVED_STEPS, "shards/*")  # a resume continues from finished cases, checkpoints or shards
NO_FOLDER = Path(os.devnull)  # stands for the folder of a run until it is made; nothing can be written below it
_NOT_WRITABLE = (  # error codes of a folder that can never take a run, so that the user has to choose another
    *(errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENAMETOOLONG),
    *(errno.ENOENT, errno.ELOOP),  # a folder below /proc, or a link to itself
)


@dataclass(frozen=True)
class Job:
    """A job as it was requested.

    Parameters
    ----------
    command
        "train", "eval" and so on.
    overrides
        As written on the command line.
    folder
        The folder of a sweep's job; None for a single job.
    argv
        The whole command line as typed: program, command and arguments.
    launch
        The values of `launch` if other processes run the job. They are recorded, so that a resume runs in the same way.
    """

    command: str
    overrides: tuple[str, ...]
    folder: Path | None
    argv: tuple[str, ...] = ()
    launch: Mapping[str, Any] | None = field(default=None, compare=False)


def run_name(config: Common, job: Job) -> str:
    """Return the last part of a new folder's name."""
    return safe_id(config.run.name or str(getattr(getattr(config, "data", None), "name", job.command)))


def usual_folder(config: Common, job: Job) -> Path:
    """Return the folder of a new run outside a sweep. Its name has the time, in this process's time zone."""
    return config.run.root / job.command / f"{datetime.now():%Y-%m-%d_%H%M%S}_{run_name(config, job)}"


def try_read_run(folder: Path) -> dict[str, Any]:
    """Read run.json; {} if it is missing or damaged."""
    try:
        return read_run(folder)
    except (OSError, InputError):
        return {}


def take_lock(folder: Path) -> FileLock | None:
    """Lock a run's folder; None if another process holds the lock.

    The system frees the lock of a process that is killed, so no lock is ever stale.

    Raises
    ------
    OSError
        The system can't lock files there.
    """
    lock = FileLock(folder / LOCK, blocking=False, thread_local=False, fallback_to_soft=False)
    with operation("open", folder / LOCK), suppress(Timeout):
        lock.acquire()
    if not lock.is_locked:
        return None
    with suppress(OSError):  # a full disk: the lock holds without a name
        write_bytes(folder / OWNER, f"process {os.getpid()} on {platform.node()}\n".encode())
    return lock


def owner_of(folder: Path) -> str:
    """Name the process that holds a run's folder, or held it last."""
    try:
        return read_own(folder / OWNER).decode().strip() or "another process"
    except (OSError, ValueError):
        return "another process"


def new_root(folder: Path, name: str) -> Path:
    """Make a new folder for several runs. It gets a number if another command has just made one of this name.

    Raises
    ------
    ConfigError
        The folder can't be made.
    """
    names = (name if number == 1 else f"{name}-{number}" for number in count(1))
    try:
        make_folder(folder)
        return next(folder / attempt for attempt in names if new_folder(folder / attempt))
    except OSError as error:
        raise not_writable(error, folder) from error


def not_writable(error: OSError, folder: Path, key: str = "run.root") -> Exception:
    """Return the error to raise where a folder can't be made: a ConfigError if no run could ever go there."""
    if error.errno not in _NOT_WRITABLE:
        return error
    given = f"{error.filename or folder} ({error.strerror})"
    return ConfigError(expected("config", key, "to be a folder that can be written", given))


def find_resumed(config: Common, job: Job, *, holds: str) -> Path | None:
    """Find the run that `config.resume` continues: the given folder, or with "auto" the newest one of this name.

    None stands for a new run. "auto" skips runs with nothing to resume from. If there is no other, it says so and
    starts a new run, so that the same command also restarts a job that was stopped early. The newest run is the one
    with the latest start in run.json, which is in UTC. The local time in a folder's name may come from another zone.

    Parameters
    ----------
    holds
        The file in the folder, or a pattern of files, from which the command resumes.

    Raises
    ------
    ConfigError
        `resume` is not such a run.
    """
    resume = getattr(config, "resume", None)  # some commands have none
    if resume is None:
        return None
    if resume != "auto":
        folder = Path(resume)
        if not any(folder.glob(holds)):
            raise ConfigError(expected(job.command, "resume", f"to be a run folder with {holds}", folder.absolute()))
        return folder
    name = run_name(config, job)
    if job.folder is None:
        searched = config.run.root / job.command
        pattern = re.compile(rf"[\d-]+_\d+_{re.escape(name)}(-\d+)?")
        runs = [path for path in searched.glob("*") if pattern.fullmatch(path.name) and _is_named(path, name, job)]
    else:
        searched = job.folder
        runs = [job.folder]
    runs = [path for path in runs if any(path.glob(holds))]
    if not runs:
        where = f"no run named {name!r} with {holds} in {searched.absolute()}"
        sys.stderr.write(f"resume=auto: {where}; starting a new run\n")
        return None
    newest = max(runs, key=lambda path: (try_read_run(path).get("start", ""), path.name))
    sys.stderr.write(f"resuming {newest}\n")
    return newest


def _is_named(folder: Path, name: str, job: Job) -> bool:
    """Tell whether a run has this name: a folder that ends in x-2 may be the second of the name x in one second."""
    try:
        config = read_yaml(folder / CONFIG)
        given = config["run"]["name"] or config.get("data", {}).get("name", job.command)
    except (OSError, InputError, LookupError, TypeError, AttributeError):  # missing or damaged
        return True
    return safe_id(str(given)) == name
