"""Locks a run's folder, keeps disk space for its last record, and clears what killed processes left there."""

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
    """Lock a run's folder; None if another process holds the lock.

    The system frees the lock of a process that is killed, so no lock is ever stale.

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
    """Hold a folder's lock; False without one, such as in a copy, or if another process holds it."""
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
    """Hold a run's folder, without the temporary files of killed processes, unless another process holds it."""
    with _held(folder) as held:
        with suppress(OSError):
            if held:
                clear_leftovers(folder)
        yield


def clear_killed(root: Path) -> None:
    """Remove the temporary files of killed runs below a folder, because these runs may never be resumed.

    Runs of other machines are left alone, as their locks may not be visible here.
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
    """Disk space for a file that has to be written at the end, when the disk may be full.

    Parameters
    ----------
    path
        The file that `publish` writes.
    size
        Bytes to reserve. A longer content is written if the disk has room for it.
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
        """Write the file with this content, by one rename.

        Parameters
        ----------
        content
            The whole content.
        durable
            Whether a failing sync is an error. If the disk itself fails, the file should still say so.
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
        """Free the space; a published file stays."""
        if self._room.exists():
            with suppress(OSError), operation("unlink", self._path):
                self._room.unlink()
