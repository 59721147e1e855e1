"""Scores objects: matched pairs of two maps, and lesions as challenges score them, including empty cases.

Axis letters: M pairs that match.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from segmeter.checks import expected, real_number
from segmeter.errors import InputError
from segmeter.metrics import arrays
from segmeter.metrics.arrays import BoolArray, FloatArray, IntArray, Status
from segmeter.metrics.distances import distances_by_class
from segmeter.metrics.objects.matching import Overlaps, choose_pairs, find_overlaps, label_parts, renumber
from segmeter.metrics.surfaces import surface_metrics


@dataclass(frozen=True, kw_only=True)
class InstanceMatch:
    """The matched objects of two maps, and how well they agree. Means over no match are NaN.

    Parameters
    ----------
    status
        "ok", or which of the maps contains no object.
    target_ids, instance_ids : (M,), int64
        The matched pairs, by ascending target id.
    iou, dice : (M,), float64
        IoU and Dice of each pair.
    masd : (M,), float64, or None
        Mean surface distance of each pair, in the unit of the spacing; None without a spacing.
    missed_ids, spurious_ids : int64
        Objects of the target, and of the prediction, without a partner.
    tp, fp, fn
        Matches, spurious and missed objects.
    rq
        Recognition quality, tp / (tp + fp/2 + fn/2), which is F1 over objects.
    sq
        Segmentation quality: mean IoU over matches.
    pq
        Panoptic quality: the sum of IoU over tp + fp/2 + fn/2. 0 without a match, NaN where both maps are empty.
    mean_dice, mean_masd
        Means over the matches.
    """

    status: Status
    target_ids: IntArray
    instance_ids: IntArray
    iou: FloatArray
    dice: FloatArray
    masd: FloatArray | None
    missed_ids: IntArray
    spurious_ids: IntArray
    tp: int
    fp: int
    fn: int
    rq: float
    sq: float
    pq: float
    mean_dice: float
    mean_masd: float


def match_instances(
    target: NDArray[Any],
    instances: NDArray[Any],
    *,
    threshold: float = 0.5,
    spacing: Sequence[float] | None = None,
    void: BoolArray | None = None,
) -> InstanceMatch:
    """Match the objects of two maps by IoU, one to one, and score the matches.

    Objects match where their IoU is above `threshold`. From 0.5 on, an object can have at most one partner. Below it,
    pairs are chosen so that the sum of IoUs is largest (Hungarian method). If maps have classes, pass one class at a
    time.

    Parameters
    ----------
    target, instances : (H, W) or (D, H, W), integer
        Reference and predicted objects of one shape. 0 is background; every other value >= 1 is one object.
    threshold
        IoU that a match exceeds, 0 to 1 (1 excluded).
    spacing
        Pixel edge per axis, in axis order, all > 0: surface distances of the matches are measured too.
    void : same shape, bool
        True where the target is undecided. Such pixels belong to no object of either map, and a predicted object
        without a partner is not spurious if more than half of it is void (panopticapi's rule, as in measures).

    Returns
    -------
    InstanceMatch

    Raises
    ------
    InputError
        Shapes differ, a dtype is not integer, an id is negative, or an option is out of range.

    References
    ----------
    Kirillov et al. 2019, arXiv:1801.00868 (PQ, uniqueness, void).

    Examples
    --------
    >>> target = np.array([[1, 1, 1, 0, 2, 2]])
    >>> instances = np.array([[7, 7, 0, 0, 0, 9]])
    >>> match = match_instances(target, instances)
    >>> match.target_ids, match.instance_ids, (match.tp, match.fp, match.fn)
    (array([1]), array([7]), (1, 1, 1))
    >>> match.sq, match.rq, match.mean_dice
    (0.6666666666666666, 0.5, 0.8)
    """
    where = "match_instances"
    threshold = real_number(where, "threshold", threshold)
    arrays.check_maps(where, target, instances, "instances", kinds="iu", axes=(2, 3))
    if void is not None:
        arrays.check_maps(where, target != 0, void, "void", kinds="b")
    for argument, ids in (("target", target), ("instances", instances)):
        arrays.check_ids(where, argument, ids)
    if not 0 <= threshold < 1:
        raise InputError(expected(where, "threshold", "to be at least 0 and below 1", threshold))
    edges = None if spacing is None else arrays.validated_spacing(where, spacing, target.ndim)
    overlaps = find_overlaps(target, instances, void)
    chosen = choose_pairs(overlaps, threshold)
    masd = None if edges is None else measure_masd(target, instances, void, overlaps, chosen, np.array(edges))
    first, second = overlaps.first[chosen], overlaps.second[chosen]
    iou, dice = overlaps.iou()[chosen], overlaps.dice()[chosen]
    missed, spurious = np.delete(overlaps.target_ids, first), overlaps.instance_ids[overlaps.spurious(chosen)]
    tp, fp, fn = len(chosen), len(spurious), len(missed)
    objects = tp + fp / 2 + fn / 2
    return InstanceMatch(
        status=arrays.find_status(tp + fn, tp + fp),
        target_ids=overlaps.target_ids[first],
        instance_ids=overlaps.instance_ids[second],
        iou=iou,
        dice=dice,
        masd=masd,
        missed_ids=missed,
        spurious_ids=spurious,
        tp=tp,
        fp=fp,
        fn=fn,
        rq=tp / objects if objects else math.nan,
        sq=float(arrays.mean_defined(iou)),
        pq=float(iou.sum()) / objects if objects else math.nan,
        mean_dice=float(arrays.mean_defined(dice)),
        mean_masd=math.nan if masd is None else float(arrays.mean_defined(masd)),
    )


def measure_masd(
    target: NDArray[Any],
    instances: NDArray[Any],
    void: BoolArray | None,
    overlaps: Overlaps,
    chosen: IntArray,
    spacing: FloatArray,
) -> FloatArray:
    """Compute the mean surface distance (M,) of the chosen pairs without void pixels, in one pass over the maps."""
    if void is not None:
        target, instances = np.where(void, 0, target), np.where(void, 0, instances)
    target = renumber(target, overlaps.target_ids[overlaps.first[chosen]])
    instances = renumber(instances, overlaps.instance_ids[overlaps.second[chosen]])
    box = arrays.union_box(target, instances)
    pairs = distances_by_class(target[box], instances[box], range(1, len(chosen) + 1), spacing)
    return np.array([(forth.mean() + back.mean()) / 2 for forth, back in pairs], np.float64)


BRATS_PENALTY = 374.0  # mm: the HD95 of a lesion that is missed or spurious


@dataclass(frozen=True, kw_only=True)
class BratsScores:
    """Lesion-wise Dice and HD95 of one case, and how many lesions were found, spurious and missed."""

    dice: float
    hd95: float
    tp: int
    fp: int
    fn: int


def brats_lesions(
    target: BoolArray, labels: BoolArray, *, spacing: tuple[float, ...], dilation: int = 3, least: float = 50.0
) -> BratsScores:
    """Score lesions as BraTS 2023 does.

    Parts of the target that meet when dilated are one lesion. Its prediction consists of the predicted parts that touch
    the dilated lesion. Lesions of a volume up to `least` don't count. Predicted parts that touch no lesion are
    spurious: each counts as a lesion with a Dice of 0 and an HD95 of 374. Means are over the lesions that count. If
    there are none, the Dice is 1 and the HD95 0.

    Parameters
    ----------
    target, labels : (H, W) or (D, H, W), bool
    spacing
        Pixel edge per axis, in axis order.
    dilation
        Steps of dilation: 3 for gliomas and children, 1 for meningiomas and metastases.
    least
        Volume in the spacing's unit; 2 for metastases, else 50.

    References
    ----------
    Saluja et al., BraTS-2023-Metrics (the challenge's code); Moawad et al. 2023, arXiv:2306.00838.
    """
    step = ndimage.generate_binary_structure(target.ndim, min(2, target.ndim))
    grown = ndimage.binary_dilation(target, step, dilation) if dilation else target
    lesions = np.where(target, label_parts(grown)[0], 0)
    parts, n_parts = label_parts(labels)
    voxel = float(np.prod(spacing))
    dice: list[float] = []
    hd95: list[float] = []
    missed = 0
    touching_any: set[int] = set()  # numbers of the predicted parts
    for number in range(1, int(lesions.max(initial=0)) + 1):
        lesion = lesions == number
        dilated = ndimage.binary_dilation(lesion, step, dilation) if dilation else lesion
        touching = set(np.unique(parts[dilated]).tolist()) - {0}
        touching_any |= touching
        if lesion.sum() * voxel <= least:
            continue
        predicted = np.isin(parts, list(touching))
        dice.append(float(2 * (predicted & lesion).sum() / (predicted.sum() + lesion.sum())))
        distance = surface_metrics(lesion, predicted, spacing=spacing, surface="marching_cubes").hd95
        hd95.append(distance if np.isfinite(distance) else BRATS_PENALTY)
        missed += not touching
    spurious = n_parts - len(touching_any)
    count = len(dice) + spurious
    return BratsScores(
        dice=sum(dice) / count if count else 1.0,
        hd95=(sum(hd95) + spurious * BRATS_PENALTY) / count if count else 0.0,
        tp=len(dice) - missed,
        fp=spurious,
        fn=missed,
    )


def picai_lesions(target: BoolArray, labels: BoolArray, *, overlap: float = 0.1) -> tuple[int, int, int]:
    """Count found, spurious and missed lesions (tp, fp, fn), as picai_eval does.

    A lesion is found by one candidate whose IoU with it is at least `overlap`. The matching finds as many lesions as
    possible, and among such matchings it has the largest sum of IoUs. Another candidate with enough IoU is neither
    right nor wrong.

    References
    ----------
    Saha et al. 2024, doi:10.1016/S1470-2045(24)00220-1; picai_eval, `evaluate_case`.
    """
    from scipy.optimize import linear_sum_assignment  # a fifth of a second to load, and seldom needed

    pairs = find_overlaps(label_parts(target)[0], label_parts(labels)[0])
    iou = np.zeros((len(pairs.target_ids), len(pairs.instance_ids)))
    iou[pairs.first, pairs.second] = pairs.iou()
    enough = (iou >= overlap) & (iou > 0)
    chosen = linear_sum_assignment(np.where(enough, iou + 1, 0), maximize=True)
    tp = int(enough[chosen].sum())
    return tp, int((~enough.any(axis=0)).sum()), len(pairs.target_ids) - tp


def autopet_volumes(target: BoolArray, labels: BoolArray, *, voxel: float = 1.0) -> tuple[float, float]:
    """Measure the volume of false positives and false negatives as autoPET does: parts that don't overlap the other
    mask.

    Parts of a volume are connected through edges (18 neighbours). `voxel` is the volume of one voxel, and its unit is
    the unit of the result. autoPET gives millilitres, 1000 mm^3.

    References
    ----------
    Gatidis et al. 2024, doi:10.1038/s42256-024-00912-9; the challenge's val_script.
    """
    return voxel * _count_apart(labels, target), voxel * _count_apart(target, labels)


def regional_dice(target: BoolArray, labels: BoolArray) -> FloatArray:
    """Compute the Dice (L,) of each part of the target within the pixels nearest to it, as CC-metrics does.

    Distances are in pixels. A pixel that is equally near to two parts belongs to the first of them. If the target is
    empty, there is one value: 1 if the prediction is empty too, else 0.

    References
    ----------
    Jaus et al. 2024, arXiv:2410.18684 (CC-metrics).
    """
    parts, count = label_parts(target)
    if not count:
        return np.array([0.0 if labels.any() else 1.0])
    nearest, region = np.full(target.shape, np.inf), np.zeros(target.shape, np.int64)
    for number in range(1, count + 1):
        distance = ndimage.distance_transform_edt(parts != number)
        closer = distance < nearest
        nearest[closer], region[closer] = distance[closer], number
    in_target, in_labels, in_both = (
        np.bincount(region[mask], minlength=count + 1)[1:] for mask in (target, labels, target & labels)
    )
    return np.asarray(2 * in_both / (in_target + in_labels))


def _count_apart(mask: BoolArray, other: BoolArray) -> int:
    """Count the pixels in those parts of a mask that don't overlap the other mask."""
    parts, count = ndimage.label(mask, ndimage.generate_binary_structure(mask.ndim, min(2, mask.ndim)))
    sizes = np.bincount(parts.reshape(-1), minlength=count + 1)
    overlapping = np.unique(parts[other])
    sizes[overlapping] = 0
    return int(sizes[1:].sum())
