"""Plans the number of cases: how wide an interval gets, and how often a test finds a difference, with more of them.

A pilot shows the spread of one unit. An interval then has the width 2 q sigma / sqrt(n), with the quantile q of
Student's distribution that `bootstrap` takes. The pilot's own spread is uncertain too, and by more than most expect, so
every number of units comes with an interval. See docs/plan.md for its coverage.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import chdtri, ndtr, ndtri, stdtrit

from segmeter.metrics.arrays import BoolArray, FloatArray
from segmeter.metrics.statistics.bootstrap import Resampled, Statistic, bootstrap_columns
from segmeter.metrics.statistics.clusters import MIN_UNITS, effective_units
from segmeter.metrics.statistics.columns import Columns, Interval, count_pools
from segmeter.metrics.statistics.intervals import degrees_of_freedom

LEAST_EFFECTIVE = 20  # With a Kish number below this, a pilot can't show the spread of a score of sums.
MOST_PLANNED = 10**7  # A plan has at most this many units.

_LEVEL = 0.95
_FEW = 1000  # resamples; fewer make intervals too narrow
_CAUTION = 1.25, 2.0  # Divisors for means over cases and for scores of sums, from benchmarks/plan.py.
_UPPER = float(ndtri(0.25))  # A log-normal distribution is fitted to the sizes above this normal quantile.
_TAILS = (0.5, 0.025, 0.975)  # Upper tails of chi-squared: the median, smallest and largest spread for a pilot.


@dataclass(frozen=True, kw_only=True)
class Pilot:
    """The spread of one score, as a pilot shows it.

    Parameters
    ----------
    n_units
        Cases or clusters of the pilot; None for a published mean without its number of cases.
    estimate
        The score; infinite or NaN if it has no spread.
    width
        Width of the score's interval in the pilot; NaN without an interval.
    sigma, sigma_low, sigma_high
        Standard deviation of the score's estimate times the root of the number of units, and its 95 % interval.
    kurtosis
        Kurtosis of the influences of single units; 3 if they are normal.
    moving
        Share of the units that move the score.
    interval
        How intervals are computed, as for `bootstrap`.
    effective
        Kish's number of units for a score of sums, allowing for large units that the pilot lacks (see `tail_factor`);
        None for a mean over cases, in which every case weighs the same.
    """

    n_units: int | None
    estimate: float
    width: float
    sigma: float
    sigma_low: float
    sigma_high: float
    kurtosis: float = 3.0
    moving: float = 1.0
    interval: Interval = "expanded"
    effective: float | None = None

    @property
    def ask_again(self) -> int | None:
        """The number of such units that a pilot would need to show the spread; None if this pilot has enough."""
        if self.n_units is None or self.effective is None or not self.effective < LEAST_EFFECTIVE:
            return None
        return math.ceil(self.n_units * LEAST_EFFECTIVE / self.effective)

    @classmethod
    def published(cls, *, mean: float, sd: float, cases: int | None, interval: Interval) -> "Pilot":
        """Make a pilot from a mean over cases and its standard deviation, taken as normal.

        Without their number of cases, the spread counts as exact, and there is no interval.
        """
        sigma, low, high = sd * _spread_ends(cases - 1) if cases else (sd, math.nan, math.nan)
        pilot = cls(
            n_units=cases,
            estimate=mean,
            width=math.nan,
            sigma=float(sigma),
            sigma_low=float(low),
            sigma_high=float(high),
            interval=interval,
        )
        return replace(pilot, width=pilot.width_of(cases, sd)) if cases else pilot

    def width_of(self, n: int, sigma: float | None = None) -> float:
        """Return the interval's width with `n` units."""
        return 2 * self._quantile(n) * (self.sigma if sigma is None else sigma) / math.sqrt(n)

    def power_of(self, difference: float, n: int, sigma: float | None = None) -> float:
        """Return how often the interval of `n` units excludes 0 if `difference` is the true difference."""
        shift = abs(difference) * math.sqrt(n) / (self.sigma if sigma is None else sigma)
        reach = self._quantile(n)
        return float(ndtr(shift - reach) + ndtr(-shift - reach))

    def units_for(self, enough: Callable[[int, float], bool]) -> tuple[int | None, int | None, int | None]:
        """Find the least number of units that is enough, and the ends of its interval.

        `enough` is called with a number of units and a spread. None stands for an unknown end, or for more than
        `MOST_PLANNED`.
        """

        def least(sigma: float) -> int | None:
            if math.isnan(sigma) or not enough(MOST_PLANNED, sigma):
                return None
            return bisect_left(range(MOST_PLANNED), True, lo=MIN_UNITS, key=lambda n: enough(n, sigma))

        return least(self.sigma), least(self.sigma_low), least(self.sigma_high)

    def _quantile(self, n: int) -> float:
        if self.interval != "expanded":
            return float(ndtri((1 + _LEVEL) / 2))
        return float(stdtrit(_degrees(self.kurtosis, self.moving * n), (1 + _LEVEL) / 2))


