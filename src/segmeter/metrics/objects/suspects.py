"""Finds objects whose reference is likely wrong: a model that wasn't trained on them disagrees with it.

There are four kinds of suspects. An "extra" object is in the reference, but the model sees background. A "missing"
object is seen by the model alone. A "class" suspect has another class by the model, and a "border" suspect another
outline. Axis letters: R regions of a map, C classes.
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

_SHRINK = 30.0  # pixels: evidence for an object of this size has half its weight, as slivers are never certain
_DISCOUNT = 0.2  # Share of the usual confidence to allow for. More silences rare classes, less lets them fill the list.
_SAME = 0.3  # From this IoU on, a region of the model is an object that the reference already has.
_AROUND = 7  # A border may be wrong by up to this many pixels on each side.
_EIGHT = np.ones((3, 3), bool)
CROPS = "crops"  # This folder of a run has a picture of each of the first suspects.


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
        The region within its box. For a border, the pixels in doubt.
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
        Probabilities of a model that was not trained on this case. For a binary task, C is 1 or 2.
    spec
        The classes of a binary or multiclass task.
    instances : (H, W), integer
        The objects of the reference; None takes connected pixels of a class.
    confidence : (C,)
        The model's usual probability of each class where the reference has it, from `confidence_sums` over all cases. A
        reference is suspected less if the model is seldom sure of its class. None expects the same of all classes.

    Returns
    -------
    Every object with evidence against it, and the border of every object that the model confirms, unordered.

    References
    ----------
    Northcutt et al. 2021, "Confident learning", J. Artif. Intell. Res. 70 (out-of-sample probabilities against the
    given label). Object by object, and borders apart: ours.
    """
    probs = _all_classes(probs, spec)
    labels = probs.argmax(axis=0)
    valid = spec.valid(target)
    given = np.where(valid, target, 0).astype(np.intp)
    given_probs = np.take_along_axis(probs, given[None], axis=0)[0]
    usual = np.zeros(len(probs)) if confidence is None else _DISCOUNT * np.nan_to_num(confidence)
    lead = probs.max(axis=0) - given_probs - (usual[labels] - usual[given])  # certainty against the reference
    lead = np.where(valid & (labels != given), lead, 0.0).astype(np.float32)
    target_regions = number_regions(target, valid, spec, instances)
    model_regions = number_regions(labels, valid, spec, None)
    pairs = find_overlaps(target_regions, model_regions)
    doubted = _find_doubted(target_regions, probs, given, usual, spec)
    same = (pairs.iou() >= _SAME) & np.isin(pairs.target_ids[pairs.first], [*doubted])
    covered = pairs.instance_ids[pairs.second[same]]  # model regions that a doubted object of the reference covers
    unlisted = _find_unlisted(model_regions, labels, given, lead, spec, covered=set(covered.tolist()))
    borders = _find_borders(target_regions, model_regions, pairs, labels, given, lead, doubted=doubted)
    return [*doubted.values(), *unlisted, *borders]


def confidence_sums(target: NDArray[Any], probs: NDArray[Any], spec: ClassSpec) -> NDArray[np.float64]:
    """Sum up one case (2, C): the probability of the given class over its pixels, and the number of these pixels."""
    probs = _all_classes(probs, spec)
    valid = spec.valid(target)
    given = target[valid].astype(np.intp)
    given_probs = np.take_along_axis(probs[:, valid], given[None], axis=0)[0]
    sums = [np.bincount(given, weights, minlength=len(probs)) for weights in (given_probs, None)]
    return np.stack(sums).astype(np.float64)


def _all_classes(probs: NDArray[Any], spec: ClassSpec) -> NDArray[np.float32]:
    """Add the background's probability of a binary task if it is missing."""
    return np.concatenate([1 - probs, probs]) if spec.task == "binary" and len(probs) == 1 else probs


def number_regions(
    labels: NDArray[Any], valid: BoolArray, spec: ClassSpec, instances: NDArray[Any] | None
) -> NDArray[np.int32]:
    """Number the objects from 1: those of `instances`, or else the connected pixels of each class. Background and
    ignored pixels are 0.
    """
    if instances is not None:
        valid_ids = np.append(instances.dtype.type(0), np.where(valid, instances, 0))  # contains 0, so that 0 stays 0
        return np.unique(valid_ids, return_inverse=True)[1][1:].reshape(labels.shape).astype(np.int32)
    numbered = np.zeros(labels.shape, np.int32)
    count = 0
    for k in range(int(spec.has_background), spec.num_classes):
        parts, n_parts = label_parts((labels == k) & valid)
        numbered[parts > 0] = parts[parts > 0] + count
        count += n_parts
    return numbered


def _sums(regions: NDArray[np.int32], weights: NDArray[Any] | None = None) -> FloatArray:
    """Sum the weights, or count pixels, in each region (R + 1,). The first sum is over pixels outside all regions."""
    flat = None if weights is None else weights.ravel()
    return np.bincount(regions.ravel(), flat, minlength=int(regions.max(initial=0)) + 1).astype(np.float64)


