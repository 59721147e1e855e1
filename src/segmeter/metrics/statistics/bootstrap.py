"""Intervals of scores, by resampling cases or clusters of cases.

Every aggregate here is a function of column sums: scores of the data set come from summed margins, means from summed
values. A resample is a vector of multiplicities, so all resamples together are one matrix product. Columns are first
rounded to a grid on which every sum is exact in float64 (relative error below 1e-12). The result is therefore the same
to the bit for any number of threads and any BLAS.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segmeter.checks import expected, real_number, require_kind, require_name, shown
from segmeter.errors import InputError
from segmeter.metrics.arrays import FloatArray, known_numbers, say
from segmeter.metrics.statistics.clusters import sum_by
from segmeter.metrics.statistics.columns import (
    INTERVALS,
    Columns,
    Interval,
    check_draws,
    count_pools,
    draw_pools,
    map_weights,
    mean_columns,
    mean_of_columns,
    to_grid,
)
from segmeter.metrics.statistics.intervals import Influence, find_ends, find_p, measure_influence

Statistic = Callable[[NDArray[Any]], FloatArray]

_LANES = 8
_BLOCK = 1 << 20  # bytes of sums that are scored at a time
_NUMBERS = "to be finite numbers (N >= 1, ...)"
_EXACT = 2.0**53  # float64 holds every whole number up to it


@dataclass(frozen=True, kw_only=True)
class Resampled:
    """Statistics with their uncertainty.

    Parameters
    ----------
    estimate : () or (S,), as the statistic returns
        The statistics of the cases as they are.
    low, high : as the estimate
        The ends of the interval; each is one of the resampled values. NaN if fewer than 5 cases or clusters have the
        statistic (for a class's IoU, those that contain the class), or if it is undefined without one of them.
    replicates : (B,) or (B, S)
        The statistics of each resample.
    n_units
        Number of cases or clusters that were resampled, in `count_pools` random pools.
    p_of_zero : as the estimate
        Two-sided p-values of the value 0, below 0.05 if the 95 % interval excludes it; NaN unless requested, and
        without an interval.
    influence
        How strongly single units decide each statistic, in the order of the flat `estimate`.
    """

    estimate: FloatArray
    low: FloatArray
    high: FloatArray
    replicates: FloatArray
    n_units: int
    p_of_zero: FloatArray
    influence: Influence

    def ends(self, place: Any) -> list[float | str | None]:
        """Return the interval of one of the statistics for JSON."""
        return [say(self.low[place]), say(self.high[place])]


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
        The numbers of each case that are summed, for example its counts (N, K, K). Integers are summed exactly; all of
        a column together are at most 2**53.
    statistic
        Maps sums (R, ...) of R resamples to one value (R,) or several (R, S) each; NaN is undefined and left out of the
        interval. The sums are int64 where the columns are integers, else float64.
    resamples
        B, 1 to 10**8. Below about 1000 the intervals are too narrow, as their ends lie far out in the tails.
    seed
        At least 0. The same seed gives the same bits, whatever the NumPy version or the number of threads.
    interval
        "expanded": percentiles whose tails are widened by Student's t, with the degrees of freedom that the influence
        of single cases leaves. Each end is the outer one of those with and without correction for bias. "bca" (Efron
        1987) and "percentile" are too narrow for few or uneven cases, see docs/statistics.md. No method suits a median
        of few cases.
    level
        Coverage, between 0 and 1.
    clusters
        One label per case; cases of a label are drawn together.
    test
        Whether to compute p-values of the value 0, as for a difference.

    Returns
    -------
    Resampled

    Raises
    ------
    InputError
        Columns are not finite numbers of one case or more, the statistic does not give one value or row per resample,
        B, seed or level is out of range, or clusters are not one label per case.

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
    >>> found = bootstrap(counts, lambda sums: overlap_scores(sums).mean_iou, resamples=1000)
    >>> round(float(found.estimate), 3), found.n_units
    (0.843, 5)
    >>> bool(found.low < found.estimate < found.high)
    True
    """
    require_kind("bootstrap", "test", test, bool)
    given = known_numbers("bootstrap", "columns", columns, _NUMBERS)
    if given.ndim < 2 or not len(given) or not all(np.isfinite(column).all() for column in Columns.of(given)):
        raise InputError(expected("bootstrap", "columns", _NUMBERS, f"{given.dtype} {given.shape}"))
    summed = Columns.of(given)
    if given.dtype.kind in "iu" and any(np.abs(each.astype(np.float64)).sum() > _EXACT for each in summed):
        rule, remedy = "to sum to 2**53 or less, being integers", "Pass floats if they need not be exact."
        raise InputError(expected("bootstrap", "columns", rule, "more", remedy))
    resamples, seed = check_draws("bootstrap", resamples, seed)
    if not 0 < real_number("bootstrap", "level", level) < 1:
        raise InputError(expected("bootstrap", "level", "between 0 and 1", level))
    require_name("bootstrap", "interval", interval, INTERVALS)
    if clusters is not None:
        rule = f"to be {len(given)} labels, a text or an integer per case"
        labels = known_numbers("bootstrap", "clusters", clusters, rule, kinds="UiuO")
        texts = labels.dtype.kind != "O" or all(isinstance(one, str) for one in labels.flat)
        if labels.shape != (len(given),) or not texts:
            raise InputError(expected("bootstrap", "clusters", rule, shown(clusters)))
    if not callable(statistic):
        raise InputError(expected("bootstrap", "statistic", "to be a function of sums", shown(statistic)))
    options: dict[str, Any] = {"resamples": resamples, "seed": seed, "interval": interval, "level": level, "test": test}
    return bootstrap_columns(summed, statistic, clusters=clusters, **options)


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
    whole = columns.dtype.kind in "biu"

    def score(sums: FloatArray) -> FloatArray:
        """Score flat float64 sums (R, M), which the statistic takes in the shape and kind of number of the columns."""
        values = np.asarray(statistic((sums.astype(np.int64) if whole else sums).reshape(len(sums), *columns.shape)))
        if values.dtype.kind not in "biuf" or values.shape[:1] != (len(sums),):
            rule = f"to give numbers ({len(sums)}, ...) for sums ({len(sums)}, ...)"
            raise InputError(expected("bootstrap", "statistic", rule, f"{values.dtype} {values.shape}"))
        return values.astype(np.float64, copy=False)

    quietly = np.errstate(divide="ignore", invalid="ignore")(score)  # a single unit often has a denominator of 0
    units, places, n_units = _gather_units(columns, clusters, seed)
    total = units.sum(axis=0)[places]
    estimate = score(total[None])
    shape, estimate = estimate.shape[1:], estimate.reshape(-1)
    drawn = map_weights(lambda weights: weights @ units, len(units), resamples, seed)
    replicates = np.concatenate([score(np.take(part, places, axis=1)) for part in drawn]).reshape(resamples, -1)
    rows = max(1, _BLOCK // (8 * max(len(places), 1)))
    blocks = [units[start : start + rows] for start in range(0, len(units), rows)]
    left_out = (score(total - np.take(block, places, axis=1)).reshape(len(block), -1) for block in blocks)
    alone = (quietly(np.take(block, places, axis=1)).reshape(len(block), -1) for block in blocks)
    influence = measure_influence(left_out, alone, estimate)
    ends = find_ends(interval, level, estimate, replicates, influence)
    p_values = find_p(interval, estimate, replicates, influence) if test else np.full(len(estimate), np.nan)
    low, high, p_of_zero = (each.reshape(shape) for each in (*ends, p_values))
    return Resampled(
        estimate=estimate.reshape(shape),
        low=low,
        high=high,
        replicates=replicates.reshape(resamples, *shape),
        n_units=n_units,
        p_of_zero=p_of_zero,
        influence=influence,
    )


@dataclass(frozen=True, kw_only=True)
class MeanInterval:
    """A mean over cases and its interval.

    Parameters
    ----------
    mean
        Over the cases with a value; inf if one is infinite, NaN if there is none.
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
    >>> found = mean_interval([0.9, 0.7, 0.8, 0.85, 0.6, 0.95])
    >>> round(found.mean, 3), round(found.low, 3), round(found.high, 3)
    (0.8, 0.65, 0.925)
    """
    given = known_numbers("mean_interval", "values", values, "to be one number per case", kinds="iuf")
    if given.ndim != 1 or not given.size:
        found = f"{type(values).__name__}, {given.dtype} {given.shape}"
        raise InputError(expected("mean_interval", "values", "to be one number per case", found))
    column = given.astype(np.float64)[:, None]
    options: dict[str, Any] = {"resamples": resamples, "seed": seed, "interval": interval, "level": level}
    ends = bootstrap(mean_columns(column), mean_of_columns, clusters=clusters, **options)
    n_used = int((~np.isnan(column)).sum())
    return MeanInterval(
        mean=float(ends.estimate[0]),
        low=float(ends.low[0]),
        high=float(ends.high[0]),
        n_used=n_used,
        n_undefined=len(column) - n_used,
    )


def _gather_units(
    columns: Columns, clusters: Sequence[str] | NDArray[Any] | None, seed: int
) -> tuple[FloatArray, list[int], int]:
    """Return the distinct columns of units or pools (U, D) on a grid, the place of each column, and the number of
    units.

    Columns of zeros fill D up to a multiple of 8: matrices of 63 columns take longer to multiply than those of 64.
    Columns are computed, summed and pooled one after the other, as all of them together would be the largest array.
    """
    index, count = None, columns.count
    if clusters is not None:
        labels, index = np.unique(np.asarray(clusters), return_inverse=True)
        count = len(labels)
    pools = count_pools(count)
    pool = draw_pools(count, pools, seed) if pools < count else None
    numbers, places = dict[bytes, int](), list[int]()
    kept = np.empty((columns.width + _LANES, pools))  # what stays unused takes no memory
    for column in columns:
        units = column if index is None else sum_by(index, count, column)
        unused = len(numbers)
        places.append(numbers.setdefault(sha256(units.tobytes()).digest(), unused))
        if places[-1] == unused:
            pooled = units if pool is None else np.bincount(pool, weights=to_grid(units), minlength=pools)
            kept[unused] = to_grid(pooled)
    filled = len(numbers) + -len(numbers) % _LANES
    kept[len(numbers) : filled] = 0.0
    return kept[:filled].T, places, count
