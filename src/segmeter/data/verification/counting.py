"""target -> how many pixels each class has, and how many are decided; image -> how many have each value."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from segmeter.classes import ClassSpec

_AT_ONCE = 1 << 20  # pixels that are counted at a time


def count_classes(target: NDArray[Any], spec: ClassSpec) -> NDArray[np.int64]:
    """Count the pixels of each class in one target.

    Parameters
    ----------
    target : (H, W), or (K, H, W) for multilabel
    spec
        What its labels mean.

    Returns
    -------
    int64 (K,). Ignored pixels are in none.
    """
    if spec.is_multilabel:
        return np.asarray((target == 1).sum((1, 2)), np.int64)
    counts = count_values(target, least=spec.num_classes)
    return np.asarray(counts[: spec.num_classes], np.int64)


def count_decided(target: NDArray[Any], spec: ClassSpec) -> NDArray[np.int64]:
    """Count the pixels, int64 (K,), in which a class is decided: for multilabel each has a plane of its own."""
    decided = spec.valid(target)
    if spec.is_multilabel:
        return np.asarray(decided.sum((1, 2)), np.int64)
    return np.full(spec.num_classes, decided.sum(), np.int64)


def count_values(plane: NDArray[Any], *, least: int = 0) -> NDArray[np.int64]:
    """How often each value from 0 on, and `least` of them, is in (H, W): exact, and faster than passes over the pixels.

    Some rows at a time, as `bincount` makes 8 bytes of each pixel.
    """
    step = max(1, _AT_ONCE // plane.shape[1])
    counts = np.bincount(plane[:step].ravel(), minlength=least)
    for top in range(step, len(plane), step):
        more = np.bincount(plane[top : top + step].ravel(), minlength=len(counts))
        more[: len(counts)] += counts
        counts = more
    return counts
