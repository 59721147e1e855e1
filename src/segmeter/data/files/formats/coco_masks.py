"""Reads the masks of COCO's objects from polygons or run lengths; pycocotools fills polygons in a reader process."""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segmeter.data.files.formats.drawn import check_corners
from segmeter.data.files.formats.library import need
from segmeter.data.files.formats.reader_process import read_apart

_MOST_SHIFT = 60  # bits before the last digit of a number


def read_masks(path: Path, segmentations: list[Any], shape: tuple[int, int]) -> Iterator[NDArray[np.bool_]]:
    """Masks of polygons, or of run lengths as text or list, of the whole image, one after another.

    Raises
    ------
    DataError, ValueError, KeyError, TypeError
        One is damaged, too long or of another size.
    """
    drawn = [_polygons(path, each, shape) for each in segmentations if isinstance(each, list)]
    if drawn:
        size = sum(one.nbytes for polygons in drawn for one in polygons)
        filled = iter(read_apart(path, _fill, drawn, shape, size=size, max_pixels=math.prod(shape)))
    yield from (_mask(next(filled) if isinstance(each, list) else each, shape) for each in segmentations)


def _polygons(path: Path, polygons: list[Any], shape: tuple[int, int]) -> list[NDArray[np.float64]]:
    """Polygons as (x, y, x, y, ...), their corners and length checked.

    Raises
    ------
    DataError, ValueError
        One has too few corners, one outside of the image, or an endless outline.
    """
    found = [np.array(one, np.float64) for one in polygons]
    if not found or any(one.ndim != 1 or len(one) < 6 or len(one) % 2 for one in found):
        raise ValueError("a polygon of fewer than three finite corners")
    for one in found:
        corners = one.reshape(-1, 2)
        if not np.isfinite(one).all():
            raise ValueError("a polygon of fewer than three finite corners")
        check_corners(path, corners, shape)
    return found


def _fill(drawn: list[list[NDArray[np.float64]]], shape: tuple[int, int]) -> list[dict[str, Any]]:
    """Run lengths of objects of several polygons each, in the reader process."""
    mask = need("pycocotools.mask", "coco", "polygons of COCO")
    merged = [mask.merge(mask.frPyObjects([one.tolist() for one in polygons], *shape)) for polygons in drawn]
    return [{"size": each["size"], "counts": each["counts"].decode()} for each in merged]


def _mask(runs: Mapping[str, Any], shape: tuple[int, int]) -> NDArray[np.bool_]:
    """The mask of run lengths, whose sum is one of Python's: that of int64 may wrap around to any number."""
    counts = expand_runs(runs["counts"]) if isinstance(runs["counts"], str) else runs["counts"]
    whole = all(type(each) is int and each >= 0 for each in counts)
    if not whole or tuple(runs["size"]) != shape or sum(counts) != math.prod(shape):
        raise ValueError(f"run lengths of another size than {shape}")
    return np.repeat(np.arange(len(counts)) % 2 == 1, counts).reshape(shape[::-1]).T


def expand_runs(text: str) -> list[int]:
    """Run lengths from COCO's text: the inverse of `segmeter.export.objects.compress_runs`.

    Raises
    ------
    ValueError
        It holds other characters, a number of more digits than any that int64 holds, or ends within a number.

    Examples
    --------
    >>> expand_runs("52203")
    [5, 2, 2, 2, 5]
    """
    runs: list[int] = []
    value = shift = 0
    for character in text:
        digit = ord(character) - 48
        if not 0 <= digit < 64 or shift > _MOST_SHIFT:
            raise ValueError("run lengths as a text that can't be read")
        value |= (digit & 31) << shift
        shift += 5
        if not digit & 32:
            value -= (digit & 16) << (shift - 4)  # the last digit's fifth bit is the sign
            runs.append(value + (runs[-2] if len(runs) > 2 else 0))
            value = shift = 0
    if shift:
        raise ValueError("run lengths as a text that ends within a number")
    return runs
