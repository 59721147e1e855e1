"""Files that are complete or absent: the one door through which everything is written, checksums, safe names."""

import csv
import errno
import hashlib
import io
import json
import os
import re
import secrets
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from segmeter.errors import InputError

TEMPORARY = ".tmp-"
FORMULA = ("=", "+", "-", "@", "\t", "\r")
_BUFFER = 1 << 20  # bytes handed to the system at a time
_FOLDER = os.O_RDONLY | os.O_DIRECTORY
_SAFE_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")

_confined: dict[Path, int] = {}  # folders below which no link is followed, with their handles


def watch(operation: str, path: Path) -> None:
    """Called before each operation, for tests to fail one.

    Its name is open, write, overwrite (where room was set aside), fsync, rename, unlink, mkdir or link.
    """


def _absolute(path: Path) -> Path:
    return Path(os.path.abspath(path))  # noqa: PTH100 - resolving would follow links


@contextmanager
def confined(root: Path) -> Iterator[None]:
    """While the block runs, all that is written below `root` is opened from its handle and follows no link."""
    place = _absolute(root)
    handle = os.open(place, _FOLDER)
    before = _confined.get(place)
    _confined[place] = handle
    try:
        yield
    finally:
        del _confined[place]
        _confined.update({} if before is None else {place: before})
        os.close(handle)


@contextmanager
def operation(name: str, path: Path) -> Iterator[None]:
    """Count an operation, and give its error the path that users know instead of a temporary one or none."""
    try:
        watch(name, path)
        yield
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR) and path.is_symlink():
            raise link_error(path) from error
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error


def link_error(path: Path) -> InputError:
    """What is said of a link in the place of a file of a run."""
    return InputError(f"{path}: is a link, and nothing in a run's folder is read or written through one. Remove it.")


@contextmanager
def handle_of(folder: Path) -> Iterator[int]:
    """The handle of a folder; below a confined one, no link on the way is followed."""
    place = _absolute(folder)
    root = next((each for each in (place, *place.parents) if each in _confined), None)
    handle = os.open(place, _FOLDER) if root is None else os.dup(_confined[root])
    try:
        for part in place.relative_to(root).parts if root else ():
            inner = os.open(part, _FOLDER | os.O_NOFOLLOW, dir_fd=handle)
            os.close(handle)
            handle = inner
        yield handle
    except NotADirectoryError as error:
        links = [each for each in (place, *place.parents) if each.is_symlink()] if root else []
        raise (link_error(links[0]) if links else error) from None
    finally:
        os.close(handle)


def sync(handle: int, path: Path) -> None:
    """Bring a file or folder to the disk."""
    with operation("fsync", path):
        os.fsync(handle)


def temporary_name(suffix: str = "") -> str:
    """A name that nobody else has, and that the next start clears."""
    return f"{TEMPORARY}{os.getpid()}-{secrets.token_hex(4)}{suffix}"


class _Raw(io.RawIOBase):
    """A descriptor that is written to. After a fault every further write fails alike: the first cause is what counts.

    It has no `fileno`, so that no library writes past it.
    """

    def __init__(self, handle: int, path: Path) -> None:
        self.handle = handle
        self.path = path
        self.abandoned = False  # what is still buffered goes nowhere
        self._fault: OSError | None = None

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        if self.abandoned:
            return memoryview(data).nbytes
        if self._fault is not None:
            raise self._fault
        try:
            with operation("write", self.path):
                return os.write(self.handle, data)
        except OSError as error:
            self._fault = error
            raise

    def seek(self, offset: int, whence: int = 0) -> int:
        return os.lseek(self.handle, offset, whence)

    def close(self) -> None:
        if not self.closed:
            super().close()
            os.close(self.handle)


