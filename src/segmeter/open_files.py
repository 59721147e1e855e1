"""Files that stay open for the length of a run: lines that are appended, room that is set aside, a lock."""

import errno
import os
from contextlib import nullcontext, suppress
from pathlib import Path

from segmeter.files import handle_of, operation, sync, temporary_name


class Lines:
    """A file that grows by whole lines or records: what can't be written whole is taken back. No link is followed.

    Parameters
    ----------
    path
        Made where it is missing.
    keep
        Bytes of it that stay; None keeps all.
    """

    def __init__(self, path: Path, *, keep: int | None = None) -> None:
        self._path = path
        with handle_of(path.parent) as folder, operation("open", path):
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
            self._handle = os.open(path.name, flags, 0o666, dir_fd=folder)
        self.size = os.fstat(self._handle).st_size
        if keep is not None and keep < self.size:
            self._cut(keep)

    def write(self, lines: bytes) -> None:
        """Append lines, or nothing."""
        rest = memoryview(lines)
        try:
            while rest:
                with operation("write", self._path):
                    rest = rest[os.write(self._handle, rest) :]
        except BaseException:
            with suppress(OSError):
                self._cut(self.size)
            raise
        self.size += len(lines)

    def sync(self) -> None:
        """Bring what was written to the disk."""
        sync(self._handle, self._path)

    def close(self) -> None:
        """Release the file; once more does nothing."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def _cut(self, size: int) -> None:
        with operation("write", self._path):
            os.ftruncate(self._handle, size)
        self.size = size


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
        self._name = temporary_name(path.suffix)
        with handle_of(path.parent) as folder, operation("open", path):
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
            self._handle = os.open(self._name, flags, 0o666, dir_fd=folder)
        try:
            with operation("write", path):
                os.write(self._handle, bytes(size))
        except BaseException:
            self.close()
            raise

    def publish(self, content: bytes, *, durable: bool = True) -> None:
        """Let the file appear with this content, by one rename.

        Parameters
        ----------
        content
            All of it.
        durable
            Whether it must be on the disk first. A disk that fails should not keep the file from saying so.
        """
        with operation("overwrite", self._path):
            written = os.pwrite(self._handle, content, 0)
            if written < len(content):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.ftruncate(self._handle, len(content))
        with nullcontext() if durable else suppress(OSError):
            sync(self._handle, self._path)
        with handle_of(self._path.parent) as folder, operation("rename", self._path):
            os.replace(self._name, self._path.name, src_dir_fd=folder, dst_dir_fd=folder)
        self._name = ""

    def close(self) -> None:
        """Give the room back; what was published stays."""
        os.close(self._handle)
        if self._name:
            with suppress(OSError), handle_of(self._path.parent) as folder, operation("unlink", self._path):
                os.unlink(self._name, dir_fd=folder)


def open_lock(path: Path) -> int:
    """Descriptor of a file to lock, made where it is missing; a link is not followed."""
    with handle_of(path.parent) as folder, operation("open", path):
        return os.open(path.name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666, dir_fd=folder)
