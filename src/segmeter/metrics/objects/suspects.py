"""Finds objects whose reference is likely wrong: the probabilities of a model that never saw them disagree with it.

An "extra" object is in the reference, where the model sees background. A "missing" one is seen by the model alone. A
"class" suspect is an object of another class, and a "border" suspect one whose outline lies elsewhere.
Axis letters: R regions of a map, C classes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from segmeter.classes import ClassSpec
from segmeter.metrics.arrays import BoolArray, FloatArray, divide
from segmeter.metrics.objects.matching import Overlaps, find_overlaps

Kind = Literal["extra", "missing", "class", "border"]
KINDS: tuple[Kind, ...] = get_args(Kind)
DRAWN = ClassSpec(  # kinds as classes, for maps of suspects
    task="multiclass",
    names=("sound", *KINDS),
    colours=((0, 0, 0), (255, 66, 140), (64, 156, 255), (255, 196, 0), (96, 200, 110)),
)

_SHRINK = 30.0  # pixels: an object of so many has half the weight of its own evidence, as slivers are never sure
_DISCOUNT = 0.5  # of what a class is usually less sure: all of it would silence rare classes (benchmarks/suspects.py)
_SAME = 0.3  # IoU from which a region of the model is the object that the reference already has
_EIGHT = np.ones((3, 3), bool)


@dataclass(frozen=True, kw_only=True, eq=False)
class Suspect:
    """A region of one case whose reference may be wrong.

    Parameters
    ----------
    kind
        What may be wrong.
    given, suggested
        The class by the reference, and by the model; equal for a border.
    score
        The evidence: for a border, the length by which it lies elsewhere, in pixels, weighted by the model's
        certainty. Else the model's certainty against the reference, -1 to 1, less for small regions.
    top, left
        The first line and column of the region's box.
    mask : (h, w), bool
        The region within its box. Of a border, the pixels in doubt.
    size
        Pixels of the object.
    number
        Of the region, in the reference or in the model's labels.
    """

    kind: Kind
    given: int
    suggested: int
    score: float
    top: int
    left: int
    mask: BoolArray
    size: int
    number: int = 0

    @property
    def box(self) -> tuple[slice, slice]:
        """Lines and columns of the region."""
        height, width = self.mask.shape
        return slice(self.top, self.top + height), slice(self.left, self.left + width)


def find_suspects(
    target: NDArray[Any],
    probs: NDArray[Any],
    spec: ClassSpec,
    *,
    instances: NDArray[Any] | None = None,
    confidence: FloatArray | None = None,
) -> list[Suspect]:
    """Compare the reference of a case with a model's probabilities, region by region.

    Parameters
    ----------
    target : (H, W), integer
        The reference; ignored pixels are left out.
    probs : (C, H, W), float32 in [0, 1]
        Of a model that was not trained on this case. For a binary task, C is 1 or 2.
    spec
        Of a binary or multiclass task.
    instances : (H, W), integer
        The objects of the reference; None takes connected pixels of a class.
    confidence : (C,)
        The model's usual probability of each class where the reference has it, from `confidence_sums` over all cases. A
        class that the model is seldom sure of is held against the reference less. None expects the same of all.

    Returns
    -------
    Every object with evidence against it, and the border of every object that the model confirms; in no order.

    References
    ----------
    Northcutt et al. 2021, "Confident learning", J. Artif. Intell. Res. 70 (out-of-sample probabilities against the
    given label). Object by object, and borders apart: ours.
    """
    values = _as_probs(probs, spec)
    labels = values.argmax(axis=0)
    valid = spec.valid(target)
    given = np.where(valid, target, 0).astype(np.intp)
    own = np.take_along_axis(values, given[None], axis=0)[0]
    usual = np.zeros(len(values)) if confidence is None else _DISCOUNT * np.nan_to_num(confidence)
    lead = values.max(axis=0) - own - (usual[labels] - usual[given])  # certainty against the reference
    lead = np.where(valid & (labels != given), lead, 0.0).astype(np.float32)
    ours = number_regions(target, valid, spec, instances)
    theirs = number_regions(labels, valid, spec, None)
    pairs = find_overlaps(ours, theirs)
    doubted = _of_reference(ours, values, given, usual, spec)
    numbers = {one.number for one in doubted}
    known = _alike(pairs, numbers)
    seen = [one for one in _of_model(theirs, values, labels, given, lead, spec) if one.number not in known]
    return [*doubted, *seen, *_of_borders(ours, theirs, pairs, labels, given, lead, numbers)]


def confidence_sums(target: NDArray[Any], probs: NDArray[Any], spec: ClassSpec) -> NDArray[np.float64]:
    """Sums (2, C) of one case: the probability of the given class over its pixels, and how many there are."""
    values, valid = _as_probs(probs, spec), spec.valid(target)
    given = target[valid].astype(np.intp)
    own = np.take_along_axis(values[:, valid], given[None], axis=0)[0]
    return np.stack([np.bincount(given, weights, minlength=len(values)) for weights in (own, None)]).astype(np.float64)


def _as_probs(probs: NDArray[Any], spec: ClassSpec) -> NDArray[np.float32]:
    return np.concatenate([1 - probs, probs]) if spec.task == "binary" and len(probs) == 1 else probs


def number_regions(
    labels: NDArray[Any], valid: BoolArray, spec: ClassSpec, instances: NDArray[Any] | None
) -> NDArray[np.int32]:
    """Number the connected pixels of each class, from 1; 0 is background and ignored pixels."""
    if instances is not None:
        return np.unique(np.where(valid, instances, 0), return_inverse=True)[1].reshape(labels.shape).astype(np.int32)
    numbered, count = np.zeros(labels.shape, np.int32), 0
    for k in range(int(spec.has_background), spec.num_classes):
        parts, number = ndimage.label((labels == k) & valid, _EIGHT)
        numbered[parts > 0] = parts[parts > 0] + count
        count += number
    return numbered


def _sums(regions: NDArray[np.int32], weights: NDArray[Any] | None = None) -> FloatArray:
    """Sums over the pixels of each region (R + 1,); the first is of no region."""
    flat = None if weights is None else weights.ravel()
    return np.bincount(regions.ravel(), flat, minlength=int(regions.max(initial=0)) + 1).astype(np.float64)


def _weight(sizes: FloatArray) -> FloatArray:
    return sizes / (sizes + _SHRINK)


def _of_reference(
    regions: NDArray[np.int32], values: NDArray[np.float32], given: NDArray[Any], usual: FloatArray, spec: ClassSpec
) -> list[Suspect]:
    """Objects of the reference that the model sees as another class, or not at all."""
    sizes = _sums(regions)
    if len(sizes) < 2:
        return []
    means = divide(np.stack([_sums(regions, plane) for plane in values], axis=1), sizes[:, None])
    first = np.zeros(len(sizes), np.intp)
    first[regions.ravel()] = given.ravel()
    rows = np.arange(len(sizes))
    own, others = means[rows, first], means.copy()
    others[rows, first] = -1
    best = others.argmax(axis=1)
    against = others.max(axis=1) - own
    scores = (against - (usual[best] - usual[first])) * _weight(sizes)
    boxes, found = ndimage.find_objects(regions), []
    for number in np.flatnonzero(np.nan_to_num(against) > 0):
        if number:
            kind: Kind = "extra" if spec.has_background and best[number] == 0 else "class"
            classes = int(first[number]), int(best[number])
            found.append(_cut(kind, classes, scores[number], regions, boxes, int(number)))
    return found


def _of_model(
    regions: NDArray[np.int32],
    values: NDArray[np.float32],
    labels: NDArray[Any],
    given: NDArray[Any],
    lead: NDArray[np.float32],
    spec: ClassSpec,
) -> list[Suspect]:
    """Objects of the model most of which the reference gives to another class."""
    sizes = _sums(regions)
    wrong = _sums(regions, (labels != given).astype(np.float64))
    scores, boxes, found = divide(_sums(regions, lead), sizes) * _weight(sizes), ndimage.find_objects(regions), []
    for number in np.flatnonzero(2 * wrong > sizes):
        if number:
            one = _cut("missing", (0, 0), scores[number], regions, boxes, int(number))
            names = np.bincount(given[one.box][one.mask], minlength=spec.num_classes)
            known = int(names.argmax())
            kind: Kind = "missing" if spec.has_background and known == 0 else "class"
            suggested = int(labels[one.box][one.mask][0])
            found.append(replace(one, kind=kind, given=known, suggested=suggested))
    return found


def _of_borders(
    ours: NDArray[np.int32],
    theirs: NDArray[np.int32],
    pairs: Overlaps,
    labels: NDArray[Any],
    given: NDArray[Any],
    lead: NDArray[np.float32],
    suspected: set[int],
) -> list[Suspect]:
    """For each object that the model confirms, how far its border lies elsewhere: pixels in doubt per border pixel."""
    edges = (ours > 0) & (ndimage.grey_erosion(ours, (3, 3)) != ours)
    length = _sums(ours, edges.astype(np.float64))
    partner = np.zeros(int(theirs.max(initial=0)) + 1, np.int32)  # of each region of the model
    order = np.argsort(pairs.common, kind="stable")
    partner[pairs.instance_ids[pairs.second[order]]] = pairs.target_ids[pairs.first[order]]
    doubt = labels != given
    lost = np.where(doubt & (ours > 0), ours, 0)
    beyond = np.where(doubt & (theirs > 0), partner[theirs], 0)
    away = np.zeros(len(length))
    for owner in (lost, beyond):
        away += np.bincount(owner.ravel(), np.maximum(lead, 0).ravel(), minlength=len(length))
    away[0] = 0
    scores, found = divide(away, length), []
    boxes = ndimage.find_objects(ours)
    sizes = _sums(ours)
    for number in np.flatnonzero(np.nan_to_num(scores) > 0):
        if number in suspected:
            continue
        rows, columns = (slice(max(0, each.start - 8), each.stop + 8) for each in boxes[number - 1])
        mask = (lost[rows, columns] == number) | (beyond[rows, columns] == number)
        if mask.any():
            known = int(given[rows, columns][ours[rows, columns] == number][0])
            place: dict[str, Any] = {"top": rows.start, "left": columns.start, "mask": mask, "size": int(sizes[number])}
            place |= {"given": known, "suggested": known, "number": int(number)}
            found.append(Suspect(kind="border", score=float(scores[number]), **place))
    return found


def _cut(
    kind: Kind,
    classes: tuple[int, int],
    score: float,
    regions: NDArray[np.int32],
    boxes: Sequence[Any],
    number: int,
) -> Suspect:
    rows, columns = boxes[number - 1]
    mask = regions[rows, columns] == number
    place: dict[str, Any] = {"top": rows.start, "left": columns.start, "mask": mask, "size": int(mask.sum())}
    place |= {"given": classes[0], "suggested": classes[1], "number": number}
    return Suspect(kind=kind, score=float(score), **place)


def _alike(pairs: Overlaps, numbers: set[int]) -> set[int]:
    """Regions of the model that a doubted object of the reference already covers."""
    sizes = pairs.target_sizes[pairs.first] + pairs.instance_sizes[pairs.second] - pairs.common
    same = (pairs.common >= _SAME * sizes) & np.isin(pairs.target_ids[pairs.first], list(numbers))
    return set(pairs.instance_ids[pairs.second[same]].tolist())
