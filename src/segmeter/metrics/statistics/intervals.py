"""Finds the ends of intervals among the replicates of `bootstrap`, given the influence of single units.

Order statistics never leave the range of the statistic, never mix finite and infinite values, and need no formula for
the statistic. See docs/statistics.md for how often each method contains the true value.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri, stdtr, stdtrit

from segmeter.metrics.arrays import FloatArray, divide
from segmeter.metrics.statistics.clusters import MIN_UNITS
from segmeter.metrics.statistics.columns import Interval

_ROUNDING = 1e-12  # Changes below this share of the estimate count as none.
_SAME = 1e-9  # A spread below this share of the mean is rounding.


@dataclass(frozen=True, kw_only=True)
class Influence:
    """The influence of single units on each statistic (S,), from its values without one unit each.

    Parameters
    ----------
    n_moving
        Number of units that move the statistic; a case without a class does not move its scores. If fewer than 5 move
        it, all units that have it count, as most of them may lie exactly at the mean. 0 if no unit moves it.
    acceleration
        Skewness of the changes, divided by 6 sqrt(N) (Efron 1987); 0 if no unit moves it.
    kurtosis
        Kurtosis of the changes that these units cause; 3 for normal changes. NaN if no unit moves it.
    spread
        Root of the summed squares of the changes around their mean. Times sqrt((N - 1) / N), it is the jackknife's
        standard error.
    too_few
        Whether the statistic has no interval, because fewer than 5 units have it at all, or it is undefined without one
        of them.
    """

    n_moving: FloatArray
    acceleration: FloatArray
    kurtosis: FloatArray
    spread: FloatArray
    too_few: NDArray[np.bool_]


def measure_influence(left_out: Iterator[FloatArray], alone: Iterator[FloatArray], estimate: FloatArray) -> Influence:
    """Sum up powers of the changes around the estimate (S,), in blocks of units, so that no N x S array is needed.

    Parameters
    ----------
    left_out
        Blocks (n, S) of the statistic without one unit each.
    alone
        Blocks (n, S) of the statistic of each unit alone, NaN where it has none; read as far as needed.
    estimate : (S,)
        The statistic of all units.
    """
    powers = np.zeros((5, len(estimate)))
    moving = np.zeros(len(estimate))
    units = 0
    undefined = np.isnan(estimate)
    for values in left_out:
        units += len(values)
        undefined = undefined | np.isnan(values).any(axis=0)
        with np.errstate(invalid="ignore"):  # inf - inf is NaN, and left out
            change = estimate - values
        finite = np.isfinite(change)
        change = np.where(finite, change, 0.0)
        moving += (np.abs(change) > _ROUNDING * np.abs(estimate)).sum(axis=0)
        square = change**2  # products: `**` takes fifty times as long for 3 and 4
        terms = finite, change, square, square * change, square**2
        powers += [term.sum(axis=0) for term in terms]
    least = min(MIN_UNITS, units - 1)
    few_move = (moving < least) & ~undefined
    holders = np.zeros(len(few_move), np.int64)  # units that have the statistic, counted only as far as needed
    while (few_move & ((moving > 0) | (holders < least))).any() and (block := next(alone, None)) is not None:
        holders += (~np.isnan(block)).sum(axis=0)
    n_moving = np.where(few_move & (moving > 0), np.maximum(moving, holders), moving)
    # Sums of powers around the mean: [0] over all units, [1] over the units that move the statistic.
    n = np.stack([powers[0], n_moving])
    _, first, second, third, fourth = powers
    mean = divide(first, n)
    square, moving_square = np.maximum(second - n * mean**2, 0)
    cube = third - 3 * mean[0] * second + 2 * n[0] * mean[0] ** 3
    quad = fourth - 4 * mean[1] * third + 6 * mean[1] ** 2 * second - 3 * n[1] * mean[1] ** 4
    return Influence(
        n_moving=n_moving,
        acceleration=np.nan_to_num(divide(cube, 6 * square**1.5)),
        kurtosis=divide(n_moving * quad, moving_square**2),
        spread=np.sqrt(square),
        too_few=undefined | (units < MIN_UNITS) | (few_move & (holders < least)),
    )


def find_ends(
    method: Interval, level: float, estimate: FloatArray, replicates: FloatArray, influence: Influence
) -> tuple[FloatArray, FloatArray]:
    """Find the ends (S,) of the intervals of `estimate` (S,) from `replicates` (B, S); NaN if there is none."""
    defined = (~np.isnan(replicates)).sum(axis=0)
    bias, has_bias = _median_bias(estimate, replicates, defined)
    tails = np.array([(1 - level) / 2, (1 + level) / 2])[:, None]
    if method == "expanded":
        n = np.maximum(influence.n_moving, 2)  # replicates spread too little by sqrt((n - 1) / n)
        degrees = degrees_of_freedom(influence.n_moving, influence.kurtosis)
        reach = np.sqrt(n / (n - 1)) * stdtrit(degrees, (1 + level) / 2)
        tails = ndtr([np.minimum(0, 2 * bias) - reach, np.maximum(0, 2 * bias) + reach])
    elif method == "bca":
        shifted = bias + ndtri(tails)  # (2, S)
        adjusted = ndtr(bias + divide(shifted, 1 - influence.acceleration * shifted))
        tails = np.where(has_bias & ~np.isnan(adjusted), adjusted, tails)
    tails = np.broadcast_to(tails, (2, len(estimate)))
    ranked = np.sort(replicates, axis=0)  # NaN goes last
    last = np.maximum(defined - 1, 0)
    column = np.arange(ranked.shape[1])
    # Take the outer neighbour of each tail, as there is no value between a finite and an infinite one.
    low = ranked[np.floor(tails[0] * last).astype(np.int64), column]
    high = ranked[np.ceil(tails[1] * last).astype(np.int64), column]
    low[influence.too_few] = high[influence.too_few] = np.nan
    return low, high


def find_p(method: Interval, estimate: FloatArray, replicates: FloatArray, influence: Influence) -> FloatArray:
    """Compute two-sided p-values (S,) of the value 0: one minus the highest level at which the interval excludes 0.

    They are at most 1 and never 0. If all replicates are on one side of 0, their spread shows how far out 0 lies. With
    few degrees of freedom, the p-value is then larger than the interval suggests. NaN if there is no interval.
    """
    defined = (~np.isnan(replicates)).sum(axis=0)
    bias, has_bias = _median_bias(estimate, replicates, defined)
    one_sided = []
    for sign in (1, -1):  # 0 below the interval, then above it
        quantile = _quantile_of_zero(sign * replicates, defined)
        if method == "expanded":
            n = np.maximum(influence.n_moving, 2)
            reach = np.maximum(np.minimum(0, 2 * sign * bias) - quantile, 0)
            tail = stdtr(degrees_of_freedom(influence.n_moving, influence.kurtosis), -reach * np.sqrt((n - 1) / n))
            one_sided.append(np.where(influence.n_moving > 0, tail, ndtr(quantile)))  # equal in all units, or infinite
        elif method == "bca":
            shift = sign * bias
            shifted = quantile - shift
            adjusted = divide(shifted, 1 + sign * influence.acceleration * shifted) - shift
            one_sided.append(ndtr(np.where(has_bias, adjusted, quantile)))
        else:
            one_sided.append(ndtr(quantile))
    p_values: FloatArray = np.clip(2 * np.minimum(*one_sided), 0, 1)
    p_values[influence.too_few | np.isnan(estimate)] = np.nan
    return p_values


def _quantile_of_zero(replicates: FloatArray, defined: NDArray[np.int64]) -> FloatArray:
    """Return the normal quantile of the share of replicates that are not above 0. If all are above 0, it is estimated
    from their mean and spread.
    """
    not_above = (replicates <= 0).sum(axis=0)
    quantile: FloatArray = ndtri(np.clip(not_above, 1, np.maximum(defined - 1, 1)) / (defined + 1))
    is_finite = np.isfinite(replicates)
    finite = np.where(is_finite, replicates, 0.0)
    count = is_finite.sum(axis=0)
    mean = divide(finite.sum(axis=0), count)
    spread = np.sqrt(divide((np.where(is_finite, finite - mean, 0.0) ** 2).sum(axis=0), count))
    all_above = (not_above == 0) & (spread > _SAME * np.abs(mean)) & (count == defined)
    return np.where(all_above, np.minimum(quantile, -divide(mean, spread)), quantile)


def degrees_of_freedom(n_moving: FloatArray, kurtosis: FloatArray) -> FloatArray:
    """Compute Satterthwaite's 2 E(v)^2 / Var(v) of the jackknife's variance v from the kurtosis k of its n terms.

    Var(v) / E(v)^2 is k / n - (n - 3) / (n (n - 1)). The result is between 1 and n - 1. It is small if a few units
    decide everything, however many units there are.
    """
    n = np.maximum(n_moving, 2)
    spread = kurtosis / n - (n - 3) / (n * (n - 1))
    degrees: FloatArray = np.clip(np.nan_to_num(2 / np.maximum(spread, 1e-9), nan=1.0), 1, n - 1)
    return degrees


def _median_bias(
    estimate: FloatArray, replicates: FloatArray, defined: NDArray[np.int64]
) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Return the normal quantile of the share of replicates below the estimate, and whether it is finite; if not, 0."""
    below = (replicates < estimate).sum(axis=0) + 0.5 * (replicates == estimate).sum(axis=0)
    share = divide(below, defined)
    is_finite = (share > 0) & (share < 1)  # otherwise all replicates are on one side, and there is nothing to correct
    return ndtri(np.where(is_finite, share, 0.5)), is_finite
