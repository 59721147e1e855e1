"""The head of an NPY file -> shape, order and dtype, by a grammar: nothing in it is evaluated.

NumPy's own reader hands the head to Python's parser, which fails now and then where several threads parse at once
(CPython 3.11: "AST constructor recursion depth mismatch"); a sound file would then be called damaged.
"""

import re
from pathlib import Path
from typing import IO, Any

import numpy as np

from segmeter.checks import expected
from segmeter.data.files.sniff import show
from segmeter.errors import DataError

_MAGIC = b"\x93NUMPY"
_LONGEST = 10_000  # bytes: NumPy's own limit, which it applies only after reading
_ENTRY = re.compile(
    r"\s*'(descr|fortran_order|shape)'\s*:\s*(True|False|\([^()]*\)|'[^']*'|\[.*\])\s*(?:,|$)", re.DOTALL
)
_PLAIN_DTYPE = re.compile(r"'[<>|=]?[?biufcmMOSUV]\d*(?:\[\w+\])?'")  # the brackets: the unit of a date
_SHAPE = re.compile(r"\((?:\s*\d+L?\s*,)*(?:\s*\d+L?)?\s*\)")  # the L: written by Python 2


def read_npy_header(path: Path, file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, whether columns come first, and dtype; `file` then stands at the first value.

    Raises
    ------
    DataError
        The file holds records rather than one number per place.
    ValueError
        The head is damaged, or longer than any that NumPy reads.
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
    text = head.strip()
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
