"""Which files are read: formats told by their content, never by their name alone."""

import errno
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path

from segmeter.checks import expected
from segmeter.errors import DataError
from segmeter.files import PLAIN
from segmeter.parallel import free_bytes
from segmeter.remote import fetch, listed_size, origin

States = list[tuple[int, int, int, int]]

SUFFIXES = {
    ".png": "png",
    ".jpg": "jpeg",
    ".jpeg": "jpeg",
    ".bmp": "bmp",
    ".tif": "tiff",
    ".tiff": "tiff",
    ".npy": "npy",
}
SUFFIX_NAMES = ", ".join(sorted(SUFFIXES))
VOLUME_SUFFIXES = {  # read by `masks` alone
    ".npz": "npz",
    ".nii": "nifti",
    ".nii.gz": "nifti",
    ".zarr": "zarr",
    ".mha": "itk",
    ".nrrd": "itk",
    ".dcm": "dicom",
    ".geojson": "geojson",
}
VOLUME_NAMES = ", ".join(sorted({**SUFFIXES, **VOLUME_SUFFIXES}))

_MAGIC = (
    (b"\x89PNG\r\n\x1a\n", "png"),
    (b"\xff\xd8\xff", "jpeg"),
    (b"BM", "bmp"),
    (b"II*\0", "tiff"),
    (b"MM\0*", "tiff"),
    (b"II+\0", "tiff"),
    (b"MM\0+", "tiff"),
    (b"\x93NUMPY", "npy"),
)
_FOREIGN = (
    (b"GIF8", "a GIF", "Save the one frame that counts as PNG."),
    (b"PK\x03\x04", "a ZIP or NPZ archive", "Save each array as its own .npy file."),
    (b"version https://git-lfs", "a git-lfs pointer", "Run `git lfs pull`."),
    (b"%PDF", "a PDF", "Export the picture as PNG."),
    (b"\x89HDF", "an HDF5 file", "Save each image as .npy or TIFF."),
)
_DOUBLE = (".nii.gz", ".ome.tif", ".ome.tiff", ".ome.zarr", ".seg.nrrd")
_SIDECARS = {".txt", ".json", ".csv", ".tsv", ".md", ".xml", ".yaml", ".yml", ".html", ".log", ".ini", ".db"}
_HEAD_BYTES = 64
_PICTURES = tuple(SUFFIXES)
_JSON_MEMORY = 16  # bytes that a byte of JSON takes when it is read: a pair of numbers is a list
_SMALL = 1 << 22  # bytes of JSON that are not worth a look at the memory


def show(path: Path) -> str:
    """Write a path, or the URL that it stands for, so that it stays one harmless line, whatever its name holds."""
    text = origin(path)
    return text if text.isprintable() else ascii(text)


def known_place(path: str | Path) -> str:
    """Return what records call a place, so that it is found again from anywhere: its URL or absolute path."""
    text = origin(path)
    return text if "://" in text else str(Path(path).absolute())


def find_place(known: str, keep: Callable[[str], bool]) -> Path:
    """Find a place by what `known_place` calls it; of one behind a URL, fetch the files that `keep` names."""
    return fetch(known, keep)


def stored_size(path: Path) -> int:
    """Return the bytes of a file, which is not fetched for that where it is behind a URL."""
    size = listed_size(path)
    return path.stat().st_size if size is None else size


def read_state(path: str | Path) -> tuple[int, int, int, int]:
    """Return size, modification and status change in nanoseconds, and inode; zeros where there is no such file.

    A folder, such as a Zarr array, has the sizes of its files together, their latest changes, and their number. What is
    behind a URL has its size alone: another state of it is another path.
    """
    size = listed_size(path)
    if size is not None:
        return size, 0, 0, 0
    try:
        found = os.stat(path)  # noqa: PTH116 - of a hundred thousand files, without their Path objects
        if stat.S_ISDIR(found.st_mode):
            states = [each.stat() for each in Path(path).rglob("*")]
            latest = [max(getattr(each, name) for each in (found, *states)) for name in ("st_mtime_ns", "st_ctime_ns")]
            return sum(each.st_size for each in states), latest[0], latest[1], len(states)
    except OSError:
        return (0, 0, 0, 0)
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino & (2**63 - 1)


def volume_format(path: Path) -> str | None:
    """Name the format of what only `masks` reads, by its suffix, or of a folder; None for all else.

    What is called like a picture is none, and is not looked at: that would be a system call for every file.
    """
    name = path.name.lower()
    if name.endswith(_PICTURES):
        return None
    if path.is_dir():
        return "zarr"
    return next((form for suffix, form in VOLUME_SUFFIXES.items() if name.endswith(suffix)), None)


def stem_of(path: Path | str) -> str:
    """The name of a case: that of its file without suffix, where ``.nii.gz``, ``.ome.tif`` and so on are one suffix.

    Examples
    --------
    >>> stem_of(Path("a.nii.gz")), stem_of(Path("a.b.png")), stem_of(Path("a"))
    ('a', 'a.b', 'a')
    """
    name = path if isinstance(path, str) else path.name
    lower = name.lower()
    known = (suffix for suffix in (*_DOUBLE, *SUFFIXES, *VOLUME_SUFFIXES) if lower.endswith(suffix))
    return name[: -len(suffix)] if (suffix := next(known, "")) else name


