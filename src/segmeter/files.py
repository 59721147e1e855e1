"""Writes files that are complete or absent, and takes their checksums. All of segmeter's output goes through here."""

import csv
import errno
import hashlib
import io
import json
import os
import re
import secrets
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from segmeter.errors import InputError

TEMPORARY = ".tmp-"
FORMULA = ("=", "+", "-", "@", "\t", "\r")
# Flags for binary files, and for opening a FIFO without waiting for its other end. Not every system has all of them.
PLAIN = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0) | getattr(os, "O_BINARY", 0)
_BUFFER = 1 << 20  # Hand this many bytes to the system at a time.
_SAFE_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")
# Windows reserves the names of devices, forbids some characters in names, and drops a dot or space at the end.
_REFUSED = re.compile(r'(con|prn|aux|nul|com\d|lpt\d) *(\.|$)|.*[<>:"/\\|?*\0-\x1f]|.*[. ]$', re.IGNORECASE | re.ASCII)


def watch(operation: str, path: Path) -> None:
    """Do nothing. Called before open, write, fsync, rename, unlink, mkdir and link, so that tests can make one fail."""


@contextmanager
def operation(name: str, path: Path) -> Iterator[None]:
    """Announce an operation to `watch`, and give its error the path that users know instead of a temporary one."""
    try:
        watch(name, path)
        yield
    except OSError as error:
        if error.errno == errno.ELOOP and path.is_symlink():
            raise link_error(path) from error
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error


def link_error(path: Path) -> InputError:
    """Make the error for a link where a run expects a file of its own."""
    return InputError(f"{path}: is a link, and nothing in a run's folder is read or written through one. Remove it.")


def open_file(path: Path, flags: int) -> int:
    """Open a file, but never through a link."""
    return os.open(path, flags | PLAIN | getattr(os, "O_NOFOLLOW", 0), 0o666)


def sync(handle: int, path: Path) -> None:
    """Flush a file to the disk."""
    with operation("fsync", path):
        os.fsync(handle)


def sync_folder(folder: Path, path: Path | None = None) -> None:
    """Flush the names in a folder to the disk, if the system can; errors name `path`, if given."""
    if hasattr(os, "O_DIRECTORY"):
        with operation("fsync", path or folder):
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)


def temporary_name(suffix: str = "") -> str:
    """Return a unique name, whose file the next start removes if this process is killed."""
    return f"{TEMPORARY}{os.getpid()}-{secrets.token_hex(4)}{suffix}"


def replace(source: Path, target: Path) -> None:
    """Rename over an existing file. Windows refuses while another program has it open, so retry for three seconds."""
    for attempt in range(6):
        try:
            return os.replace(source, target)
        except PermissionError as error:
            if getattr(error, "winerror", None) is None:
                raise
            time.sleep(0.05 * 2**attempt)
    return os.replace(source, target)


class _Raw(io.FileIO):
    """A new file. After an error, every further write raises the same one."""

    def __init__(self, name: Path, path: Path) -> None:
        with operation("open", path):
            super().__init__(name, "x")
        self._path = path
        self._fault: OSError | None = None

    def write(self, data: Any) -> int:
        if self._fault is not None:
            raise self._fault
        try:
            with operation("write", self._path):
                return super().write(data)
        except OSError as error:
            self._fault = error
            raise

    def fileno(self) -> int:
        raise io.UnsupportedOperation("fileno")  # so that no library writes past it


