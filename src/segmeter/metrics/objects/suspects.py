"""Finds objects whose reference is likely wrong: the probabilities of a model that never saw them disagree with it.

An "extra" object is in the reference, where the model sees background. A "missing" one is seen by the model alone. A
"class" suspect is an object of another class, and a "border" suspect one whose outline lies elsewhere.
Axis letters: R regions of a map, C classes.
"""

from collections.abc import Container
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from segmeter.classes import ClassSpec
from segmeter.metrics.arrays import BoolArray, FloatArray, divide
from segmeter.metrics.objects.matching import Overlaps, find_overlaps, label_parts

Kind = Literal["extra", "missing", "class", "border"]
KINDS: tuple[Kind, ...] = get_args(Kind)
DRAWN = ClassSpec(  # kinds as classes, for maps of suspects
    task="multiclass",
    names=("sound", *KINDS),
    colours=((0, 0, 0), (255, 66, 140), (64, 156, 255), (255, 196, 0), (96, 200, 110)),
)

_SHRINK = 30.0  # pixels: the size at which the evidence has half its weight, as slivers are never sure
_DISCOUNT = 0.2  # of what a class is usually less sure: more silences rare classes, less lets them crowd the list
_SAME = 0.3  # IoU from which a region of the model is the object that the reference already has
_AROUND = 7  # pixels on each side of a border within which it may lie elsewhere
_EIGHT = np.ones((3, 3), bool)
CROPS = "crops"  # folder of a run with a picture of each of the first suspects


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
        The evidence. For a border, it is the distance in pixels by which the model's border lies outwards or inwards,
        weighted by the model's certainty. Otherwise it is the model's certainty against the reference, -1 to 1, and
        less for small regions.
    top, left
        The first line and column of the region's box.
    mask : (h, w), bool
        The region within its box. Of a border, the pixels in doubt.
    size
        Pixels of the object.
    """

    kind: Kind
    given: int
    suggested: int
    score: float
    top: int
    left: int
    mask: BoolArray
    size: int

    @property
    def box(self) -> tuple[slice, slice]:
        """Return the lines and columns of the region."""
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
    Every object with evidence against it, and the border of every object that the model confirms, unordered.

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
    same = (pairs.iou() >= _SAME) & np.isin(pairs.target_ids[pairs.first], [*doubted])
    known = pairs.instance_ids[pairs.second[same]]  # regions that a suspected object of the reference already covers
    seen = _of_model(theirs, labels, given, lead, spec, known=set(known.tolist()))
    return [*doubted.values(), *seen, *_of_borders(ours, theirs, pairs, labels, given, lead, suspected=doubted)]


def confidence_sums(target: NDArray[Any], probs: NDArray[Any], spec: ClassSpec) -> NDArray[np.float64]:
    """Sum up one case (2, C): the probability of the given class over its pixels, and the number of these pixels."""
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
        held = np.append(0, np.where(valid, instances, 0))
        return np.unique(held, return_inverse=True)[1][1:].reshape(labels.shape).astype(np.int32)
    numbered, count = np.zeros(labels.shape, np.int32), 0
    for k in range(int(spec.has_background), spec.num_classes):
        parts, number = label_parts((labels == k) & valid)
        numbered[parts > 0] = parts[parts > 0] + count
        count += number
    return numbered


def _sums(regions: NDArray[np.int32], weights: NDArray[Any] | None = None) -> FloatArray:
    """Sum over the pixels of each region (R + 1,); the first sum is of pixels outside all regions."""
    flat = None if weights is None else weights.ravel()
    return np.bincount(regions.ravel(), flat, minlength=int(regions.max(initial=0)) + 1).astype(np.float64)


def _of_reference(
    regions: NDArray[np.int32], values: NDArray[np.float32], given: NDArray[Any], usual: FloatArray, spec: ClassSpec
) -> dict[int, Suspect]:
    """Find objects of the reference, by number, that the model sees as another class or not at all."""
    sizes = _sums(regions)
    means = divide(np.stack([_sums(regions, plane) for plane in values], axis=1), sizes[:, None])
    first, rows = np.zeros(len(sizes), np.intp), np.arange(len(sizes))
    first[regions.ravel()] = given.ravel()
    own, others = means[rows, first], means.copy()
    others[rows, first] = -1
    best = others.argmax(axis=1)
    against = others.max(axis=1) - own
    scores = (against - (usual[best] - usual[first])) * (sizes / (sizes + _SHRINK))
    found = {}
    for number, box in enumerate(ndimage.find_objects(regions), start=1):
        if against[number] > 0:
            kind: Kind = "extra" if spec.has_background and best[number] == 0 else "class"
            mask = regions[box] == number
            found[number] = make_suspect(kind, first[number], best[number], scores[number], box, mask)
    return found


def _of_model(
    regions: NDArray[np.int32],
    labels: NDArray[Any],
    given: NDArray[Any],
    lead: NDArray[np.float32],
    spec: ClassSpec,
    *,
    known: set[int],
) -> list[Suspect]:
    """Find the model's objects, except for known ones, that lie mostly in another class of the reference."""
    sizes, found = _sums(regions), list[Suspect]()
    wrong = _sums(regions, labels != given)
    scores = divide(_sums(regions, lead), sizes) * (sizes / (sizes + _SHRINK))
    for number, box in enumerate(ndimage.find_objects(regions), start=1):
        if 2 * wrong[number] > sizes[number] and number not in known:
            mask = regions[box] == number
            believed = np.bincount(given[box][mask], minlength=spec.num_classes).argmax()
            kind: Kind = "missing" if spec.has_background and believed == 0 else "class"
            found.append(make_suspect(kind, believed, labels[box][mask][0], scores[number], box, mask))
    return found