def is_junk(path: Path) -> bool:
    """Tell whether a file beside images is not part of the data: hidden, the system's, or a note about the images."""
    return path.name.startswith((".", "__MACOSX")) or path.suffix.lower() in _SIDECARS


def check_format(path: Path, file: BufferedReader) -> str:
    """Name the format of an open file by its first bytes, which stay unread; see `name_format`."""
    return name_format(path, file.peek(_HEAD_BYTES)[:_HEAD_BYTES])


def name_format(path: Path, head: bytes) -> str:
    """Name the format of a file by its first bytes, and check that its suffix agrees.

    Raises
    ------
    DataError
        It is foreign or misnamed.
    """
    found = next((name for magic, name in _MAGIC if head.startswith(magic)), None)
    if found is None:
        what, remedy = _describe(head)
        raise DataError(expected(show(path), "content", "to be PNG, JPEG, BMP, TIFF or NPY", what, remedy))
    said = SUFFIXES.get(path.suffix.lower())
    if said != found:
        suffix = next(suffix for suffix, name in SUFFIXES.items() if name == found)
        raise DataError(
            expected(show(path), "suffix", f"to fit the content, {found.upper()}", repr(path.suffix), _rename(suffix))
        )
    return found


def _rename(suffix: str) -> str:
    return f"Rename the file to {suffix}."


@contextmanager
def open_regular(path: Path) -> Iterator[BufferedReader]:
    """Open a file for reading after a look at its kind.

    Raises
    ------
    DataError
        It is no regular file, empty, or can't be read.
    """
    with open_handle(path) as (handle, _), open_again(path, handle) as file:
        yield file


@contextmanager
def unchanged(
    paths: Sequence[Path], look: Callable[[Callable[[], States]], States] = lambda states: states()
) -> Iterator[None]:
    """Refuse, in the end, a file or folder that was changed meanwhile: what was read of it may be of both contents.

    Whoever writes into a file changes the time of its status, even where size and modification time are put back.
    `look` calls what asks for the files' states, as a limit of time does.
    """

    def states() -> States:
        return [read_state(path) for path in paths]

    before = look(states)
    yield
    for path, was, now in zip(paths, before, look(states), strict=True):
        if was != now:
            raise DataError(
                expected(show(path), "file", "to stay as it is", "a change while it was read", "Run again.")
            )


@contextmanager
def open_handle(path: Path) -> Iterator[tuple[int, int]]:
    """Open a file as `open_regular` does; its descriptor and its size in bytes."""
    try:
        handle = os.open(path, os.O_RDONLY | PLAIN)
        try:
            status = os.fstat(handle)
            if not stat.S_ISREG(status.st_mode):
                raise _irregular(path)
            if not status.st_size:
                found = "an empty file (0 bytes)"
                raise DataError(expected(show(path), "file", "to hold an image", found, "Copy it again."))
            yield handle, status.st_size
        finally:
            os.close(handle)
    except OSError as error:
        if error.errno == errno.ENXIO:  # a socket
            raise _irregular(path) from error
        raise DataError(expected(show(path), "file", "to be readable", error.strerror or error)) from error


@contextmanager
def open_again(path: Path, handle: int) -> Iterator[BufferedReader]:
    """Read an open file from its start, by a reader that has the file's name: tifffile asks for it."""
    with open(path, "rb", opener=lambda *_: os.dup(handle)) as file:
        file.seek(0)
        yield file


def _irregular(path: Path) -> DataError:
    found, remedy = "a folder, FIFO, socket or device", "Put the file itself there."
    return DataError(expected(show(path), "file", "to be a regular file", found, remedy))


def _describe(head: bytes) -> tuple[str, str]:
    """What foreign bytes look like, and what to do about it."""
    for magic, what, remedy in _FOREIGN:
        if head.startswith(magic):
            return what, remedy
    if head.lstrip().lower().startswith((b"<!doctype html", b"<html")):
        return "an HTML page", "Download the file itself."
    if b"\0" not in head and head.isascii():
        return "text", "Replace it by the image."
    return "unknown bytes", "Save the picture as PNG, or as TIFF for 16 bits and floats."


def damaged(path: Path, error: Exception) -> DataError:
    """The refusal of a file whose bytes can't be decoded, or not in the memory that is left."""
    reason = " ".join(str(error).split())[:120] or type(error).__name__
    if isinstance(error, MemoryError):
        return DataError(expected(show(path), "file", "to be decoded in the memory that is left", reason))
    return DataError(
        expected(show(path), "file", "to be complete", f"truncated or damaged data ({reason})", "Copy it again.")
    )


def check_json(path: Path, size: int) -> None:
    """Refuse JSON of `size` bytes, before it is read, where its values would not fit into the memory.

    Raises
    ------
    DataError
        They would not.
    """
    free = free_bytes() if size > _SMALL else None
    if free is not None and size * _JSON_MEMORY > free:
        rule = f"of at most {free // _JSON_MEMORY} bytes of JSON, as fit into the memory"
        raise DataError(expected(show(path), "file", rule, str(size), "Is it the right one? Split it."))
