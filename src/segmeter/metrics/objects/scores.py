"""Scores over the objects of two maps: of matched pairs, the aggregated Jaccard index, and of partitions of pixels.

Axis letters: M pairs that match, P pairs of objects that share pixels.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import xlogy

from segmeter.checks import expected, real_number
from segmeter.errors import InputError
from segmeter.metrics.arrays import (
    BoolArray,
    FloatArray,
    IntArray,
    Status,
    check_maps,
    check_spacing,
    find_status,
    union_box,
)
from segmeter.metrics.objects.matching import Overlaps, choose_pairs, find_overlaps, renumber
from segmeter.metrics.surfaces.distances import distances_by_class

Missed = Literal["pixels", "segment"]

_LARGEST = np.iinfo(np.int64).max


@dataclass(frozen=True, kw_only=True)
class InstanceMatch:
    """The matched objects of two maps, and how well they agree. Means over no match are NaN.

    Parameters
    ----------
    status
        "ok", or which of the maps holds no object.
    target_ids, instance_ids : (M,), int64
        The matched pairs, by ascending target id.
    iou, dice : (M,), float64
        Of each pair.
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
        Over matches.
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

    Objects match where their IoU is above `threshold`. From 0.5 on at most one partner can be; below it the pairs are
    those whose IoUs have the largest sum (Hungarian method). Of maps with classes, pass one class at a time.

    Parameters
    ----------
    target, instances : (H, W) or (D, H, W), integer
        Reference and predicted objects of one shape. 0 is background; every other value >= 1 is one object.
    threshold
        IoU that a match exceeds, 0 to 1 (1 excluded).
    spacing
        Pixel edge per axis, in axis order, all > 0: surface distances of the matches are measured too.
    void : same shape, bool
        True where the target is undecided. Such pixels belong to no object of either map, and a
        predicted object without a partner that lies in them by more than half is not spurious (panopticapi's rule,
        which the measures of objects of an evaluation follow as well).

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
    >>> found = match_instances(target, instances)
    >>> found.target_ids, found.instance_ids, (found.tp, found.fp, found.fn)
    (array([1]), array([7]), (1, 1, 1))
    >>> found.sq, found.rq, found.mean_dice
    (0.6666666666666666, 0.5, 0.8)
    """
    threshold = real_number("match_instances", "threshold", threshold)
    _check("match_instances", target, instances, threshold=threshold, void=void)
    edges = None if spacing is None else check_spacing("match_instances", spacing, target.ndim)
    overlaps = find_overlaps(target, instances, void)
    chosen = choose_pairs(overlaps, threshold)
    masd = None
    if edges is not None:
        masd = measure_masd(target, instances, void, overlaps, chosen, np.array(edges))
    return _score(overlaps, chosen, masd)


def measure_masd(
    target: NDArray[Any],
    instances: NDArray[Any],
    void: BoolArray | None,
    overlaps: Overlaps,
    chosen: IntArray,
    spacing: FloatArray,
) -> FloatArray:
    """Mean surface distance (M,) of the chosen pairs without their void pixels, from one pass over the maps."""
    if void is not None:
        target, instances = np.where(void, 0, target), np.where(void, 0, instances)
    ids = overlaps.target_ids[overlaps.first[chosen]], overlaps.instance_ids[overlaps.second[chosen]]
    first, second = renumber(target, ids[0]), renumber(instances, ids[1])
    box = union_box(first, second)
    pairs = distances_by_class(first[box], second[box], range(1, len(chosen) + 1), spacing)
    return np.array([(one.from_target.mean() + one.from_mask.mean()) / 2 for one in pairs], np.float64)


def _score(overlaps: Overlaps, chosen: IntArray, masd: FloatArray | None) -> InstanceMatch:
    first, second = overlaps.first[chosen], overlaps.second[chosen]
    iou, dice = overlaps.iou()[chosen], overlaps.dice()[chosen]
    missed = np.delete(overlaps.target_ids, first)
    spurious = overlaps.instance_ids[overlaps.spurious(chosen)]
    tp, fp, fn = len(chosen), len(spurious), len(missed)
    objects = tp + fp / 2 + fn / 2
    return InstanceMatch(
        status=find_status(tp + fn, tp + fp),
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
        sq=_mean(iou),
        pq=float(iou.sum()) / objects if objects else math.nan,
        mean_dice=_mean(dice),
        mean_masd=math.nan if masd is None else _mean(masd),
    )


def _mean(values: FloatArray) -> float:
    return float(values.mean()) if values.size else math.nan


def _check(
    where: str,
    target: NDArray[Any],
    instances: NDArray[Any],
    *,
    threshold: float,
    void: BoolArray | None,
) -> None:
    check_maps(where, target, instances, "instances", kinds="iu", axes=(2, 3))
    problems = []
    plain = isinstance(void, np.ndarray) and not isinstance(void, np.ma.MaskedArray)
    if void is not None and not (plain and void.dtype == np.bool_ and void.shape == target.shape):
        rule = f"to have dtype bool and the target's shape {target.shape}"
        given = f"{void.dtype} {void.shape}" if plain else type(void).__name__
        problems.append(expected(where, "void", rule, given))
    for argument, array in (("target", target), ("instances", instances)):
        if array.size and (array.min() < 0 or array.max() > _LARGEST):
            given = f"{array.min()} to {array.max()}"
            problems.append(expected(where, argument, "to hold ids between 0 and 2**63 - 1", given))
    if not 0 <= threshold < 1:
        problems.append(expected(where, "threshold", "between 0 and 1, below 1", threshold))
    if problems:
        raise InputError(problems)


def aggregated_jaccard(overlaps: Overlaps) -> tuple[int, int]:
    """Numerator and denominator of the aggregated Jaccard index, in pixels.

    Every target object takes the prediction with the largest IoU, of several the one that shares most pixels with it;
    several may take the same one. The intersections and the unions of these pairs are added up. Predictions that no
    target took add their pixels to the union, except those that lie mostly in void.

    References
    ----------
    Kumar et al. 2017, IEEE Trans. Med. Imaging 36, Algorithm 1; the measure of the MoNuSeg challenge.
    """
    order = np.lexsort((overlaps.second, -overlaps.common, -overlaps.iou(), overlaps.first))
    taken, place = np.unique(overlaps.first[order], return_index=True)
    best = order[place]
    second, common = overlaps.second[best], int(overlaps.common[best].sum())
    union = int((overlaps.target_sizes[taken] + overlaps.instance_sizes[second]).sum()) - common
    union += int(np.delete(overlaps.target_sizes, taken).sum())
    return common, union + int(overlaps.instance_sizes[overlaps.spurious(best)].sum())


@dataclass(frozen=True, kw_only=True)
class PartitionScores:
    """How far the prediction cuts the target's objects apart, and how far it joins them; NaN without such an object.

    Parameters
    ----------
    split, merge
        Variation of information in bits: the entropy of the prediction given the target (objects that are cut in
        parts), and that of the target given the prediction (objects that are joined). 0 is best.
    adapted_rand_error
        1 - the harmonic mean of `precision` and `recall`, 0 to 1; 0 is best.
    precision, recall
        Of the pairs of pixels of one target object, the share that one segment of the prediction holds; and of the
        pairs of pixels of one segment, the share that lies in one target object.
    """

    split: float
    merge: float
    adapted_rand_error: float
    precision: float
    recall: float


def partition_scores(overlaps: Overlaps, missed: Missed = "pixels") -> PartitionScores:
    """Score the partition of the pixels of all target objects by the prediction.

    Parameters
    ----------
    overlaps
        From `find_overlaps`.
    missed
        What the pixels of target objects are that the prediction leaves to the background: "pixels", segments of one
        pixel each, so that an object that is missed is not one that is found whole; or one "segment" more, which is
        scikit-image's rule with ``ignore_labels=[0]``.

    References
    ----------
    Meila 2007, doi:10.1016/j.jmva.2006.11.013 (variation of information). Arganda-Carreras et al. 2015,
    doi:10.3389/fnana.2015.00142 (adapted Rand error).
    """
    joint, rows, columns = count_pixels(overlaps, missed)
    total = rows.sum()
    if not total:
        return PartitionScores(
            split=math.nan, merge=math.nan, adapted_rand_error=math.nan, precision=math.nan, recall=math.nan
        )
    inner, own, other = (float(xlogy(part, part).sum()) for part in (joint, rows, columns))
    pairs, in_target, in_segments = map(count_pairs, (joint, rows, columns))
    return PartitionScores(
        split=max(own - inner, 0.0) / total / math.log(2),
        merge=max(other - inner, 0.0) / total / math.log(2),
        adapted_rand_error=1 - 2 * pairs / (in_target + in_segments) if in_target + in_segments else math.nan,
        precision=pairs / in_target if in_target else math.nan,
        recall=pairs / in_segments if in_segments else math.nan,
    )


def count_pixels(overlaps: Overlaps, missed: Missed) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Pixels in common (P,), of each target object, and of each segment, all within the target's objects.

    Segments of one pixel are left out: they add nothing to entropies and pairs.
    """
    joint, columns = overlaps.common, np.bincount(overlaps.second, overlaps.common, len(overlaps.instance_ids))
    if missed == "segment":
        outside = overlaps.target_sizes - np.bincount(overlaps.first, joint, len(overlaps.target_ids))
        joint, columns = np.concatenate([joint, outside]), np.append(columns, outside.sum())
    return joint.astype(np.float64), overlaps.target_sizes.astype(np.float64), columns.astype(np.float64)


def count_pairs(sizes: FloatArray) -> float:
    """Ordered pairs of pixels within parts of these sizes."""
    return float((sizes * (sizes - 1)).sum())
