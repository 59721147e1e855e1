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

THRESHOLD = 0.5  # The IoU of a match is above this, as for panoptic quality.

Map = NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class Objects:
    """The objects of a case, and how they are matched.

    Parameters
    ----------
    target, prediction : (H, W), integer
        Object numbers, with 0 for none; None if they are not known.
    connectivity
        8 or 4: on a side without numbers, the connected parts of a class are its objects. None: that side has none.
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

    matched: Map  # Matched objects with their numbers and pixels of the prediction.
    found: Map  # The same objects with those of the target.
    missed: Map
    spurious: Map

    def counts(self) -> tuple[int, int, int]:
        """Count the matched, missed and spurious objects."""
        return tuple(len(np.setdiff1d(numbers, 0)) for numbers in (self.matched, self.missed, self.spurious))  # type: ignore[return-value]


def measured_objects(metrics: MetricsConfig | None, target: Map | None, prediction: Map | None) -> Objects:
    """Match the objects of a case as the measures of a run do, with or without object numbers.

    Of several measures, one with a single threshold comes before those with several thresholds or none.
    """
    measures = [measure for measure in (metrics.measures if metrics else ()) if isinstance(measure, ObjectsConfig)]
    if not measures:
        return Objects(target=target, prediction=prediction)
    measure: Any = max(measures, key=lambda measure: isinstance(measure, MatchedConfig))  # the first of them
    has_numbers = measure.objects == "maps"
    thresholds = getattr(measure, "thresholds", (THRESHOLD,))  # the lowest comes first
    return Objects(
        target=target if has_numbers else None,
        prediction=prediction if has_numbers else None,
        connectivity=measure.connectivity,
        threshold=measure.threshold if isinstance(measure, MatchedConfig) else thresholds[0],
        classes=measure.classes,
    )


def find_kinds(objects: Objects, target: Map, labels: Map, spec: ClassSpec) -> ObjectKinds:
    """Match the objects of each class one to one by IoU; ignored pixels belong to none.

    Parameters
    ----------
    objects
        The objects of both sides; `Objects.matched` must be True.
    target, labels : (H, W), integer
        Classes. An object is the part of a number's pixels in one class. Without a background class, every class has
        objects.

    Examples
    --------
    >>> spec = ClassSpec(task="binary", names=("none", "cell"), colours=((0, 0, 0), (9, 9, 9)))
    >>> both = Objects(target=np.array([[1, 1, 1, 0, 2, 2]]), prediction=np.array([[7, 7, 0, 0, 0, 9]]))
    >>> found = find_kinds(both, both.target > 0, both.prediction > 0, spec)
    >>> found.matched, found.missed, found.spurious
    (array([[7, 7, 0, 0, 0, 0]]), array([[0, 0, 0, 0, 2, 2]]), array([[0, 0, 0, 0, 0, 9]]))
    """
    void = ~spec.valid(target)
    offset = 0  # added to the numbers of a class, so that objects of two classes never share one
    kinds = {name: np.zeros(target.shape, np.int64) for name in ("matched", "found", "missed", "spurious")}
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
            mask = np.isin(numbers, ids) & ~void
            kinds[name][mask] = numbers[mask].astype(np.int64) + offset
        offset += 1 + int(max(ours.max(initial=0), theirs.max(initial=0)))
    return ObjectKinds(**kinds)
