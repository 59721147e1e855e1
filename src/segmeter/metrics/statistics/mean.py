"""values of cases -> their mean with its interval, in one call."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segmeter.checks import expected
from segmeter.errors import InputError
from segmeter.metrics.statistics.bootstrap import bootstrap, mean_columns, mean_of_columns
from segmeter.metrics.statistics.intervals import Interval


@dataclass(frozen=True, kw_only=True)
class MeanInterval:
    """A mean over cases and its interval.

    Parameters
    ----------
    mean
        Over the cases with a value; inf where one is infinite, NaN where there is none.
    low, high
        The interval's ends; NaN where fewer than 5 cases or clusters have a value.
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
    """Mean of one value per case, with the interval that the summary of a run gives it.

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
    try:
        given = np.asarray(values)
    except (TypeError, ValueError) as error:
        raise InputError(expected("mean_interval", "values", "to be one number per case", error)) from None
    if given.ndim != 1 or given.dtype.kind not in "iuf" or not given.size or isinstance(values, np.ma.MaskedArray):
        rule, found = "to be one number per case", f"{type(values).__name__}, {given.dtype} {given.shape}"
        raise InputError(expected("mean_interval", "values", rule, found))
    column = given.astype(np.float64)[:, None]
    options: dict[str, Any] = {"resamples": resamples, "seed": seed, "interval": interval, "level": level}
    found_ends = bootstrap(mean_columns(column), mean_of_columns, clusters=clusters, **options)
    n_used = int((~np.isnan(column)).sum())
    return MeanInterval(
        mean=float(found_ends.estimate[0]),
        low=float(found_ends.low[0]),
        high=float(found_ends.high[0]),
        n_used=n_used,
        n_undefined=len(column) - n_used,
    )