def _find_doubted(
    regions: NDArray[np.int32], probs: NDArray[np.float32], given: NDArray[Any], usual: FloatArray, spec: ClassSpec
) -> dict[int, Suspect]:
    """Find objects of the reference, by number, that the model sees as another class or not at all."""
    sizes = _sums(regions)
    means = divide(np.stack([_sums(regions, plane) for plane in probs], axis=1), sizes[:, None])
    rows = np.arange(len(sizes))
    region_class = np.zeros(len(sizes), np.intp)
    region_class[regions.ravel()] = given.ravel()
    others = means.copy()
    others[rows, region_class] = -1
    best = others.argmax(axis=1)
    against = others.max(axis=1) - means[rows, region_class]
    scores = (against - (usual[best] - usual[region_class])) * (sizes / (sizes + _SHRINK))
    suspects = {}
    for number, box in enumerate(ndimage.find_objects(regions), start=1):
        if against[number] > 0:
            kind: Kind = "extra" if spec.has_background and best[number] == 0 else "class"
            mask = regions[box] == number
            suspects[number] = make_suspect(kind, region_class[number], best[number], scores[number], box, mask)
    return suspects


def _find_unlisted(
    regions: NDArray[np.int32],
    labels: NDArray[Any],
    given: NDArray[Any],
    lead: NDArray[np.float32],
    spec: ClassSpec,
    *,
    covered: set[int],
) -> list[Suspect]:
    """Find the model's objects, except for covered ones, that lie mostly in another class of the reference."""
    sizes = _sums(regions)
    differing = _sums(regions, labels != given)
    scores = divide(_sums(regions, lead), sizes) * (sizes / (sizes + _SHRINK))
    suspects: list[Suspect] = []
    for number, box in enumerate(ndimage.find_objects(regions), start=1):
        if 2 * differing[number] > sizes[number] and number not in covered:
            mask = regions[box] == number
            given_class = np.bincount(given[box][mask], minlength=spec.num_classes).argmax()
            kind: Kind = "missing" if spec.has_background and given_class == 0 else "class"
            suspects.append(make_suspect(kind, given_class, labels[box][mask][0], scores[number], box, mask))
    return suspects


def _find_borders(
    target_regions: NDArray[np.int32],
    model_regions: NDArray[np.int32],
    pairs: Overlaps,
    labels: NDArray[Any],
    given: NDArray[Any],
    lead: NDArray[np.float32],
    *,
    doubted: Container[int],
) -> list[Suspect]:
    """Measure for each object that the model confirms how far its border lies outwards or inwards.

    Doubts on the two sides cancel: a model that is unsure of a border doubts both sides, but a wrong border is doubted
    on one side only.
    """
    inner = ndimage.grey_erosion(target_regions, (3, 3))
    length = _sums(target_regions, (target_regions > 0) & (inner != target_regions))
    edge = inner != ndimage.grey_dilation(target_regions, (3, 3))
    partner = np.zeros(int(model_regions.max(initial=0)) + 1, np.int32)  # the target region of each model region
    order = np.argsort(pairs.common, kind="stable")
    partner[pairs.instance_ids[pairs.second[order]]] = pairs.target_ids[pairs.first[order]]
    doubt = (labels != given) & ndimage.binary_dilation(edge, _EIGHT, iterations=_AROUND - 1)
    inside = np.where(doubt & (target_regions > 0), target_regions, 0)
    outside = np.where(doubt & (model_regions > 0), partner[model_regions], 0)
    weights = np.maximum(lead, 0).ravel()
    inwards, outwards = (np.bincount(owner.ravel(), weights, minlength=len(length)) for owner in (inside, outside))
    scores = divide(np.abs(outwards - inwards), length)
    sizes = _sums(target_regions)
    suspects: list[Suspect] = []
    for number, box in enumerate(ndimage.find_objects(target_regions), start=1):
        if not scores[number] > 0 or number in doubted:
            continue
        wider = tuple(slice(max(0, side.start - _AROUND), side.stop + _AROUND) for side in box)
        mask = (inside[wider] == number) | (outside[wider] == number)
        if mask.any():
            k = given[box][target_regions[box] == number][0]
            suspects.append(make_suspect("border", k, k, scores[number], wider, mask, size=int(sizes[number])))
    return suspects


def make_suspect(
    kind: Kind, given: Any, suggested: Any, score: float, box: Any, mask: BoolArray, size: int | None = None
) -> Suspect:
    """Make a suspect from a mask within a box; the object is as large as the mask, unless a size is given."""
    return Suspect(
        kind=kind,
        given=int(given),
        suggested=int(suggested),
        score=float(score),
        top=box[0].start,
        left=box[1].start,
        mask=mask,
        size=size or int(mask.sum()),
    )
