"""Intervals of scores, by resampling cases or clusters of cases.

Every aggregate here is a function of column sums: scores of the data set come from summed class totals, means from
summed values. A resample is a vector of multiplicities, so all resamples together are one matrix product. Columns are
first rounded to a grid on which every sum is exact in float64 (relative error below 1e-12). The result is therefore bit
for bit the same for any number of threads and any BLAS.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segmeter.checks import expected, real_number, require_kind, require_name, shown
from segmeter.errors import InputError
from segmeter.metrics.arrays import FloatArray, json_number_or_inf, validated_numbers
from segmeter.metrics.statistics.clusters import sum_by
from segmeter.metrics.statistics.columns import (
    INTERVALS,
    Columns,
    Interval,
    count_pools,
    draw_pools,
    map_weights,
    mean_columns,
    mean_of_columns,
    to_grid,
    validated_draws,
)
from segmeter.metrics.statistics.intervals import Influence, find_ends, find_p, measure_influence

Statistic = Callable[[NDArray[Any]], FloatArray]

_LANES = 8
_BLOCK = 1 << 20  # Score this many bytes of sums at a time.
_NUMBERS = "to be finite numbers (N >= 1, ...)"
_EXACT = 2.0**53  # float64 holds every whole number up to this.


@dataclass(frozen=True, kw_only=True)
class Resampled:
    """Statistics with their uncertainty.

    Parameters
    ----------
    estimate : () or (S,), as the statistic returns
        The statistics of the cases as they are.
    low, high : as the estimate
        The ends of the interval. Each is one of the resampled values. They are NaN if fewer than 5 cases or clusters
        have the statistic (for a class's IoU: contain the class), or if it is undefined without one of them.
    replicates : (B,) or (B, S)
        The statistics of each resample.
    n_units
        Number of cases or clusters that were resampled, in `count_pools` random pools.
    p_of_zero : as the estimate
        Two-sided p-values of the value 0, below 0.05 if the 95 % interval excludes it. NaN unless requested, and where
        there is no interval.
    influence
        How strongly single units decide each statistic, in the order of the flattened `estimate`.
    """

    estimate: FloatArray
    low: FloatArray
    high: FloatArray
    replicates: FloatArray
    n_units: int
    p_of_zero: FloatArray
    influence: Influence

    def ends(self, index: Any) -> list[float | str | None]:
        """Return the interval of one of the statistics for JSON."""
        return [json_number_or_inf(self.low[index]), json_number_or_inf(self.high[index])]


def bootstrap(
    columns: NDArray[Any],
    statistic: Statistic,
    *,
    resamples: int = 10_000,
    seed: int = 0,
    interval: Interval = "expanded",
    level: float = 0.95,
    clusters: Sequence[str] | None = None,
    test: bool = False,
) -> Resampled:
    """Resample cases with replacement and find the interval of any function of sums over cases.

    Parameters
    ----------
    columns : (N, ...), finite
        The numbers of each case that are summed, for example its counts (N, K, K). Integers are summed exactly; those
        of a column must add up to at most 2**53.
    statistic
        Maps sums (R, ...) of R resamples to one value (R,) or several (R, S) each. NaN is undefined and left out of the
        interval. The sums are int64 if the columns are integers, else float64.
    resamples
        B, 1 to 10**8. Below about 1000 the intervals are too narrow, as their ends lie far out in the tails.
    seed
        At least 0. The same seed gives bit for bit the same result, whatever the NumPy version or number of threads.
    interval
        "expanded": percentiles whose tails are widened by Student's t, with the degrees of freedom that the influence
        of single cases leaves. Each end is the outer one of those with and without correction for bias. "bca" (Efron
        1987) and "percentile" are too narrow for few or uneven cases, see docs/statistics.md. No method suits a median
        of few cases.
    level
        Coverage, between 0 and 1.
    clusters
        One label per case; cases with the same label are drawn together.
    test
        Whether to compute p-values of the value 0, as for a difference.

    Returns
    -------
    Resampled

    Raises
    ------
    InputError
        Columns are not finite numbers of one case or more, or the statistic does not give one value or row per
        resample. B, seed or level is out of range, or clusters are not one label per case.

    References
    ----------
    Efron 1987, "Better bootstrap confidence intervals", J. Am. Stat. Assoc. 82, 171-185 (BCa). Hesterberg 2015, "What
    teachers should know about the bootstrap", Am. Stat. 69, 371-386, arXiv:1411.5279 (percentiles with Student's tails
    of N - 1 degrees of freedom; ours has fewer, see `segmeter.metrics.statistics.intervals`).

    Examples
    --------
    The mean IoU of a data set, from the confusion matrix of each case:

    >>> from segmeter import overlap_scores
    >>> cases = [[50, 2, 3, 9], [60, 0, 2, 2], [40, 5, 1, 18], [55, 1, 0, 8], [9, 9, 0, 46]]
    >>> counts = np.array(cases).reshape(5, 2, 2)
    >>> resampled = bootstrap(counts, lambda sums: overlap_scores(sums).mean_iou, resamples=1000)
    >>> round(float(resampled.estimate), 3), resampled.n_units
    (0.843, 5)
    >>> bool(resampled.low < resampled.estimate < resampled.high)
    True
    """
    require_kind("bootstrap", "test", test, bool)
    numbers = validated_numbers("bootstrap", "columns", columns, _NUMBERS)
    if numbers.ndim < 2 or not len(numbers) or not all(np.isfinite(column).all() for column in Columns.of(numbers)):
        raise InputError(expected("bootstrap", "columns", _NUMBERS, f"{numbers.dtype} {numbers.shape}"))
    summed = Columns.of(numbers)
    if numbers.dtype.kind in "iu" and any(np.abs(column.astype(np.float64)).sum() > _EXACT for column in summed):
        rule, remedy = "to sum to 2**53 or less, being integers", "Pass floats if they need not be exact."
        raise InputError(expected("bootstrap", "columns", rule, "more", remedy))
    resamples, seed = validated_draws("bootstrap", resamples, seed)
    if not 0 < real_number("bootstrap", "level", level) < 1:
        raise InputError(expected("bootstrap", "level", "between 0 and 1", level))
    require_name("bootstrap", "interval", interval, INTERVALS)
    if clusters is not None:
        rule = f"to be {len(numbers)} labels, a text or an integer per case"
        labels = validated_numbers("bootstrap", "clusters", clusters, rule, kinds="UiuO")
        only_texts = labels.dtype.kind != "O" or all(isinstance(label, str) for label in labels.flat)
        if labels.shape != (len(numbers),) or not only_texts:
            raise InputError(expected("bootstrap", "clusters", rule, shown(clusters)))
    if not callable(statistic):
        raise InputError(expected("bootstrap", "statistic", "to be a function of sums", shown(statistic)))
    return bootstrap_columns(
        summed,
        statistic,
        resamples=resamples,
        seed=seed,
        interval=interval,
        level=level,
        clusters=clusters,
        test=test,
    )


def bootstrap_columns(
    columns: Columns,
    statistic: Statistic,
    *,
    resamples: int,
    seed: int,
    interval: Interval = "expanded",
    level: float = 0.95,
    clusters: Sequence[str] | NDArray[Any] | None = None,
    test: bool = False,
) -> Resampled:
    """Do what `bootstrap` does for columns that are computed one at a time; options are checked already."""
    has_integers = columns.dtype.kind in "biu"

    def score(sums: FloatArray) -> FloatArray:
        """Score flat float64 sums (R, M). The statistic gets them in the columns' shape and kind of number."""
        typed = sums.astype(np.int64) if has_integers else sums
        values = np.asarray(statistic(typed.reshape(len(sums), *columns.shape)))
        if values.dtype.kind not in "biuf" or values.shape[:1] != (len(sums),):
            rule = f"to give numbers ({len(sums)}, ...) for sums ({len(sums)}, ...)"
            raise InputError(expected("bootstrap", "statistic", rule, f"{values.dtype} {values.shape}"))
        return values.astype(np.float64, copy=False)

    score_quietly = np.errstate(divide="ignore", invalid="ignore")(score)  # single units often have a denominator of 0
    units, column_index, n_units = _gather_units(columns, clusters, seed)
    total = units.sum(axis=0)[column_index]
    estimate = score(total[None])
    shape, estimate = estimate.shape[1:], estimate.reshape(-1)
    drawn_sums = map_weights(lambda weights: weights @ units, len(units), resamples, seed)
    replicates = np.concatenate([score(np.take(sums, column_index, axis=1)) for sums in drawn_sums])
    replicates = replicates.reshape(resamples, -1)
    rows = max(1, _BLOCK // (8 * max(len(column_index), 1)))
    blocks = [units[start : start + rows] for start in range(0, len(units), rows)]
    left_out = (score(total - np.take(block, column_index, axis=1)).reshape(len(block), -1) for block in blocks)
    alone = (score_quietly(np.take(block, column_index, axis=1)).reshape(len(block), -1) for block in blocks)
    influence = measure_influence(left_out, alone, estimate)
    low, high = find_ends(interval, level, estimate, replicates, influence)
    p_values = find_p(interval, estimate, replicates, influence) if test else np.full(len(estimate), np.nan)
    return Resampled(
        estimate=estimate.reshape(shape),
        low=low.reshape(shape),
        high=high.reshape(shape),
        replicates=replicates.reshape(resamples, *shape),
        n_units=n_units,
        p_of_zero=p_values.reshape(shape),
        influence=influence,
    )


@dataclass(frozen=True, kw_only=True)
class MeanInterval:
    """A mean over cases and its interval.

    Parameters
    ----------
    mean
        The mean over the cases with a value; inf if a value is infinite, NaN if there is none.
    low, high
        The interval's ends; NaN if fewer than 5 cases or clusters have a value.
    n_used, n_undefined
        Cases with a value, and without one (NaN).
    """

    mean: float
    low: float
    high: float
    n_used: int
    n_undefined: int


def mean_interval(
    values: Sequence[float] | NDArray[Any],
    *,
    clusters: Sequence[str] | None = None,
    resamples: int = 10_000,
    seed: int = 0,
    interval: Interval = "expanded",
    level: float = 0.95,
) -> MeanInterval:
    """Compute the mean of one value per case, with the interval that a run's summary would give it.

    Parameters
    ----------
    values : (N,)
        One per case; NaN is undefined and left out.
    clusters, resamples, seed, interval, level
        As for `bootstrap`.

    Returns
    -------
    MeanInterval

    Raises
    ------
    InputError
        The values are not one number per case, or as `bootstrap`.

    Examples
    --------
    >>> interval = mean_interval([0.9, 0.7, 0.8, 0.85, 0.6, 0.95])
    >>> round(interval.mean, 3), round(interval.low, 3), round(interval.high, 3)
    (0.8, 0.65, 0.925)
    """
    numbers = validated_numbers("mean_interval", "values", values, "to be one number per case", kinds="iuf")
    if numbers.ndim != 1 or not numbers.size:
        described = f"{type(values).__name__}, {numbers.dtype} {numbers.shape}"
        raise InputError(expected("mean_interval", "values", "to be one number per case", described))
    column = numbers.astype(np.float64)[:, None]
    resampled = bootstrap(
        mean_columns(column),
        mean_of_columns,
        resamples=resamples,
        seed=seed,
        interval=interval,
        level=level,
        clusters=clusters,
    )
    n_used = int((~np.isnan(column)).sum())
    return MeanInterval(
        mean=float(resampled.estimate[0]),
        low=float(resampled.low[0]),
        high=float(resampled.high[0]),
        n_used=n_used,
        n_undefined=len(column) - n_used,
    )


def _gather_units(
    columns: Columns, clusters: Sequence[str] | NDArray[Any] | None, seed: int
) -> tuple[FloatArray, list[int], int]:
    """Return the distinct columns of units or pools (U, D) on a grid, the index into them for each column, and the
    number of units.

    Columns of zeros fill D up to a multiple of 8: a matrix of 63 columns takes longer to multiply than one of 64.
    Columns are computed, summed and pooled one after the other, as all of them together would be the largest array.
    """
    cluster_of, n_units = None, columns.count
    if clusters is not None:
        labels, cluster_of = np.unique(np.asarray(clusters), return_inverse=True)
        n_units = len(labels)
    n_pools = count_pools(n_units)
    pool_of = draw_pools(n_units, n_pools, seed) if n_pools < n_units else None
    index_by_hash: dict[bytes, int] = {}
    column_index: list[int] = []
    distinct = np.empty((columns.width + _LANES, n_pools))  # rows that stay unused take no memory
    for column in columns:
        units = column if cluster_of is None else sum_by(cluster_of, n_units, column)
        unused = len(index_by_hash)
        column_index.append(index_by_hash.setdefault(sha256(units.tobytes()).digest(), unused))
        if column_index[-1] == unused:
            pooled = units if pool_of is None else np.bincount(pool_of, weights=to_grid(units), minlength=n_pools)
            distinct[unused] = to_grid(pooled)
    count = len(index_by_hash)
    filled = count + -count % _LANES
    distinct[count:filled] = 0.0
    return distinct[:filled].T, column_index, n_units
