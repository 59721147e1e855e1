"""target -> how many pixels each class has, and how many are decided."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from segmeter.classes import ClassSpec


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
    counts = np.bincount(target.ravel(), minlength=spec.num_classes)
    return np.asarray(counts[: spec.num_classes], np.int64)


def count_decided(target: NDArray[Any], spec: ClassSpec) -> NDArray[np.int64]:
    """Count the pixels, int64 (K,), in which a class is decided: for multilabel each has a plane of its own."""
    decided = spec.valid(target)
    if spec.is_multilabel:
        return np.asarray(decided.sum((1, 2)), np.int64)
    return np.full(spec.num_classes, decided.sum(), np.int64)