def _of_borders(
    ours: NDArray[np.int32],
    theirs: NDArray[np.int32],
    pairs: Overlaps,
    labels: NDArray[Any],
    given: NDArray[Any],
    lead: NDArray[np.float32],
    *,
    suspected: Container[int],
) -> list[Suspect]:
    """Measure for each object that the model confirms how far its border lies outwards or inwards.

    Doubts on both sides cancel: a model that is unsure of a border doubts both, and a wrong border lies on one.
    """
    inner = ndimage.grey_erosion(ours, (3, 3))
    length = _sums(ours, (ours > 0) & (inner != ours))
    edge = inner != ndimage.grey_dilation(ours, (3, 3))
    partner = np.zeros(int(theirs.max(initial=0)) + 1, np.int32)  # of each region of the model
    order = np.argsort(pairs.common, kind="stable")
    partner[pairs.instance_ids[pairs.second[order]]] = pairs.target_ids[pairs.first[order]]
    doubt = (labels != given) & ndimage.binary_dilation(edge, _EIGHT, iterations=_AROUND - 1)
    lost = np.where(doubt & (ours > 0), ours, 0)
    beyond = np.where(doubt & (theirs > 0), partner[theirs], 0)
    weights = np.maximum(lead, 0).ravel()
    inwards, outwards = (np.bincount(owner.ravel(), weights, minlength=len(length)) for owner in (lost, beyond))
    scores, sizes, found = divide(np.abs(outwards - inwards), length), _sums(ours), list[Suspect]()
    for number, box in enumerate(ndimage.find_objects(ours), start=1):
        if not scores[number] > 0 or number in suspected:
            continue
        wider = tuple(slice(max(0, each.start - _AROUND), each.stop + _AROUND) for each in box)
        mask = (lost[wider] == number) | (beyond[wider] == number)
        if mask.any():
            known = given[box][ours[box] == number][0]
            found.append(make_suspect("border", known, known, scores[number], wider, mask, size=int(sizes[number])))
    return found


def make_suspect(
    kind: Kind, given: Any, suggested: Any, score: float, box: Any, mask: BoolArray, size: int | None = None
) -> Suspect:
    """Make a suspect of a mask within a box; the object is as large as the mask, unless a size is given."""
    place: dict[str, Any] = {"top": box[0].start, "left": box[1].start, "mask": mask, "size": size or int(mask.sum())}
    return Suspect(kind=kind, given=int(given), suggested=int(suggested), score=float(score), **place)
