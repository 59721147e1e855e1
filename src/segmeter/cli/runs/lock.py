"""Locks a run's folder, so that two processes never write into the same one."""

import errno
import os
import platform
from contextlib import suppress
from itertools import count
from pathlib import Path

from filelock import FileLock, Timeout

from segmeter.files import make_folder, new_folder, operation, write_bytes
from segmeter.records import read_own

LOCK = ".lock"
OWNER = ".owner"  # the process and machine that hold the lock, or held it last: Windows lets nobody read a locked file
NOT_WRITABLE = (  # codes of a folder that can never take a run, so the user has to choose another
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
    """Make a new folder for several runs; another command may make one of the same name in the same second."""
    make_folder(folder)
    names = (name if number == 1 else f"{name}-{number}" for number in count(1))
    return next(folder / each for each in names if new_folder(folder / each))


def claim_new(folder: Path, *, adopt: bool) -> FileLock | None:
    """Make and lock a new folder; `adopt` also takes an empty one, as sweeps make them beforehand."""
    make_folder(folder.parent)
    with suppress(FileNotFoundError):  # another process has just removed the empty folder above
        if new_folder(folder):
            return take_lock(folder)
    if not adopt or not folder.is_dir() or any(folder.iterdir()):
        return None
    lock = take_lock(folder)
    if lock is not None and {path.name for path in folder.iterdir()} - {LOCK, OWNER}:
        lock.release()
        return None
    return lock
