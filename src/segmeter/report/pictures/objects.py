"""Two maps of objects -> which of them are the same, which are missed and which are spurious, as maps to draw."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segmeter.metrics.objects.panoptic import match_instances

THRESHOLD = 0.5  # IoU that a match exceeds, as for panoptic quality


@dataclass(frozen=True, kw_only=True)
class Objects:
    """Numbers of objects of a case, (H, W) integer with 0 for none; None where they are not known."""

    target: NDArray[Any] | None = None
    prediction: NDArray[Any] | None = None


@dataclass(frozen=True, kw_only=True)
class ObjectKinds:
    """Maps of objects by how they were found, (H, W) with 0 for none: predicted, of the target, and predicted."""

    matched: NDArray[Any]
    missed: NDArray[Any]
    spurious: NDArray[Any]

    def counts(self) -> tuple[int, int, int]:
        """How many objects each map has."""
        return tuple(len(np.setdiff1d(each, 0)) for each in (self.matched, self.missed, self.spurious))  # type: ignore[return-value]


def find_kinds(target: NDArray[Any], prediction: NDArray[Any], void: NDArray[np.bool_]) -> ObjectKinds:
    """Match the objects of two maps one to one by IoU, and part them; ignored pixels belong to none.

    Examples
    --------
    >>> target = np.array([[1, 1, 1, 0, 2, 2]])
    >>> found = find_kinds(target, np.array([[7, 7, 0, 0, 0, 9]]), np.zeros((1, 6), bool))
    >>> found.matched, found.missed, found.spurious
    (array([[7, 7, 0, 0, 0, 0]]), array([[0, 0, 0, 0, 2, 2]]), array([[0, 0, 0, 0, 0, 9]]))
    """
    found = match_instances(target, prediction, threshold=THRESHOLD, void=void)

    def keep(objects: NDArray[Any], ids: NDArray[np.int64]) -> NDArray[Any]:
        return np.where(np.isin(objects, ids) & ~void, objects, 0)

    return ObjectKinds(
        matched=keep(prediction, found.instance_ids),
        missed=keep(target, found.missed_ids),
        spurious=keep(prediction, found.spurious_ids),
    )
