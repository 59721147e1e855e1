"""The lock of a run's folder: one process at a time, and what a killed one left is cleared by the next."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from segmeter.errors import InputError
from segmeter.files import TEMPORARY, clear_leftovers, confined, remove
from segmeter.open_files import open_lock
from segmeter.records import open_own, read_own


def take_lock(folder: Path) -> int | None:
    """Hold a run's folder; None where another process does.

    The system frees the lock of a killed process, so none is ever stale.
    """
    with confined(folder):
        lock = open_lock(folder / ".lock")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.path.samestat((folder / ".lock").lstat(), os.fstat(lock)):  # another process has removed it since
            raise BlockingIOError
    except OSError:
        os.close(lock)
        return None
    with suppress(OSError):  # a full disk: the lock holds without a name
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"process {os.getpid()} on {os.uname().nodename}\n".encode(), 0)
    return lock


@contextmanager
def cleared(folder: Path) -> Iterator[None]:
    """Clear a run's folder of what a killed process left, and hold it; nothing of both where another process has it."""
    with ExitStack() as stack:
        with suppress(OSError):  # no lock, as in a folder that was copied
            lock = stack.enter_context(open_own(folder / ".lock"))
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            clear_leftovers(folder)
        yield


def clear_killed(root: Path) -> None:
    """Clear what killed runs below a folder left half written, as their next start may never come.

    Such a run still has the room that it kept for its end, and no lock. Runs of other machines are left alone: their
    locks may not be seen here.
    """
    folders = list[Path]()
    with suppress(OSError):  # a folder that may not be listed
        folders = list(root.iterdir())
    for folder in folders:
        with suppress(OSError, InputError), ExitStack() as stack:
            left = [*folder.glob(f"{TEMPORARY}*"), *folder.glob(f"*/{TEMPORARY}*")]
            if left and owner_of(folder).endswith(f" on {os.uname().nodename}"):
                lock = stack.enter_context(open_own(folder / ".lock"))
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                for path in left:
                    remove(path)


def owner_of(folder: Path) -> str:
    """Name the process that holds a run's folder, or held it last."""
    try:
        return read_own(folder / ".lock").decode().strip() or "another process"
    except (OSError, ValueError):
        return "another process"
