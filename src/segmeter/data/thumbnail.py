"""Makes a thumbnail of an image whose lines are read once, from top to bottom."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segmeter.data.files.array import LazyArray, Lines

LONGEST = 1024  # side of a thumbnail, pixels


def thumbnail_step(height: int, width: int) -> int:
    """Return the reduction factor of a thumbnail, the same for both axes.

    Examples
    --------
    >>> thumbnail_step(1024, 800), thumbnail_step(100, 1025)
    (1, 2)
    """
    return math.ceil(max(height, width) / LONGEST)


class Thumbnail:
    """Every n-th line and column of bands that come from top to bottom; `axis` is that of lines, from the end."""

    def __init__(self, stride: int, axis: int) -> None:
        self._stride, self._axis = stride, axis
        self._rows: list[NDArray[Any]] = []
        self._next = 0

    def add(self, top: int, rows: NDArray[Any]) -> None:
        """Take the thumbnail's part of a band that begins at line `top`; lines that came before are skipped."""
        places = np.arange(self._next, top + rows.shape[self._axis], self._stride) - top
        if len(places):
            columns = range(0, rows.shape[self._axis + 1], self._stride)
            self._rows.append(np.take(np.take(rows, places, self._axis), columns, self._axis + 1))
            self._next += len(places) * self._stride

    def pixels(self) -> NDArray[Any]:
        """Return the whole thumbnail."""
        return np.concatenate(self._rows, self._axis)


def tapped(array: LazyArray, picture: Thumbnail) -> Lines:
    """Return the lines of an image, and collect a thumbnail from whatever is read."""

    def read(start: int, stop: int) -> NDArray[Any]:
        pixels = array.read(start, stop)
        picture.add(start, pixels)
        return pixels

    return Lines(array.shape, array.dtype, read)
