"""Locks a run's folder, so that two processes never write into the same one."""

import errno
import os
import platform
from contextlib import suppress
from itertools import count
from pathlib import Path

from filelock import FileLock, Timeout

from segmeter.checks import expected
from segmeter.errors import ConfigError
from segmeter.files import make_folder, new_folder, operation, write_bytes
from segmeter.records import read_own

LOCK = ".lock"
OWNER = ".owner"  # the process and machine that hold the lock, or held it last: Windows lets nobody read a locked file
_NOT_WRITABLE = (  # codes of a folder that can never take a run, so the user has to choose another
    *(errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENAMETOOLONG),
    *(errno.ENOENT, errno.ELOOP),  # below /proc, or a link to itself
)


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
    """Make a new folder for several runs; another command may make one of the same name in the same second.

    Raises
    ------
    ConfigError
        The folder can't be made.
    """
    names = (name if number == 1 else f"{name}-{number}" for number in count(1))
    try:
        make_folder(folder)
        return next(folder / each for each in names if new_folder(folder / each))
    except OSError as error:
        raise not_writable(error, folder) from error


def not_writable(error: OSError, folder: Path, key: str = "run.root") -> Exception:
    """Make the error to raise where a folder for runs can't be made: of the configuration if it never could be."""
    if error.errno not in _NOT_WRITABLE:
        return error
    given = f"{error.filename or folder} ({error.strerror})"
    return ConfigError(expected("config", key, "to be a folder that can be written", given))


def claim_new(folder: Path) -> FileLock | None:
    """Make and lock a folder; None if there is one already."""
    make_folder(folder.parent)
    with suppress(FileNotFoundError):  # another process has just removed the empty folder above
        return take_lock(folder) if new_folder(folder) else None
    return None
