"""columns of per-case sums -> intervals, by resampling cases or clusters of cases.

Every aggregate here is a function of column sums: dataset scores of summed margins, means of summed values. A resample
is then a vector of multiplicities, and all resamples together are one matrix product. The columns are first rounded to
a grid on which every sum is exact in float64 (relative error below 1e-12), so that the result is the same to the bit
for any number of threads and any BLAS.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from segmeter.checks import expected
from segmeter.errors import InputError
from segmeter.metrics.overlap import FloatArray, divide

Interval = Literal["bca", "percentile"]
Statistic = Callable[[FloatArray], FloatArray]

FEW_CASES = 50  # below this, intervals from resampling are too narrow to lean on

_BLOCK = 1 << 20  # multiplicities held at a time


@dataclass(frozen=True, kw_only=True)
class Resampled:
    """Statistics with their uncertainty.

    Parameters
    ----------
    estimate : (S,)
        Of the cases as they are.
    low, high : (S,)
        The interval's ends; each is one of the resampled values. NaN with fewer than two cases or clusters.
    replicates : (B, S)
        The statistics of each resample.
    n_units
        Cases, or clusters, that were resampled.
    """

    estimate: FloatArray
    low: FloatArray
    high: FloatArray
    replicates: FloatArray
    n_units: int


def bootstrap(
    columns: NDArray[Any],
    statistic: Statistic,
    *,
    resamples: int = 10_000,
    seed: int = 0,
    interval: Interval = "bca",
    level: float = 0.95,
    clusters: Sequence[str] | None = None,
) -> Resampled:
    """Resample cases with replacement and find the interval of any function of column sums.

    Parameters
    ----------
    columns : (N, M), finite
        One row per case. Integers are summed exactly.
    statistic
        Maps column sums (R, M), float64, to statistics (R, S); NaN is undefined and left out of the interval.
    resamples
        B, >= 1.
    seed
        The same seed gives the same bits, whatever the NumPy version or the number of threads.
    interval
        "bca" (Efron 1987) or "percentile". Neither suits a median of few cases.
    level
        Coverage, between 0 and 1.
    clusters
        One label per case; cases of a label are drawn together.

    Returns
    -------
    Resampled

    Raises
    ------
    InputError
        Columns are not a finite matrix with a row, B or the level is out of range, or clusters have another length.

    References
    ----------
    Efron 1987, "Better bootstrap confidence intervals", J. Am. Stat. Assoc. 82, 171-185 (BCa).

    Examples
    --------
    >>> columns = np.array([[3, 4], [1, 2], [8, 9], [5, 5]])  # common pixels and union of four cases
    >>> found = bootstrap(columns, lambda sums: sums[:, :1] / sums[:, 1:], resamples=1000)
    >>> found.estimate, found.n_units
    (array([0.85]), 4)
    >>> bool(found.low[0] < 0.85 < found.high[0])
    True
    """
    _check(columns, resamples, level, clusters)
    units = to_grid(sum_clusters(columns, clusters))
    total = units.sum(axis=0)
    estimate = statistic(total[None])[0]
    parts = [statistic(weights @ units) for weights in draw_weights(len(units), resamples, seed)]
    replicates = np.concatenate(parts)
    if len(units) < 2:
        low = high = np.full(estimate.shape, np.nan)
        return Resampled(estimate=estimate, low=low, high=high, replicates=replicates, n_units=len(units))
    tails = np.array([(1 - level) / 2, (1 + level) / 2])[:, None]
    if interval == "bca":
        tails = _bca_tails(tails, estimate, replicates, _acceleration(units, total, statistic, estimate))
    low, high = _order_statistics(replicates, np.broadcast_to(tails, (2, len(estimate))))
    undefined = np.isnan(estimate)
    low[undefined] = high[undefined] = np.nan
    return Resampled(estimate=estimate, low=low, high=high, replicates=replicates, n_units=len(units))


def draw_weights(n_units: int, resamples: int, seed: int) -> Iterator[FloatArray]:
    """Yield blocks of multiplicities (b, N): each row is one multinomial draw of N among N.

    Indices come from the raw 64-bit stream, 32 bits each by multiplication (a bias below N / 2**32), since NumPy
    promises that stream, but not its distributions, for all versions.
    """
    source = np.random.PCG64(seed)
    rows = max(1, _BLOCK // n_units)
    words = (n_units + 1) // 2
    for start in range(0, resamples, rows):
        count = min(rows, resamples - start)
        raw = source.random_raw(count * words).astype("<u8", copy=False)
        halves = raw.view("<u4").reshape(count, 2 * words)[:, :n_units].astype(np.uint64)
        drawn = ((halves * np.uint64(n_units)) >> np.uint64(32)).astype(np.intp)
        drawn += np.arange(count)[:, None] * n_units
        tally = np.bincount(drawn.reshape(-1), minlength=count * n_units)
        yield tally.reshape(count, n_units).astype(np.float64)


def to_grid(columns: NDArray[Any]) -> FloatArray:
    """Round each column to a power of two so coarse that sums of N draws are exact; integers stay as they are."""
    values: FloatArray = columns.astype(np.float64)
    largest = np.maximum(values.max(axis=0, initial=0), -values.min(axis=0, initial=0)) * max(len(values), 1)
    quantum = np.exp2(np.ceil(np.log2(np.maximum(largest, np.finfo(float).tiny))) - 52)
    values /= quantum  # in place: with many cases this is the largest array there is
    np.round(values, out=values)
    values *= quantum
    return values


def sum_clusters(columns: NDArray[Any], clusters: Sequence[str] | None) -> NDArray[Any]:
    """Sums (U, M) of the rows of each cluster, by ascending label; the columns (N, M) themselves without clusters."""
    if clusters is None:
        return columns
    labels, index = np.unique(np.asarray(clusters), return_inverse=True)
    sums = np.zeros((len(labels), columns.shape[1]), columns.dtype)
    np.add.at(sums, index, columns)
    return sums


def mean_columns(values: FloatArray) -> FloatArray:
    """Columns (N, 3 V) whose sums carry the means of values (N, V): finite sums, defined, infinite."""
    finite = np.where(np.isfinite(values), values, 0.0)
    return np.concatenate([finite, ~np.isnan(values), np.isinf(values)], axis=1)


def mean_of_columns(sums: FloatArray) -> FloatArray:
    """Means (R, V) of the defined values; inf as soon as one is infinite, NaN where none is defined."""
    finite, defined, infinite = np.split(sums, 3, axis=1)
    return np.where(infinite > 0, np.inf, divide(finite, defined))


def _check(columns: NDArray[Any], resamples: int, level: float, clusters: Sequence[str] | None) -> None:
    problems = []
    if columns.ndim != 2 or not len(columns) or not np.isfinite(columns).all():
        problems.append(expected("bootstrap", "columns", "to be finite, (N >= 1, M)", columns.shape))
    if resamples < 1:
        problems.append(expected("bootstrap", "resamples", ">= 1", resamples))
    if not 0 < level < 1:
        problems.append(expected("bootstrap", "level", "between 0 and 1", level))
    if clusters is not None and len(clusters) != len(columns):
        problems.append(expected("bootstrap", "clusters", f"to be {len(columns)} labels", len(clusters)))
    if problems:
        raise InputError(problems)


def _blocks(units: FloatArray) -> Iterator[FloatArray]:
    rows = max(1, _BLOCK // (8 * max(units.shape[1], 1)))
    for start in range(0, len(units), rows):
        yield units[start : start + rows]


def _acceleration(units: FloatArray, total: FloatArray, statistic: Statistic, estimate: FloatArray) -> FloatArray:
    """Skewness of the statistics without one unit, over 6: sums of powers around the estimate, no N x S array."""
    powers = np.zeros((4, len(estimate)))
    for part in _blocks(units):
        with np.errstate(invalid="ignore"):  # inf - inf is NaN, and left out
            change = estimate - statistic(total - part)
        finite = np.isfinite(change)
        change = np.where(finite, change, 0.0)
        powers += [finite.sum(axis=0), change.sum(axis=0), (change**2).sum(axis=0), (change**3).sum(axis=0)]
    n, first, second, third = powers
    mean = divide(first, n)
    spread = np.maximum(second - n * mean**2, 0)
    return np.nan_to_num(divide(third - 3 * mean * second + 2 * n * mean**3, 6 * spread**1.5))


def _bca_tails(tails: FloatArray, estimate: FloatArray, replicates: FloatArray, skewness: FloatArray) -> FloatArray:
    """Shift the tails (2, 1) for bias and skewness, per statistic: (2, S)."""
    defined = (~np.isnan(replicates)).sum(axis=0)
    below = (replicates < estimate).sum(axis=0) + 0.5 * (replicates == estimate).sum(axis=0)
    share = divide(below, defined)
    usable = (share > 0) & (share < 1)  # else every resample lies on one side, and nothing can be corrected
    bias = ndtri(np.where(usable, share, 0.5))
    shifted = bias + ndtri(tails)
    adjusted = ndtr(bias + divide(shifted, 1 - skewness * shifted))
    return np.where(usable & ~np.isnan(adjusted), adjusted, tails)


def _order_statistics(replicates: FloatArray, tails: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Take the outer neighbour of each tail: no value between a finite and an infinite one is made up."""
    ranked = np.sort(replicates, axis=0)  # NaN goes last
    last = np.maximum((~np.isnan(ranked)).sum(axis=0) - 1, 0)
    low = np.floor(tails[0] * last).astype(np.int64)
    high = np.ceil(tails[1] * last).astype(np.int64)
    column = np.arange(ranked.shape[1])
    return ranked[low, column], ranked[high, column]
