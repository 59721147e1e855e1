"""Makes a small picture of an image whose lines are read once from top to bottom."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segmeter.data.files.array import LazyArray, Lines

LONGEST = 1024  # side of a small picture, pixels


def thumbnail_step(height: int, width: int) -> int:
    """Reduction factor of a small picture, the same for rows and columns.

    Examples
    --------
    >>> thumbnail_step(1024, 800), thumbnail_step(100, 1025)
    (1, 2)
    """
    return math.ceil(max(height, width) / LONGEST)


class Thumbnail:
    """Every n-th row and column of what comes from top to bottom; `axis` is that of rows, counted from the end."""

    def __init__(self, stride: int, axis: int) -> None:
        self._stride, self._axis = stride, axis
        self._rows: list[NDArray[Any]] = []
        self._next = 0

    def add(self, top: int, rows: NDArray[Any]) -> None:
        """Take what belongs to the picture out of rows that begin at `top`; rows that came before are passed over."""
        places = np.arange(self._next, top + rows.shape[self._axis], self._stride) - top
        if len(places):
            columns = range(0, rows.shape[self._axis + 1], self._stride)
            self._rows.append(np.take(np.take(rows, places, self._axis), columns, self._axis + 1))
            self._next += len(places) * self._stride

    def pixels(self) -> NDArray[Any]:
        """The whole picture."""
        return np.concatenate(self._rows, self._axis)


def tapped(array: LazyArray, picture: Thumbnail) -> Lines:
    """The lines of an image, of which a small picture is kept."""

    def read(start: int, stop: int) -> NDArray[Any]:
        pixels = array.read(start, stop)
        picture.add(start, pixels)
        return pixels

    return Lines(array.shape, array.dtype, read)
