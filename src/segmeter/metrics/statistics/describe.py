"""Numbers of cases that may be undefined or infinite: how they are averaged, subtracted and written as JSON."""

from typing import Any

import numpy as np

from segmeter.metrics.arrays import FloatArray


def describe(values: FloatArray) -> dict[str, Any]:
    """Mean and both standard deviations of the defined values, and how many there are.

    Examples
    --------
    >>> describe(np.array([0.5, 1.0, np.nan]))["mean"], describe(np.array([np.nan]))["mean"]
    (0.75, None)
    """
    used = values[~np.isnan(values)]
    return {
        "mean": plain(used.mean()) if used.size else None,
        "std": plain(used.std(ddof=1)) if used.size > 1 else None,
        "std_population": plain(used.std()) if used.size else None,
        "n_used": int(used.size),
        "n_undefined": int(values.size - used.size),
    }


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
