"""A volume -> the slice of it that is worth a picture."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from segmeter.classes import ClassSpec


def choose_slice(target: NDArray[Any], labels: NDArray[Any], spec: ClassSpec) -> int:
    """Pick the slice along the depth with the most wrong pixels; without errors, that with the most objects.

    Of equal ones it is the one nearest to the middle.

    Parameters
    ----------
    target, labels : (D, H, W), for multilabel (K, D, H, W), integer
        What is to be drawn.
    spec
        The classes; ignored pixels are not wrong, and class 0 is no object but for multilabel.

    Examples
    --------
    >>> spec = ClassSpec(task="binary", names=("a", "b"), colours=((0, 0, 0), (9, 9, 9)))
    >>> target = np.zeros((5, 2, 2), np.uint8)
    >>> labels = target.copy()
    >>> labels[3, 0, 0] = 1
    >>> choose_slice(target, labels, spec), choose_slice(target, target, spec)
    (3, 2)
    """
    others = (0, 2, 3) if spec.is_multilabel else (1, 2)
    counted = spec.valid(target)
    wrong = np.sum((target != labels) & counted, axis=others)
    seen = wrong if wrong.any() else np.sum((target != 0) & counted, axis=others)
    best = np.flatnonzero(seen == seen.max())
    return int(best[np.argmin(np.abs(best - (len(seen) - 1) / 2))])
