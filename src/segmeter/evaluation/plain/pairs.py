"""The two files of a case -> its counts, where both are plain label PNGs; all else is left to the usual way."""

import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from segmeter.classes import ClassSpec
from segmeter.data.files.deflate import ROOM

_VALUES = 256  # of a sample
_MOST_CLASSES = _VALUES - 2  # the joint numbers of classes must fit uint16
_MOST_BYTES = 1 << 23  # of a file, and of its rows
_HASH_BYTES = 32


class _Local(threading.local):
    memory: NDArray[np.uint8] | None = None


_LOCAL = _Local()


@dataclass(frozen=True, kw_only=True, eq=False)
class PlainCounts:
    """Counts (K, K) int64 of a pair, the target's checksum, its size in pixels, and the sha256 of either file."""

    counts: NDArray[np.int64]
    target_crc32: int
    height: int
    width: int
    sha256: tuple[str, str]


def can_count(spec: ClassSpec) -> bool:
    """Whether `count_plain` knows such classes."""
    if spec.is_multilabel or spec.count_invalid or spec.label_dtype != np.uint8:
        return False
    return spec.num_classes <= _MOST_CLASSES


def is_compiled() -> bool:
    """Whether `count_plain` was compiled before, which takes about 20 s, and is on disk."""
    from segmeter.jit import is_kept  # numba takes a moment to load

    count_files = _compiled()
    return count_files is not None and is_kept(count_files)


def prepare(spec: ClassSpec) -> None:
    """Load or compile what `count_plain` calls, so that its first pair takes no longer than the others."""
    count_files = _compiled()
    if count_files is not None and not cast(Any, count_files).signatures:
        count_plain([(Path(), Path())], spec, max_pixels=1)


def count_plain(
    pairs: Sequence[tuple[Path, Path]], spec: ClassSpec, *, max_pixels: int
) -> Sequence[PlainCounts | None]:
    """Count pairs of label PNGs of up to 8 MB and 8 million pixels, without the interpreter from the first to the last.

    Parameters
    ----------
    pairs
        Reference and prediction of each case.
    spec
        The classes, for which `can_count` holds.
    max_pixels
        The most pixels of a file, checked before it is inflated.

    Returns
    -------
    PlainCounts of each, or None where a file is anything else or not in order, sizes differ, or a value is outside the
    classes, even where it is ignored: the usual way says what is wrong.
    """
    count_files, most = _compiled(), min(max_pixels, _MOST_BYTES)
    if count_files is None:
        return [None] * len(pairs)
    names = [_name(path) for pair in pairs for path in pair]
    starts = np.array([0, *accumulate(map(len, names[:-1]))]).reshape(-1, 2)
    found = np.empty((len(pairs), 4), np.int64)
    hashes = np.empty((len(pairs), 2, _HASH_BYTES), np.uint8)
    counts = np.empty((len(pairs), spec.num_classes, spec.num_classes), np.int64)
    ignore = spec.ignore_index if spec.ignore_index is not None and 0 <= spec.ignore_index < _VALUES else 0
    joined = np.frombuffer(bytearray().join(names), np.uint8)
    count_files(joined, starts, _memory(), most, ignore, found, hashes, counts)
    return list(map(_counts, found.tolist(), hashes, counts))


def _counts(found: list[int], hashes: NDArray[np.uint8], counts: NDArray[np.int64]) -> PlainCounts | None:
    done, height, width, checksum = found
    if not done:
        return None
    digests = hashes.tobytes().hex()
    half = len(digests) // 2
    sha256 = digests[:half], digests[half:]
    return PlainCounts(counts=counts, target_crc32=checksum, height=height, width=width, sha256=sha256)


def _name(path: Path) -> bytes:
    """The name of a file that may be a PNG, as the system takes it; one that is no file's for any other."""
    text = str(path)
    return os.fsencode(text) + b"\0" if text.endswith(".png") and "\0" not in text else b"\0"


def _memory() -> NDArray[np.uint8]:
    """Memory that this thread keeps: fresh pages cost as much as inflating and counting."""
    if _LOCAL.memory is None:
        _LOCAL.memory = np.empty((4, _MOST_BYTES + ROOM), np.uint8)
    return _LOCAL.memory


@cache
def _compiled() -> Callable[..., None] | None:
    """The compiled loop; None where the libraries that it calls are out of reach."""
    try:
        from segmeter.evaluation.plain._files import count_files  # numba takes a moment to load
    except ImportError:
        return None
    return count_files
