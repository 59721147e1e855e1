"""Refuses files that can't be opened safely or that change, and names files in messages."""

import errno
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from io import BufferedReader, FileIO
from pathlib import Path
from typing import cast

from segmeter.checks import expected
from segmeter.errors import DataError
from segmeter.files import PLAIN
from segmeter.parallel import free_bytes
from segmeter.remote import listed_size, origin

States = list[tuple[int, int, int, int]]

SPARE_BYTES = 1 << 26  # A file may have this many bytes besides its pixels: profiles, thumbnails, notes of other tools.
HEAD_BYTES = 1 << 16  # The first read takes this many bytes, which is the whole file for most masks.
_JSON_MEMORY = 16  # Bytes in memory per byte of JSON. It is so much because each pair of numbers becomes a list.
_SMALL = 1 << 22  # JSON of at most this many bytes is read without asking how much memory is free.


def show(path: Path) -> str:
    """Return a path, or the URL that it stands for, as one printable line, whatever characters its name has."""
    text = origin(path)
    return text if text.isprintable() else ascii(text)


def file_error(path: Path, what: str, rule: str, found: object, remedy: str = "") -> DataError:
    """Build the refusal of a file, in the words of `segmeter.checks.expected`."""
    return DataError(expected(show(path), what, rule, found, remedy))


def known_place(path: str | Path) -> str:
    """Return the URL or absolute path of a place, so that records point to it from any working folder."""
    text = origin(path)
    return text if "://" in text else str(Path(path).absolute())


def stored_size(path: Path) -> int:
    """Return the size of a file in bytes, without fetching it if it is behind a URL."""
    size = listed_size(path)
    return path.stat().st_size if size is None else size


def read_state(path: str | Path) -> tuple[int, int, int, int]:
    """Return a file's size, modification time and status change time in nanoseconds, and inode; zeros without a file.

    For a folder, such as a Zarr array, these are the total size of its files, their latest times and their number. For
    a file behind a URL only the size is given, because another version of it has another path.
    """
    size = listed_size(path)
    if size is not None:
        return size, 0, 0, 0
    try:
        status = os.stat(path)  # noqa: PTH116 - a hundred thousand Path objects would take too long
        if stat.S_ISDIR(status.st_mode):
            inside = [entry.stat() for entry in Path(path).rglob("*")]
            modified = max(entry.st_mtime_ns for entry in (status, *inside))
            changed = max(entry.st_ctime_ns for entry in (status, *inside))
            return sum(entry.st_size for entry in inside), modified, changed, len(inside)
    except OSError:
        return (0, 0, 0, 0)
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino & (2**63 - 1)


@contextmanager
def open_regular(path: Path, *, may_be_empty: bool = False) -> Iterator[BufferedReader]:
    """Open a file for reading, and check that it is a regular file.

    Raises
    ------
    DataError
        It is not a regular file, is empty, or can't be read.
    """
    opener = lambda _, flags: os.open(path, flags | PLAIN)  # noqa: E731 - opening a FIFO this way does not wait
    try:
        with cast(BufferedReader, BufferedReader(FileIO(path, opener=opener), HEAD_BYTES)) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise _irregular(path)
            if not status.st_size and not may_be_empty:
                raise file_error(path, "file", "to hold an image", "an empty file (0 bytes)", "Copy it again.")
            yield file
    except OSError as error:
        if error.errno in (errno.ENXIO, errno.EISDIR):  # a socket, or a folder
            raise _irregular(path) from error
        raise file_error(path, "file", "to be readable", error.strerror or error) from error


def _irregular(path: Path) -> DataError:
    what, remedy = "a folder, FIFO, socket or device", "Put the file itself there."
    return file_error(path, "file", "to be a regular file", what, remedy)


@contextmanager
def unchanged(
    paths: Sequence[Path], look: Callable[[Callable[[], States]], States] = lambda states: states()
) -> Iterator[None]:
    """Refuse, at the end of the block, a file or folder that changed inside it, because two contents may be mixed.

    Writing into a file changes its status time, even if size and modification time are put back. `look` gets the
    function that reads the states and calls it, so that a time limit can be applied.
    """

    def states() -> States:
        return [read_state(path) for path in paths]

    before = look(states)
    yield
    for path, old, new in zip(paths, before, look(states), strict=True):
        if old != new:
            raise file_error(path, "file", "to stay as it is", "a change while it was read", "Run again.")


def check_size(path: Path, size: int, most: int, remedy: str) -> None:
    """Refuse a file that is far larger than its pixels can need, before it is read; sizes are in bytes."""
    allowed = most + SPARE_BYTES
    if size > allowed:
        raise file_error(path, "file", f"of at most {allowed} bytes", f"{size}", remedy)


@contextmanager
def damage_named(path: Path) -> Iterator[None]:
    """Turn any exception that a decoder raises on hostile bytes into one line that names the file."""
    try:
        yield
    except DataError:
        raise
    except Exception as error:
        raise damaged(path, error) from error


def damaged(path: Path, error: Exception) -> DataError:
    """Build the refusal of a file that can't be decoded, or for which the memory is too small."""
    reason = " ".join(str(error).split())[:120] or type(error).__name__
    if isinstance(error, MemoryError):
        return file_error(path, "file", "to be decoded in the memory that is left", reason)
    return file_error(path, "file", "to be complete", f"truncated or damaged data ({reason})", "Copy it again.")


def check_json(path: Path, size: int) -> None:
    """Refuse JSON of `size` bytes, before it is read, if its values would not fit into memory."""
    free = free_bytes() if size > _SMALL else None
    if free is not None and size * _JSON_MEMORY > free:
        rule = f"of at most {free // _JSON_MEMORY} bytes of JSON, as fit into the memory"
        raise file_error(path, "file", rule, str(size), "Is it the right one? Split it.")
