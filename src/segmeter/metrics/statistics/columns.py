"""Provides the bootstrap's input: columns of numbers per case to add up, and how often each resample draws a case.

Columns are computed one at a time, because all of them together may not fit into memory. A mean over cases is computed
from three sums: the sum of the finite values, the number of defined values, and the number of infinite values. It is
infinite as soon as one value is. Axis letters: N cases, M columns, R sums, V values per case.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from segmeter.checks import expected, whole_number
from segmeter.errors import InputError
from segmeter.metrics.arrays import FloatArray, divide, minus
from segmeter.parallel import map_in_threads
from segmeter.threads import count_cores


@dataclass(frozen=True, kw_only=True)
class Columns:
    """An array (N, ...) that makes one column at a time.

    Parameters
    ----------
    count
        N.
    shape
        Shape of the numbers of one case.
    dtype
        Dtype of each column.
    make
        Returns the numbers (N,) of a column, given its index in the flattened `shape`.
    """

    count: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    make: Callable[[int], NDArray[Any]]

    @classmethod
    def of(cls, array: NDArray[Any]) -> "Columns":
        """Wrap the columns of an array (N, ...)."""
        flat = array.reshape(len(array), -1)
        return cls(count=len(array), shape=array.shape[1:], dtype=array.dtype, make=lambda index: flat[:, index])

    @classmethod
    def join(cls, *parts: "Columns") -> "Columns":
        """Put the columns (N, M) of parts side by side, as `np.concatenate` joins arrays."""
        sources = [(part, index) for part in parts for index in range(part.width)]
        dtype = np.result_type(*(part.dtype for part in parts))

        def make(index: int) -> NDArray[Any]:
            part, index_in_part = sources[index]
            return part.make(index_in_part).astype(dtype, copy=False)

        return cls(count=parts[0].count, shape=(len(sources),), dtype=dtype, make=make)

    def of_cases(self, members: NDArray[np.bool_]) -> "Columns":
        """Return the same columns as float64, with zeros for the other cases."""
        weights = members.astype(np.float64)
        return replace(self, dtype=weights.dtype, make=lambda index: self.make(index) * weights)

    @property
    def width(self) -> int:
        """The number of columns."""
        return math.prod(self.shape)

    def __iter__(self) -> Iterator[NDArray[Any]]:
        return map(self.make, range(self.width))

    def sums(self) -> NDArray[Any]:
        """Sum each column (M,) in the order of the cases."""
        return np.array([np.add.accumulate(column)[-1] for column in self])


def mean_columns(values: FloatArray) -> FloatArray:
    """Make the columns (N, 3 V) for means of values (N, V): finite values, whether defined, and whether infinite."""
    finite = np.where(np.isfinite(values), values, 0.0)
    return np.concatenate([finite, ~np.isnan(values), np.isinf(values)], axis=1)


def mean_of_columns(sums: FloatArray) -> FloatArray:
    """Compute means (R, V) of the defined values: inf if one value is infinite, NaN if none is defined."""
    return join_means(split_means(sums))


def split_means(sums: FloatArray) -> FloatArray:
    """Split sums (R, 3 V) of `mean_columns` into shares of infinite values and means of the others: (2, R, V)."""
    finite, defined, infinite = np.split(sums, 3, axis=1)
    return np.stack([divide(infinite, defined), divide(finite, defined - infinite)])


def join_means(parts: FloatArray) -> FloatArray:
    """Turn the result of `split_means` into means, which are infinite if any value is."""
    return np.where(parts[0] > 0, np.inf, parts[1])


def minus_means(new: FloatArray, base: FloatArray) -> FloatArray:
    """Subtract results of `split_means`, new minus base.

    The mean with the larger share of infinite values is larger by inf. If the shares are equal, the other values
    decide.
    """
    infinite = new[0] - base[0]
    finite = np.where((new[0] == 1) & (base[0] == 1), 0.0, minus(new[1], base[1]))
    return np.where(np.abs(infinite) > 0, np.copysign(np.inf, infinite), finite)


Interval = Literal["expanded", "bca", "percentile"]
INTERVALS: tuple[Interval, ...] = get_args(Interval)
MOST_RESAMPLES = 10**8
MOST_UNITS = 20_000  # Up to this many units are drawn one by one; more are pooled at random first, see `draw_pools`.

_DRAWN = 1 << 18  # A block has about this many multiplicities, so that they stay in the caches.
_LEAST_ROWS = 64  # A block has at least this many resamples, as all columns of all cases are read once per block.
_MANY_DRAWS = 1 << 22  # With fewer draws, NumPy is done before the compiled loop is loaded.
_POOLS = 0x706F6F6C  # Gives the pools a random stream other than that of the draws.
_MOST_THREADS = 4  # At most this many threads draw and sum; one thread scores the sums.


def validated_draws(where: str, resamples: Any, seed: Any) -> tuple[int, int]:
    """Check the number of resamples and the seed, and return both as ints."""
    resamples, seed = whole_number(where, "resamples", resamples), whole_number(where, "seed", seed)
    if not 1 <= resamples <= MOST_RESAMPLES:
        raise InputError(expected(where, "resamples", f"between 1 and {MOST_RESAMPLES}", resamples))
    if seed < 0:
        raise InputError(expected(where, "seed", ">= 0", seed))
    return resamples, seed


def to_grid(column: NDArray[Any]) -> FloatArray:
    """Round to multiples of a power of two, so coarse that sums of N draws are exact; integers stay as they are."""
    values: FloatArray = column.astype(np.float64)
    largest = max(values.max(initial=0), -values.min(initial=0)) * max(len(values), 1)
    quantum = np.exp2(np.ceil(np.log2(max(largest, np.finfo(float).tiny))) - 52)
    values /= quantum  # in place: with many cases, these are the largest arrays
    np.round(values, out=values)
    values *= quantum
    return values


def count_pools(units: int) -> int:
    """Return how many pools of equal size represent the units: at most `MOST_UNITS`, or one for each unit.

    Examples
    --------
    >>> count_pools(20_000), count_pools(30_000), count_pools(100_000)
    (20000, 15000, 20000)
    """
    size = -(-units // MOST_UNITS) or 1
    return -(-units // size)


def draw_pools(count: int, pools: int, seed: int, *, stream: Sequence[int] = (_POOLS,)) -> NDArray[np.int64]:
    """Put units into random pools whose sizes differ by at most one, and return the pool of each unit.

    Resampling pools takes the same time for any number of units. As pools are random, the variance between them matches
    the variance of independent units, up to a relative error of about sqrt(2 / P) for P pools: 1 % for `MOST_UNITS`.
    With `count_pools`, few pools lack a unit, so this holds for totals too, such as numbers of objects.
    """
    order = np.argsort(np.random.PCG64([seed, *stream]).random_raw(count), kind="stable")
    pool_of = np.empty(count, np.int64)
    pool_of[order] = np.arange(count) % pools
    return pool_of


def map_weights(
    work: Callable[[FloatArray], FloatArray], n_units: int, resamples: int, seed: int
) -> Iterator[FloatArray]:
    """Map `work` over blocks of multiplicities (b, N), in order: each row is one multinomial draw of N among N.

    An index is computed from 32 bits of the raw stream by multiplication (with a bias below N / 2**32). NumPy promises
    the same stream in all versions, but not the same distributions. Each row has a fixed place in the stream, so
    threads can draw different rows at the same time.
    """
    is_long = resamples * n_units >= _MANY_DRAWS
    block_rows = max(_LEAST_ROWS, _DRAWN // n_units)
    words = (n_units + 1) // 2  # per row

    def draw(rows: range) -> FloatArray:
        source = np.random.PCG64(seed).advance(rows.start * words)
        raw = source.random_raw(len(rows) * words).astype("<u8", copy=False)
        halves = raw.view("<u4").reshape(len(rows), 2 * words)[:, :n_units]
        if is_long:
            from segmeter.metrics._kernels import tally_draws

            weights = np.empty(halves.shape)
            tally_draws(halves, weights)
            return work(weights)
        drawn = ((halves * np.uint64(n_units)) >> np.uint64(32)).astype(np.intp)
        drawn += np.arange(len(rows))[:, None] * n_units
        counts = np.bincount(drawn.reshape(-1), minlength=len(rows) * n_units)
        return work(counts.reshape(halves.shape).astype(np.float64))

    blocks = (range(start, min(start + block_rows, resamples)) for start in range(0, resamples, block_rows))
    threads = min(count_cores(), _MOST_THREADS) if is_long else 1
    if threads == 1:
        return map(draw, blocks)
    # Results may be large, so only few are computed ahead.
    return map_in_threads(draw, blocks, threads=threads, ahead=threads + 1, name="resample")
