"""The two files of a case -> its counts, where both are plain label PNGs; all else is left to the usual way."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from segmeter.classes import ClassSpec
from segmeter.data.files.png import inflate_plain, open_plain
from segmeter.metrics.pixels.target_hash import hash_target

_VALUES = 256  # of a sample
_MOST_CLASSES = _VALUES - 2  # the joint numbers of classes must fit uint16


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
    return not (spec.is_multilabel or spec.count_invalid) and spec.num_classes <= _MOST_CLASSES


def count_plain(target: Path, labels: Path, spec: ClassSpec, *, max_pixels: int) -> PlainCounts | None:
    """Count two small label PNGs.

    Parameters
    ----------
    target, labels
        Reference and prediction.
    spec
        The classes, for which `can_count` holds.
    max_pixels
        The most pixels of a file, checked before it is inflated.

    Returns
    -------
    PlainCounts, or None where a file is anything else or not in order, sizes differ, or a value is outside the classes,
    even where it is ignored: the usual way says what is wrong.
    """
    first = open_plain(target, max_pixels=max_pixels, use="target")
    second = None if first is None else open_plain(labels, max_pixels=max_pixels, use="labels")
    if first is None or second is None:
        return None
    height, width = first.layout.height, first.layout.width
    rows = inflate_plain(first, second) if (second.layout.height, second.layout.width) == (height, width) else None
    if rows is None:
        return None
    from segmeter.evaluation.plain._kernels import count_rows  # numba takes a moment to load

    counts = np.empty((spec.num_classes, spec.num_classes), np.int64)
    samples = rows[0][: height * width].reshape(height, width)  # over rows that are counted: less to keep in the cache
    ignore = spec.ignore_index if spec.ignore_index is not None and 0 <= spec.ignore_index < _VALUES else 0
    if not count_rows(*rows, ignore, samples, counts):
        return None
    return PlainCounts(
        counts=counts,
        target_crc32=hash_target(samples, spec),
        height=height,
        width=width,
        sha256=(first.sha256, second.sha256),
    )
