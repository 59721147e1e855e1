"""Columns of numbers per case whose sums give scores, made one at a time, as all of them together may not fit.

A mean over cases is three sums: of the finite values, of how many are defined, and of how many are infinite. It is
infinite as soon as one value is, as where an object was missed; such means are ordered by the share of values that are
infinite, then by the mean of the others. Axis letters: N cases, M columns, R sums, V values per case.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segmeter.metrics.arrays import FloatArray, divide, minus


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

    @classmethod
    def join(cls, *parts: "Columns") -> "Columns":
        """Columns (N, M) of parts side by side, as `np.concatenate` joins arrays."""
        places = [(part, place) for part in parts for place in range(part.width)]
        dtype = np.result_type(*(part.dtype for part in parts))

        def make(number: int) -> NDArray[Any]:
            part, place = places[number]
            return part.make(place).astype(dtype, copy=False)

        return cls(count=parts[0].count, shape=(len(places),), dtype=dtype, make=make)

    def of_cases(self, members: NDArray[np.bool_]) -> "Columns":
        """The same columns as float64, with zeros for the other cases."""
        weights = members.astype(np.float64)
        return replace(self, dtype=weights.dtype, make=lambda place: self.make(place) * weights)

    @property
    def width(self) -> int:
        """How many columns there are."""
        return math.prod(self.shape)

    def __iter__(self) -> Iterator[NDArray[Any]]:
        return map(self.make, range(self.width))

    def sums(self) -> NDArray[Any]:
        """The sum of each column (M,), added up in the order of the cases."""
        return np.array([np.add.accumulate(column)[-1] for column in self])


def mean_columns(values: FloatArray) -> FloatArray:
    """Columns (N, 3 V) whose sums carry the means of values (N, V): finite sums, defined, infinite."""
    finite = np.where(np.isfinite(values), values, 0.0)
    return np.concatenate([finite, ~np.isnan(values), np.isinf(values)], axis=1)


def lazy_means(count: int, values: Sequence[Callable[[], FloatArray]]) -> Columns:
    """Do what `mean_columns` does for values (N, V), each a function that gives one of their columns (N,)."""

    def make(place: int) -> FloatArray:
        kind, number = divmod(place, len(values))
        found = values[number]()
        parts = (lambda: np.where(np.isfinite(found), found, 0.0), lambda: ~np.isnan(found), lambda: np.isinf(found))
        return np.asarray(parts[kind](), np.float64)

    return Columns(count=count, shape=(3 * len(values),), dtype=np.dtype(np.float64), make=make)


def mean_of_columns(sums: FloatArray) -> FloatArray:
    """Means (R, V) of the defined values; inf as soon as one is infinite, NaN where none is defined."""
    return join_means(split_means(sums))


def split_means(sums: FloatArray) -> FloatArray:
    """Split sums (R, 3 V) of `mean_columns` into shares of infinite values, and means of the others: (2, R, V)."""
    finite, defined, infinite = np.split(sums, 3, axis=1)
    return np.stack([divide(infinite, defined), divide(finite, defined - infinite)])


def join_means(parts: FloatArray) -> FloatArray:
    """Give the means themselves from what `split_means` gives: infinite as soon as one value is."""
    return np.where(parts[0] > 0, np.inf, parts[1])


def minus_means(new: FloatArray, base: FloatArray) -> FloatArray:
    """Subtract what `split_means` gives, new minus base.

    The one with the larger share of infinite values is larger, by inf. With equal shares the other values decide.
    """
    apart = new[0] - base[0]
    finite = np.where((new[0] == 1) & (base[0] == 1), 0.0, minus(new[1], base[1]))
    return np.where(np.abs(apart) > 0, np.copysign(np.inf, apart), finite)
