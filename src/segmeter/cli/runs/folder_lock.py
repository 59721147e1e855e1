"""The lock of a run's folder, the room that is kept for its last record, and clearing what killed runs left."""

import errno
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from segmeter.errors import InputError
from segmeter.files import TEMPORARY, clear_leftovers, open_file, operation, remove, sync, temporary_name, write_bytes
from segmeter.records import read_own

LOCK = ".lock"
OWNER = ".owner"  # the process and machine that hold the lock, or held it last: Windows lets nobody read a locked file


def take_lock(folder: Path) -> FileLock | None:
    """Hold a run's folder until the lock is released; None where another process does.

    The system frees the lock of a killed process, so none is ever stale.

    Raises
    ------
    OSError
        The system can't lock files there.
    """
    lock = _try_lock(folder)
    if lock is not None:
        with suppress(OSError):  # a full disk: the lock holds without a name
            write_bytes(folder / OWNER, f"process {os.getpid()} on {platform.node()}\n".encode())
    return lock


def _try_lock(folder: Path) -> FileLock | None:
    lock = FileLock(folder / LOCK, blocking=False, thread_local=False, fallback_to_soft=False)
    with operation("open", folder / LOCK), suppress(Timeout):
        lock.acquire()
    return lock if lock.is_locked else None


@contextmanager
def _held(folder: Path) -> Iterator[bool]:
    """Hold a folder that has a lock, as one that was copied may not, and that may be locked here; else give False."""
    lock = None
    with suppress(OSError, InputError):
        lock = _try_lock(folder) if (folder / LOCK).is_file() else None
    try:
        yield lock is not None
    finally:
        if lock is not None:
            lock.release()


@contextmanager
def cleared(folder: Path) -> Iterator[None]:
    """Clear a run's folder of what a killed process left, and hold it; nothing of both where another process has it."""
    with _held(folder) as held:
        with suppress(OSError):
            if held:
                clear_leftovers(folder)
        yield


def clear_killed(root: Path) -> None:
    """Clear what killed runs below a folder left half written, as their next start may never come.

    Such a run still has the room that it kept for its end, and no lock. Runs of other machines are left alone: their
    locks may not be seen here.
    """
    with suppress(OSError):  # a folder that may not be listed
        for folder in list(root.iterdir()):
            left = [*folder.glob(f"{TEMPORARY}*"), *folder.glob(f"*/{TEMPORARY}*")]
            if left and owner_of(folder).endswith(f" on {platform.node()}"):
                with suppress(OSError), _held(folder) as held:
                    for path in left if held else ():
                        remove(path)


def owner_of(folder: Path) -> str:
    """Name the process that holds a run's folder, or held it last."""
    try:
        return read_own(folder / OWNER).decode().strip() or "another process"
    except (OSError, ValueError):
        return "another process"


class Reserved:
    """Room for a file that has to be written at the end, when the disk may be full.

    Parameters
    ----------
    path
        What `publish` writes.
    size
        Bytes that are set aside; a longer content is written where there is room.
    """

    def __init__(self, path: Path, size: int) -> None:
        self._path = path
        self._room = path.with_name(temporary_name(path.suffix))
        with operation("open", path):
            handle = open_file(self._room, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            with operation("write", path):
                os.write(handle, bytes(size))
        except BaseException:
            self.close()
            raise
        finally:
            os.close(handle)

    def publish(self, content: bytes, *, durable: bool = True) -> None:
        """Let the file appear with this content, by one rename.

        Parameters
        ----------
        content
            All of it.
        durable
            Whether it must be on the disk first. A disk that fails should not keep the file from saying so.
        """
        with self._room.open("r+b", buffering=0) as file:
            with operation("overwrite", self._path):
                if file.write(content) < len(content):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                file.truncate()
            with nullcontext() if durable else suppress(OSError):
                sync(file.fileno(), self._path)
        with operation("rename", self._path):
            os.replace(self._room, self._path)

    def close(self) -> None:
        """Give the room back; what was published stays."""
        if self._room.exists():
            with suppress(OSError), operation("unlink", self._path):
                self._room.unlink()
