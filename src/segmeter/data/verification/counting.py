"""Counts the pixels of each class in targets, and of each value in images."""

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
        The meaning of its labels.

    Returns
    -------
    int64 (K,), without ignored pixels.
    """
    if spec.is_multilabel:
        return np.asarray((target == 1).sum((1, 2)), np.int64)
    counts = count_values(target, least=spec.num_classes)
    return np.asarray(counts[: spec.num_classes], np.int64)


def count_decided(target: NDArray[Any], spec: ClassSpec) -> NDArray[np.int64]:
    """Count the pixels, int64 (K,), that are not ignored; for multilabel each class has a plane of its own."""
    decided = spec.valid(target)
    if spec.is_multilabel:
        return np.asarray(decided.sum((1, 2)), np.int64)
    return np.full(spec.num_classes, decided.sum(), np.int64)


def count_values(plane: NDArray[Any], *, least: int = 0) -> NDArray[np.int64]:
    """Count each value from 0 in (H, W), at least `least` of them: exact, and faster than passes over the pixels.

    It takes some rows at a time, as `bincount` makes 8 bytes of each pixel.
    """
    step = max(1, _AT_ONCE // plane.shape[1])
    counts = np.bincount(plane[:step].ravel(), minlength=least)
    for top in range(step, len(plane), step):
        more = np.bincount(plane[top : top + step].ravel(), minlength=len(counts))
        more[: len(counts)] += counts
        counts = more
    return counts