@contextmanager
def atomic_write(path: Path) -> Iterator[IO[bytes]]:
    """Open a file that appears under `path` complete, on leaving the block, or not at all.

    A link planted at `path` is replaced, never followed. The file's mode is that of any new file.

    Raises
    ------
    OSError
        It can't be written; ``filename`` is `path`.
    """
    with handle_of(path.parent) as folder:
        name = temporary_name(path.suffix)
        with operation("open", path):
            handle = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666, dir_fd=folder)
        raw = _Raw(handle, path)
        file = io.BufferedWriter(raw, _BUFFER)
        try:
            yield file
            file.flush()
            sync(handle, path)
            file.close()
            with operation("rename", path):
                os.replace(name, path.name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            raw.abandoned = True
            file.close()
            with suppress(OSError), operation("unlink", path):
                os.unlink(name, dir_fd=folder)
            raise
        sync(folder, path.parent)


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file that appears complete, or not at all."""
    with atomic_write(path) as file:
        file.write(content)


def json_bytes(content: Any) -> bytes:
    """JSON with shortest round-trip floats; NaN and infinity are refused, as JSON has none."""
    return (json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()


def csv_bytes(rows: Iterable[Iterable[Any]]) -> bytes:
    r"""CSV with shortest round-trip floats; None is empty, and no text is one that a spreadsheet would run.

    Examples
    --------
    >>> csv_bytes([["name", "score"], ["=cmd()", 0.1], ["b", None]])
    b"name,score\n'=cmd(),0.1\nb,\n"
    """
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([_csv_cell(value) for value in row] for row in rows)
    return text.getvalue().encode("utf-8", "replace")


def _csv_cell(value: Any) -> Any:
    """What the csv module writes so; None and numbers it writes as they should be."""
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value


def write_json(path: Path, content: Any) -> None:
    """Write JSON, see `json_bytes`, that appears complete, or not at all."""
    write_bytes(path, json_bytes(content))


def make_folder(path: Path) -> None:
    """Make a folder, and those above it, where they are missing; below a confined folder a link is refused."""
    place = _absolute(path)
    if place in _confined or (place.is_dir() and not place.is_symlink()):
        return
    make_folder(place.parent)
    with handle_of(place.parent) as folder, suppress(FileExistsError), operation("mkdir", path):
        os.mkdir(place.name, dir_fd=folder)
    with handle_of(place):  # refuses a link and a file
        pass


def new_folder(path: Path) -> bool:
    """Make a folder that nobody else has made; False where something of this name is there."""
    try:
        with operation("mkdir", path):
            path.mkdir()
    except FileExistsError:
        return False
    return True


@contextmanager
def fresh_folder(folder: Path) -> Iterator[Path]:
    """Give a new folder to write into, which appears under its name, complete, when the block ends, or not at all."""
    make_folder(folder.parent)
    with handle_of(folder.parent) as parent:
        name = temporary_name()
        with operation("mkdir", folder):
            os.mkdir(name, dir_fd=parent)
        try:
            yield folder.parent / name
            with handle_of(folder.parent / name) as fresh:
                sync(fresh, folder)
            with operation("rename", folder):
                os.replace(name, folder.name, src_dir_fd=parent, dst_dir_fd=parent)
        except BaseException:
            with suppress(OSError):
                remove(folder.parent / name)
            raise
        sync(parent, folder.parent)


def point(link: Path, target: str) -> None:
    """Make `link` a symbolic link to its sibling `target` by one rename; readers see the old target or the new."""
    with handle_of(link.parent) as folder:
        name = temporary_name()
        with operation("link", link):
            os.symlink(target, name, dir_fd=folder)
        try:
            with operation("rename", link):
                os.replace(name, link.name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with suppress(OSError), operation("unlink", link):
                os.unlink(name, dir_fd=folder)
            raise
        sync(folder, link.parent)


def link_or_copy(source: Path, target: Path) -> None:
    """Let a finished file appear at `target` too: as a second name where the disk allows, else as a copy; no link."""
    if source.is_symlink():
        raise link_error(source)
    # a second name is safe, as no published file is ever changed, only replaced
    if source.is_dir():
        with fresh_folder(target) as place:
            for each in (path for path in sorted(source.rglob("*")) if path.is_symlink() or path.is_file()):
                make_folder((place / each.relative_to(source)).parent)
                link_or_copy(each, place / each.relative_to(source))
        return
    try:
        with handle_of(target.parent) as folder, operation("link", target):
            os.link(source, target.name, dst_dir_fd=folder, follow_symlinks=False)
    except OSError:  # another disk, or one without such names
        write_bytes(target, source.read_bytes())


def rename(path: Path, name: str) -> None:
    """Give a file or folder another name in its folder."""
    with handle_of(path.parent) as folder, operation("rename", path):
        os.replace(path.name, name, src_dir_fd=folder, dst_dir_fd=folder)


def remove(path: Path) -> None:
    """Remove a file or folder where it is there; a folder goes under a temporary name first, never half of it."""
    if path.is_symlink() or not path.is_dir():
        with handle_of(path.parent) as folder, suppress(FileNotFoundError), operation("unlink", path):
            os.unlink(path.name, dir_fd=folder)
        return
    hidden = path if path.name.startswith(TEMPORARY) else path.with_name(temporary_name())
    if hidden != path:
        rename(path, hidden.name)
    with handle_of(path.parent) as folder, operation("unlink", path):
        shutil.rmtree(hidden.name, dir_fd=folder)


def clear_leftovers(folder: Path) -> None:
    """Remove what a killed process left half written below a folder that nobody else writes to."""
    for place, folders, files in os.walk(folder):
        for name in [name for name in (*folders, *files) if name.startswith(TEMPORARY)]:
            remove(Path(place) / name)
        folders[:] = [name for name in folders if not name.startswith(TEMPORARY)]


def sha256_file(path: Path) -> str:
    """SHA-256 of a file's content, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def describe_file(path: Path) -> dict[str, Any]:
    """Size and hash of a file, or of all files of a folder: what `is_whole` compares."""
    if not path.is_dir():
        return {"bytes": path.stat().st_size, "sha256": sha256_file(path)}
    parts = {str(each.relative_to(path)): describe_file(each) for each in sorted(path.rglob("*")) if each.is_file()}
    digest = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
    return {"bytes": sum(part["bytes"] for part in parts.values()), "sha256": digest}


def is_whole(path: Path, entry: Mapping[str, Any]) -> bool:
    """Whether a file is there, byte for byte as `describe_file` found it; a link is not."""
    with suppress(OSError):
        fits = not path.is_symlink() and (path.is_dir() or (path.is_file() and path.stat().st_size == entry["bytes"]))
        return fits and describe_file(path) == dict(entry)
    return False


def safe_id(name: str) -> str:
    """Turn any name into one that is safe as a file name; a changed one carries a hash, so that two never collide.

    Examples
    --------
    >>> safe_id("0001TP_009570")
    '0001TP_009570'
    >>> safe_id("../x")
    'x-d6b96a97'
    """
    if _SAFE_ID.fullmatch(name) and not name.startswith("."):
        return name
    slug = re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-")[:100] or "case"
    return f"{slug}-{hashlib.sha256(name.encode('utf-8', 'surrogateescape')).hexdigest()[:8]}"