def measure_pilot(
    columns: Columns,
    statistic: Statistic,
    sizes: Sequence[FloatArray | None],
    *,
    resamples: int,
    seed: int,
    interval: Interval,
    clusters: Any = None,
) -> tuple[list[Pilot], Resampled]:
    """Measure the spread of each score of a pilot.

    Parameters
    ----------
    columns, statistic, resamples, seed, interval, clusters
        As for `bootstrap`; the statistic gives S scores.
    sizes
        For each score the weights (U,) of its units, such as the pixels of a class in each case or cluster; None if
        they all weigh the same.

    Returns
    -------
    tuple
        The S pilots, and the resampled scores.

    Notes
    -----
    Few pilots contain one of the rare large units that decide a score of sums, so most pilots show too small a spread.
    It is therefore scaled by `tail_factor`, and so is Kish's number: a pilot's cases may look even by luck while its
    upper sizes promise larger cases. The spread and its interval are the median and the central 95 % of the spreads
    that fit the pilot. The kurtosis of the influences gives the degrees of freedom of its variance (Satterthwaite
    1946). They are divided by `_CAUTION`, because a pilot's kurtosis is itself too small.
    """
    resampled = bootstrap_columns(
        columns, statistic, resamples=resamples, seed=seed, interval=interval, level=_LEVEL, clusters=clusters
    )
    n_units = resampled.n_units
    pilots: list[Pilot] = []
    finite: BoolArray = np.all(np.isfinite(resampled.replicates), axis=0)
    for s, weights in enumerate(sizes):
        factor = 1.0 if weights is None else tail_factor(weights)
        spread = float(resampled.influence.spread[s]) * math.sqrt(factor * max(n_units - 1, 1))
        kurtosis, moving = float(resampled.influence.kurtosis[s]), float(resampled.influence.n_moving[s])
        sigma, low, high = spread * _spread_ends(_degrees(kurtosis, moving) / _CAUTION[weights is not None])
        has_width = bool(finite[s] and np.isfinite(resampled.low[s]))
        unit_kurtosis, share = _of_units(kurtosis, moving, n_units)
        pilots.append(
            Pilot(
                n_units=n_units,
                estimate=float(resampled.estimate[s]),
                width=float(resampled.high[s] - resampled.low[s]) if has_width else math.nan,
                sigma=float(sigma),
                sigma_low=float(low),
                sigma_high=float(high),
                kurtosis=unit_kurtosis,
                moving=share,
                interval=interval,
                effective=None if weights is None else effective_units(weights) / factor,
            )
        )
    return pilots, resampled


def tail_factor(sizes: FloatArray) -> float:
    """Return how much the second moment of sizes (U,) grows if a log-normal distribution replaces their upper part.

    The factor is at least 1. A pilot seldom contains the rare large cases that decide the second moment, but its upper
    three quarters show how fast sizes grow. Sizes of 0 are left out.

    Examples
    --------
    >>> tail_factor(np.full(40, 7.0)), tail_factor(np.zeros(5))
    (1.0, 1.0)
    >>> sizes = np.exp(np.random.default_rng(0).normal(size=60))
    >>> 1.0 <= tail_factor(sizes) < 2.0
    True
    """
    positive = np.sort(sizes[sizes > 0])
    count = len(positive)
    if count < 2 * MIN_UNITS:
        return 1.0
    normal = ndtri((np.arange(count) + 0.5) / count)
    upper = normal > _UPPER
    slope, level = np.polyfit(normal[upper], np.log(positive[upper]), 1)
    fitted = (positive[~upper] ** 2).sum() / count + np.exp(2 * level + 2 * slope**2) * ndtr(2 * slope - _UPPER)
    return max(1.0, round(float(fitted / (positive**2).mean()), 12))  # rounded, so that equal sizes give exactly 1


def resample_smaller(
    units: FloatArray, statistic: Statistic, sizes: Sequence[int], *, draws: int, seed: int, interval: Interval
) -> tuple[FloatArray, FloatArray]:
    """Find the ends of the intervals of smaller data sets, drawn with replacement from the units of a pilot.

    Parameters
    ----------
    units : (U, C)
        Columns that are summed.
    statistic
        Turns sums (R, C) into scores (R, S).
    sizes
        The M numbers of units to draw.
    draws
        How many data sets to draw of each size.

    Returns
    -------
    tuple
        The lower and the upper ends, (M, draws, S) each; NaN where there is no interval.
    """
    rng = np.random.default_rng(seed)
    ends: list[FloatArray] = []
    for size in sizes:
        for _ in range(draws):
            drawn = Columns.of(units[rng.integers(len(units), size=size)])
            resampled = bootstrap_columns(drawn, statistic, resamples=_FEW, seed=seed, interval=interval, level=_LEVEL)
            ends.append(np.stack([resampled.low, resampled.high]))
    stacked = np.stack(ends).reshape(len(sizes), draws, 2, -1)
    return stacked[:, :, 0], stacked[:, :, 1]


def _spread_ends(degrees: float) -> FloatArray:
    """Return factors (3,) for a pilot's standard deviation: to the median and the central 95 % of those that fit it."""
    factors: FloatArray = np.sqrt(degrees / chdtri(degrees, _TAILS))
    return factors


def _of_units(kurtosis: float, moving: float, units: int) -> tuple[float, float]:
    """Convert the kurtosis of the influences of pools, and the number of pools that move a score, to units: kurtosis,
    and share of the units.

    Influences add up in a pool: m of them with kurtosis k have a fourth moment of m k + 3 m (m - 1) squared variances.
    If a share s of the units moves the score, a share 1 - (1 - s)^m of the pools does.
    """
    pools = count_pools(units)
    if pools == units or not moving:
        return kurtosis, moving / units
    size = units / pools
    share = 1 - (1 - moving / pools) ** (1 / size)
    return max(1.0, share * (units * kurtosis / moving - 3 * (size - 1))), share


def _degrees(kurtosis: float, moving: float) -> float:
    return float(degrees_of_freedom(np.array([moving]), np.array([kurtosis]))[0])
