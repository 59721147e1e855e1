"""Arrays of numbers that may be undefined or infinite: how they are divided, averaged, subtracted and written as JSON.

NaN is undefined, and never counts as 0; infinity is a failure, and no arithmetic turns it into NaN.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]


def divide(numerator: NDArray[Any], denominator: NDArray[Any]) -> FloatArray:
    """Numerator / denominator, NaN where the denominator is 0."""
    quotient = np.empty(np.broadcast(numerator, denominator).shape)
    with np.errstate(divide="ignore", invalid="ignore"):  # to divide all and then replace some is twice as fast
        np.divide(numerator, denominator, out=quotient)
    np.copyto(quotient, np.nan, where=np.equal(denominator, 0))
    return quotient


def mean_defined(values: FloatArray) -> FloatArray:
    """Mean over the last axis of the values that are not NaN; NaN where there are none."""
    return divide(np.nansum(values, axis=-1), (~np.isnan(values)).sum(axis=-1))


def minus(one: FloatArray, other: FloatArray) -> FloatArray:
    """Subtract numbers of which some may be infinite: equal ones differ by 0, and none makes up a NaN.

    Examples
    --------
    >>> minus(np.array([3.0, np.inf, 2.0, np.nan]), np.array([1.0, np.inf, np.inf, 1.0])).tolist()
    [2.0, 0.0, -inf, nan]
    """
    same = one == other
    difference: FloatArray = np.where(same, 0.0, one) - np.where(same, 0.0, other)
    return difference


def plain(value: Any) -> float | None:
    """A float for JSON: NaN is None."""
    return None if np.isnan(value) else float(value)


def say(value: Any) -> float | str | None:
    """A number for JSON where it may be infinite: NaN is None, infinity the text "inf" or "-inf".

    Examples
    --------
    >>> say(0.5), say(np.nan), say(np.inf), say(-np.inf)
    (0.5, None, 'inf', '-inf')
    """
    return None if np.isnan(value) else str(float(value)) if np.isinf(value) else float(value)
