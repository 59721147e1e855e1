"""Matches the objects of two maps for drawing: which are found, which are missed, and which are false."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segmeter.classes import ClassSpec
from segmeter.metrics.config.measures import MatchedConfig, ObjectsConfig
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.measures.objects import number_objects
from segmeter.metrics.objects.scores import match_instances

THRESHOLD = 0.5  # IoU that a match exceeds, as for panoptic quality

Map = NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class Objects:
    """The objects of a case, and how they are matched.

    Parameters
    ----------
    target, prediction : (H, W), integer
        Object numbers, with 0 for none; None if they are not known.
    connectivity
        8 or 4: connected parts of a class are the objects of a side without numbers. None: it has no objects.
    threshold
        A match has an IoU above this.
    classes
        Names of the classes whose objects count; None: all but the background.
    """

    target: Map | None = None
    prediction: Map | None = None
    connectivity: int | None = None
    threshold: float = THRESHOLD
    classes: tuple[str, ...] | None = None

    @property
    def matched(self) -> bool:
        """Whether the objects of both sides are known."""
        parts = self.connectivity is not None
        return (self.target is not None or parts) and (self.prediction is not None or parts)


NO_OBJECTS = Objects()


@dataclass(frozen=True, kw_only=True)
class ObjectKinds:
    """Maps (H, W) of object numbers by outcome, with 0 for none."""

    matched: Map  # as predicted
    found: Map  # the same, as in the target
    missed: Map
    spurious: Map

    def counts(self) -> tuple[int, int, int]:
        """Count the matched, missed and spurious objects."""
        return tuple(len(np.setdiff1d(each, 0)) for each in (self.matched, self.missed, self.spurious))  # type: ignore[return-value]


def measured_objects(metrics: MetricsConfig | None, target: Map | None, prediction: Map | None) -> Objects:
    """Match the objects of a case as the measures of a run do, with or without object numbers.

    Of several measures, one with a single threshold comes before those with several thresholds or none.
    """
    measures = [one for one in (metrics.measures if metrics else ()) if isinstance(one, ObjectsConfig)]
    if not measures:
        return Objects(target=target, prediction=prediction)
    measure: Any = max(measures, key=lambda one: isinstance(one, MatchedConfig))  # the first of them
    numbers: dict[str, Any] = {"target": target, "prediction": prediction} if measure.objects == "maps" else {}
    thresholds = getattr(measure, "thresholds", (THRESHOLD,))  # the lowest leads
    threshold = measure.threshold if isinstance(measure, MatchedConfig) else thresholds[0]
    return Objects(**numbers, connectivity=measure.connectivity, threshold=threshold, classes=measure.classes)


def find_kinds(objects: Objects, target: Map, labels: Map, spec: ClassSpec) -> ObjectKinds:
    """Match the objects of each class one to one by IoU; ignored pixels belong to none.

    Parameters
    ----------
    objects
        Whose `matched` is True.
    target, labels : (H, W), integer
        Classes. An object is the part of its number in one class. Without a background class, every class has objects.

    Examples
    --------
    >>> spec = ClassSpec(task="binary", names=("none", "cell"), colours=((0, 0, 0), (9, 9, 9)))
    >>> both = Objects(target=np.array([[1, 1, 1, 0, 2, 2]]), prediction=np.array([[7, 7, 0, 0, 0, 9]]))
    >>> found = find_kinds(both, both.target > 0, both.prediction > 0, spec)
    >>> found.matched, found.missed, found.spurious
    (array([[7, 7, 0, 0, 0, 0]]), array([[0, 0, 0, 0, 2, 2]]), array([[0, 0, 0, 0, 0, 9]]))
    """
    void, first = ~spec.valid(target), 0
    found = {name: np.zeros(target.shape, np.int64) for name in ("matched", "found", "missed", "spurious")}
    counted = spec.names[1 if spec.has_background else 0 :] if objects.classes is None else objects.classes
    for k in np.union1d(target, labels).astype(int):
        if k >= spec.num_classes or spec.names[k] not in counted:
            continue
        ours = number_objects([np.asarray(target == k)], objects.target, objects.connectivity or 8)
        theirs = number_objects([np.asarray(labels == k)], objects.prediction, objects.connectivity or 8)
        match = match_instances(ours, theirs, threshold=objects.threshold, void=void)
        parts = {
            "matched": (theirs, match.instance_ids),
            "found": (ours, match.target_ids),
            "missed": (ours, match.missed_ids),
            "spurious": (theirs, match.spurious_ids),
        }
        for name, (numbers, ids) in parts.items():
            kept = np.isin(numbers, ids) & ~void
            found[name][kept] = numbers[kept].astype(np.int64) + first
        first += 1 + int(max(ours.max(initial=0), theirs.max(initial=0)))  # objects of two classes have two numbers
    return ObjectKinds(**found)