@contextmanager
def atomic_write(path: Path) -> Iterator[IO[bytes]]:
    """Open a file that appears under `path` when the block ends, complete, or not at all.

    A link planted at `path` is replaced, never followed. The file's mode is that of any new file.

    Raises
    ------
    OSError
        It can't be written; ``filename`` is `path`.
    """
    temporary = path.with_name(temporary_name(path.suffix))
    raw = _Raw(temporary, path)
    file = io.BufferedWriter(raw, _BUFFER)
    try:
        yield file
        file.flush()
        sync(io.FileIO.fileno(raw), path)
        raw.close()
        with operation("rename", path):
            replace(temporary, path)
    except BaseException:
        raw.close()  # without writing its buffer
        with suppress(OSError), operation("unlink", path):
            temporary.unlink()
        raise
    sync_folder(path.parent)


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file that appears complete, or not at all."""
    with atomic_write(path) as file:
        file.write(content)


def json_bytes(content: Any) -> bytes:
    """Encode JSON with shortest round-trip floats; NaN and infinity are refused, as JSON has none."""
    return (json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()


def csv_bytes(rows: Iterable[Iterable[Any]]) -> bytes:
    r"""Encode CSV with shortest round-trip floats. None is empty, and text that would run as a formula is quoted.

    Examples
    --------
    >>> csv_bytes([["name", "score"], ["=cmd()", 0.1], ["b", None]])
    b"name,score\n'=cmd(),0.1\nb,\n"
    """
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(
        [f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value for value in row]
        for row in rows
    )
    return text.getvalue().encode("utf-8", "replace")


def write_json(path: Path, content: Any) -> None:
    """Write JSON, see `json_bytes`, that appears complete, or not at all."""
    write_bytes(path, json_bytes(content))


def make_folder(path: Path) -> None:
    """Make a folder and its parents if they are missing."""
    if not path.is_dir():
        make_folder(path.parent)
        try:
            with operation("mkdir", path):
                path.mkdir(exist_ok=True)
        except FileExistsError as error:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path)) from error


def new_folder(path: Path) -> bool:
    """Make a folder; False if something of this name exists."""
    with suppress(FileExistsError), operation("mkdir", path):
        path.mkdir()
        return True
    return False


@contextmanager
def fresh_folder(folder: Path) -> Iterator[Path]:
    """Give a new folder to write into. It appears under its name when the block ends, complete, or not at all."""
    make_folder(folder.parent)
    fresh = folder.with_name(temporary_name())
    with operation("mkdir", folder):
        fresh.mkdir()
    try:
        yield fresh
        sync_folder(fresh, folder)
        with operation("rename", folder):
            replace(fresh, folder)
    except BaseException:
        with suppress(OSError):
            remove(fresh)
        raise
    sync_folder(folder.parent)


def link_or_copy(source: Path, target: Path) -> None:
    """Let a finished file or folder appear at `target` too: as a hard link, since nothing changes it, or as a copy."""
    if source.is_symlink():
        raise link_error(source)
    if source.is_dir():
        with fresh_folder(target) as copy:
            for path in sorted(source.rglob("*")):
                if path.is_symlink() or path.is_file():
                    make_folder((copy / path.relative_to(source)).parent)
                    link_or_copy(path, copy / path.relative_to(source))
        return
    try:
        with operation("link", target):
            os.link(source, target)
    except OSError:  # another disk, or one without hard links
        write_bytes(target, source.read_bytes())


def rename(path: Path, name: str) -> None:
    """Give a file or folder another name in its folder."""
    with operation("rename", path):
        replace(path, path.with_name(name))


def remove(path: Path) -> None:
    """Remove a file or folder if it exists. A folder is renamed first, so that it never stays half removed."""
    if path.is_symlink() or not path.is_dir():
        with suppress(FileNotFoundError), operation("unlink", path):
            path.unlink()
        return
    hidden = path if path.name.startswith(TEMPORARY) else path.with_name(temporary_name())
    if hidden != path:
        rename(path, hidden.name)
    with operation("unlink", path):
        shutil.rmtree(hidden)


class Lines:
    """A file that grows by whole lines or records. A failed write is undone, and no link is followed.

    Parameters
    ----------
    path
        Created if it is missing.
    keep
        Cut the file to this many bytes; None keeps all.
    """

    def __init__(self, path: Path, *, keep: int | None = None) -> None:
        self._path = path
        with operation("open", path):
            self._handle = open_file(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
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
        """Flush the file to the disk."""
        sync(self._handle, self._path)

    def close(self) -> None:
        """Close the file; calling it again does nothing."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def _cut(self, size: int) -> None:
        with operation("write", self._path):
            os.ftruncate(self._handle, size)
        self.size = size


def clear_leftovers(folder: Path) -> None:
    """Remove half-written files of a killed process below a folder that no other process writes to."""
    for parent, folders, files in os.walk(folder):
        for name in [name for name in (*folders, *files) if name.startswith(TEMPORARY)]:
            remove(Path(parent) / name)
        folders[:] = [name for name in folders if not name.startswith(TEMPORARY)]


def sha256_file(path: Path) -> str:
    """Return the SHA-256 of a file's content, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sha256_json(value: Any) -> str:
    """Return the SHA-256 of plain values, in hexadecimal, whatever the order of their keys."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def describe_file(path: Path) -> dict[str, Any]:
    """Return size and hash of a file, or of all files of a folder, for `is_whole`."""
    if not path.is_dir():
        return {"bytes": path.stat().st_size, "sha256": sha256_file(path)}
    parts = {file.relative_to(path).as_posix(): describe_file(file) for file in path.rglob("*") if file.is_file()}
    return {"bytes": sum(part["bytes"] for part in parts.values()), "sha256": sha256_json(parts)}


def is_whole(path: Path, entry: Mapping[str, Any]) -> bool:
    """Tell whether a file exists and has the size and hash from `describe_file`; False for a link."""
    with suppress(OSError):
        fits = not path.is_symlink() and (path.is_dir() or (path.is_file() and path.stat().st_size == entry["bytes"]))
        return fits and describe_file(path) == dict(entry)
    return False


def is_refused(name: str) -> bool:
    """Tell whether this system refuses a name, as Windows does with aux.png. Other systems keep such names."""
    return not hasattr(os, "O_DIRECTORY") and bool(_REFUSED.match(name))


def safe_id(name: str) -> str:
    """Turn any name into a safe file name. A changed name gets a hash, so that no two collide.

    Examples
    --------
    >>> safe_id("../x")
    'x-d6b96a97'
    """
    if _SAFE_ID.fullmatch(name) and not name.startswith(".") and not is_refused(name):
        return name
    slug = re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-")[:100] or "case"
    return f"{slug}-{hashlib.sha256(name.encode('utf-8', 'surrogateescape')).hexdigest()[:8]}"
