"""Open NPY and NPZ files -> array, its size known from the head before a value is read; pickles are refused.

The head is read by a grammar of our own. NumPy's reader hands it to Python's parser, which fails now and then where
several threads parse at once (CPython 3.11: "AST constructor recursion depth mismatch"); a sound file would then be
called damaged.
"""

import math
import re
import zipfile
from pathlib import Path
from typing import IO, Any

import numpy as np

from segmeter.checks import expected, nearest, some
from segmeter.data.files.sniff import damaged, show
from segmeter.errors import DataError

_MAGIC = b"\x93NUMPY"
_LONGEST = 10_000  # bytes: NumPy's own limit, which it applies only after reading
_ENTRY = re.compile(
    r"\s*'(descr|fortran_order|shape)'\s*:\s*(True|False|\([^()]*\)|'[^']*'|\[.*\])\s*(?:,|$)", re.DOTALL
)
_PLAIN_DTYPE = re.compile(r"'[<>|=]?[?biufcmMOSUV]\d*(?:\[\w+\])?'")  # the brackets: the unit of a date
_SHAPE = re.compile(r"\((?:\s*\d+L?\s*,)*(?:\s*\d+L?)?\s*\)")  # the L: written by Python 2
_AXES = {
    2: "(height, width)",
    3: "(depth, height, width)",
    4: "(channels, depth, height, width)",
}
_ONE_MAP = "Save one map per file, without axes for channels or time."


def decode_npy(path: Path, file: IO[bytes], *, max_pixels: int, axes: tuple[int, ...] = (2, 3)) -> np.ndarray:
    """Decode an open NPY file; DataError where it is damaged, too large, of other `axes`, or holds Python objects."""
    try:
        return _array(path, file, max_pixels, axes)
    except DataError:
        raise
    except Exception as error:  # NumPy raises many types on hostile bytes
        raise damaged(path, error) from error


def decode_npz(
    path: Path, file: IO[bytes], *, key: str | None, max_pixels: int, axes: tuple[int, ...] = (2, 3)
) -> np.ndarray:
    """Decode one array of an open NPZ archive: the one called `key`, or its only one.

    Raises
    ------
    DataError
        As for NPY; or there is no such array, or more than one and no key.
    """
    try:
        with zipfile.ZipFile(file) as archive:
            names = [name.removesuffix(".npy") for name in archive.namelist()]
            with archive.open(f"{pick_array(path, names, key)}.npy") as member:
                return _array(path, member, max_pixels, axes)
    except DataError:
        raise
    except Exception as error:  # zipfile, zlib and NumPy raise many types on hostile bytes
        raise damaged(path, error) from error


def pick_array(path: Path, names: list[str], key: str | None) -> str:
    """The name of the array to read, where a file holds several."""
    if key is None and len(names) == 1:
        return names[0]
    if key is None:
        remedy = "Name one of them: data.key=NAME."
        raise DataError(expected(show(path), "file", "to hold one array", some(names), remedy))
    if key not in names:
        raise DataError(expected(show(path), "file", f"to hold the array {key!r}", some(names), nearest(key, names)))
    return key


def check_pixels(
    path: Path, shape: tuple[int, ...], dtype: np.dtype, max_pixels: int, axes: tuple[int, ...] = (2, 3)
) -> None:
    """Refuse an array, by its header, that is no map or too large."""
    size = " x ".join(map(str, shape))
    if dtype.kind not in "biuf":
        found = "Python objects" if dtype.hasobject else str(dtype)
        raise DataError(expected(show(path), "dtype", "to be numbers", found, "Save a plain numeric array."))
    if len(shape) not in axes:
        raise DataError(expected(show(path), "shape", " or ".join(_AXES[count] for count in axes), shape, _ONE_MAP))
    if min(shape) < 1:
        raise DataError(expected(show(path), "size", "to be at least 1 along every axis", size, "Write it again."))
    if math.prod(shape) > max_pixels:
        remedy = f"If it is genuine, set data.max_pixels={math.prod(shape)}."
        raise DataError(expected(show(path), "size", f"at most {max_pixels} pixels", size, remedy))


def read_npy(file: IO[bytes], shape: tuple[int, ...], by_column: bool, dtype: np.dtype) -> np.ndarray:
    """The values behind the head, in this machine's byte order; ValueError where they are too few or too many."""
    size = math.prod(shape) * dtype.itemsize
    content = file.read(size)
    if len(content) != size or file.read(1):  # the one byte more makes zipfile check its sums
        found = "fewer" if len(content) != size else "more"
        raise ValueError(f"{found} bytes than the {size} that the header asks for")
    pixels = np.frombuffer(content, dtype).reshape(shape, order="F" if by_column else "C")
    return pixels.astype(dtype.newbyteorder("="), copy=False)


def _array(path: Path, file: IO[bytes], max_pixels: int, axes: tuple[int, ...]) -> np.ndarray:
    shape, by_column, dtype = read_npy_header(path, file)
    check_pixels(path, shape, dtype, max_pixels, axes)
    return read_npy(file, shape, by_column, dtype)


def read_npy_header(path: Path, file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, whether columns come first, and dtype; `file` then stands at the first value.

    Raises
    ------
    DataError
        The file holds records rather than one number per place.
    ValueError, TypeError
        The head is damaged, longer than any that NumPy reads, or names a dtype that NumPy does not know.
    """
    entries = _entries(_head(file))
    if set(entries) != {"descr", "fortran_order", "shape"}:
        raise ValueError("the head of the file is incomplete")
    if not _PLAIN_DTYPE.fullmatch(entries["descr"]):
        remedy = "Save a plain numeric array."
        raise DataError(expected(show(path), "dtype", "to be numbers", entries["descr"], remedy))
    if not _SHAPE.fullmatch(entries["shape"]) or entries["fortran_order"] not in ("True", "False"):
        raise ValueError("the shape or the order in the head of the file can't be read")
    shape = tuple(int(number) for number in re.findall(r"\d+", entries["shape"]))
    return shape, entries["fortran_order"] == "True", np.dtype(entries["descr"].strip("'"))


def _head(file: IO[bytes]) -> str:
    """The text between the first bytes and the values."""
    start = file.read(len(_MAGIC) + 2)
    if len(start) < len(_MAGIC) + 2 or not start.startswith(_MAGIC):
        raise ValueError("the file does not begin as an NPY file does")
    version = tuple(start[-2:])
    if version not in ((1, 0), (2, 0), (3, 0)):
        raise ValueError(f"version {version[0]}.{version[1]} of the format is unknown")
    length = int.from_bytes(file.read(2 if version == (1, 0) else 4), "little")
    if length > _LONGEST:
        raise ValueError(f"a header of {length} bytes")
    head = file.read(length)
    if len(head) != length:
        raise ValueError("the file ends within its head")
    return head.decode("utf-8" if version == (3, 0) else "latin-1")


def _entries(head: str) -> dict[str, str]:
    """What stands behind each name of the head, as it is written."""
    text = head.strip().replace('"', "'")  # either quotes a text in Python
    if not (text.startswith("{") and text.endswith("}")):
        raise ValueError("the head of the file can't be read")
    found: dict[str, str] = {}
    place, inner = 0, text[1:-1].rstrip()
    while place < len(inner):
        entry = _ENTRY.match(inner, place)
        if entry is None or entry[1] in found:
            raise ValueError("the head of the file can't be read")
        found[entry[1]] = entry[2]
        place = entry.end()
    return found
