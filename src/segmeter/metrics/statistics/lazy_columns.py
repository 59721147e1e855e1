"""Columns of numbers per case that are made one at a time, as all of them together may not fit.

Axis letters: N cases, M columns, V values per case.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from segmeter.metrics.arrays import FloatArray

_AT_ONCE = 4


@dataclass(frozen=True, kw_only=True)
class Columns:
    """An array (N, ...) of which one column exists at a time.

    Parameters
    ----------
    count
        N.
    shape
        Of the numbers of one case.
    dtype
        Of each column.
    make
        Index of a column, counted as in the flat `shape`, to its numbers (N,).
    """

    count: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    make: Callable[[int], NDArray[Any]]

    @classmethod
    def of(cls, array: NDArray[Any]) -> "Columns":
        """The columns of an array (N, ...)."""
        flat = array.reshape(len(array), -1)
        return cls(count=len(array), shape=array.shape[1:], dtype=array.dtype, make=lambda place: flat[:, place])

    @property
    def width(self) -> int:
        """How many columns there are."""
        return math.prod(self.shape)

    def __iter__(self) -> Iterator[NDArray[Any]]:
        return map(self.make, range(self.width))

    def blocks(self) -> Iterator[NDArray[Any]]:
        """Arrays (N, m) of some columns at a time; of one alone only where there are no others.

        NumPy adds up single columns in another order, and so with other last digits.
        """
        for places in np.array_split(np.arange(self.width), -(-self.width // _AT_ONCE)) if self.width else ():
            yield np.stack([self.make(int(place)) for place in places], axis=1)

    def array(self) -> NDArray[Any]:
        """All of them at once."""
        found = np.empty((self.count, self.width), self.dtype)
        for place, column in enumerate(self):
            found[:, place] = column
        return found.reshape(self.count, *self.shape)


def join_columns(parts: Sequence[Columns]) -> Columns:
    """Columns (N, M) of parts side by side, as `np.concatenate` joins arrays."""
    places = [(part, place) for part in parts for place in range(part.width)]
    dtype = np.result_type(*(part.dtype for part in parts))

    def make(number: int) -> NDArray[Any]:
        part, place = places[number]
        return part.make(place).astype(dtype, copy=False)

    return Columns(count=parts[0].count, shape=(len(places),), dtype=dtype, make=make)


def held_columns(count: int, columns: Sequence[NDArray[Any]], dtype: DTypeLike) -> Columns:
    """Columns (N,) that are there, as numbers of another type."""
    wanted = np.dtype(dtype)
    return Columns(
        count=count,
        shape=(len(columns),),
        dtype=wanted,
        make=lambda place: columns[place].astype(wanted, copy=False),
    )


def lazy_means(count: int, values: Sequence[Callable[[], FloatArray]], *, bounded: bool = False) -> Columns:
    """What `mean_columns` makes of values (N, V), each a function that gives one of their columns (N,)."""

    def make(place: int) -> FloatArray:
        kind, number = divmod(place, len(values))
        found = values[number]()
        parts = (lambda: np.where(np.isfinite(found), found, 0.0), lambda: ~np.isnan(found), lambda: np.isinf(found))
        return np.asarray(parts[kind](), np.float64)

    kinds = 2 if bounded else 3
    return Columns(count=count, shape=(kinds * len(values),), dtype=np.dtype(np.float64), make=make)
