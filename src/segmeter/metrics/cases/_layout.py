"""values of rows -> the arrays of a table's columns."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


def lists(counts: Sequence[NDArray[np.int64]], size: int) -> pa.Array:
    """Each case's counts (of `size` cells), row by row."""
    flat = np.concatenate([one.reshape(-1) for one in counts]) if counts else np.empty(0, np.int64)
    return pa.LargeListArray.from_arrays(pa.array(np.arange(len(counts) + 1) * size), pa.array(flat, pa.int64()))


def terms(cases: Sequence[tuple[tuple[float, float], ...]], side: int) -> pa.Array:
    """The sums or the denominators of the loss's parts; null where a case has none."""
    values = [[term[side] for term in parts] or None for parts in cases]
    return pa.array(values, pa.list_(pa.float64()))


def floats(values: Any) -> pa.Array:
    """Numbers, of which NaN is null."""
    return pa.array(values, pa.float64(), from_pandas=True)  # NaN becomes null
