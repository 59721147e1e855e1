"""Scores of two masks of lesions as challenges define them, empty cases included."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage
from scipy.optimize import linear_sum_assignment

from segmeter.metrics.arrays import BoolArray, FloatArray, IntArray
from segmeter.metrics.objects.matching import find_overlaps
from segmeter.metrics.surfaces.surface import surface_metrics

BRATS_PENALTY = 374.0  # mm, of the HD95 of a lesion that is missed or made up


@dataclass(frozen=True, kw_only=True)
class BratsScores:
    """Lesion-wise Dice and HD95 of one case, and how many lesions were found, made up and missed."""

    dice: float
    hd95: float
    tp: int
    fp: int
    fn: int


def brats_lesions(
    target: BoolArray, labels: BoolArray, *, spacing: tuple[float, ...], dilation: int = 3, least: float = 50.0
) -> BratsScores:
    """Score lesions as BraTS 2023 does.

    Parts of the target that meet when dilated are one lesion. Its prediction is every predicted part that meets the
    lesion, dilated. Lesions of a volume up to `least` do not count; predicted parts that meet none are false. Means are
    over the lesions that count and the false ones, which have a Dice of 0 and an HD95 of 374. Without any of both the
    Dice is 1 and the HD95 0.

    Parameters
    ----------
    target, labels : (H, W) or (D, H, W), bool
    spacing
        Pixel edge per axis, in axis order.
    dilation
        Steps; 3 for gliomas and children, 1 for meningiomas and metastases.
    least
        Volume in the spacing's unit; 2 for metastases, else 50.

    References
    ----------
    Saluja et al., BraTS-2023-Metrics (the challenge's code); Moawad et al. 2023, arXiv:2306.00838.
    """
    step = ndimage.generate_binary_structure(target.ndim, min(2, target.ndim))
    grown = ndimage.binary_dilation(target, step, dilation) if dilation else target
    lesions = np.where(target, _parts(grown), 0)
    parts = _parts(labels)
    voxel = float(np.prod(spacing))
    dice, hd95, found, missed = list[float](), list[float](), 0, 0
    taken: set[int] = set()
    for number in range(1, int(lesions.max(initial=0)) + 1):
        lesion = lesions == number
        near = ndimage.binary_dilation(lesion, step, dilation) if dilation else lesion
        meets = set(np.unique(parts[near]).tolist()) - {0}
        taken |= meets
        if lesion.sum() * voxel <= least:
            continue
        predicted = np.isin(parts, list(meets))
        dice.append(float(2 * (predicted & lesion).sum() / (predicted.sum() + lesion.sum())))
        distance = surface_metrics(lesion, predicted, spacing=spacing, surface="marching_cubes").hd95
        hd95.append(distance if np.isfinite(distance) else BRATS_PENALTY)
        found, missed = found + bool(meets), missed + (not meets)
    false = int(parts.max(initial=0)) - len(taken)
    count = len(dice) + false
    return BratsScores(
        dice=sum(dice) / count if count else 1.0,
        hd95=(sum(hd95) + false * BRATS_PENALTY) / count if count else 0.0,
        tp=found,
        fp=false,
        fn=missed,
    )


def picai_lesions(target: BoolArray, labels: BoolArray, *, overlap: float = 0.1) -> tuple[int, int, int]:
    """Count lesions that are found, made up and missed (tp, fp, fn), as picai_eval does.

    A lesion is found by one candidate whose IoU with it is at least `overlap`: as many as can be, and of these those
    with the most overlap. A further candidate with that much overlap is forgiven, and neither right nor wrong.

    References
    ----------
    Saha et al. 2024, doi:10.1016/S1470-2045(24)00220-1; picai_eval, `evaluate_case`.
    """
    pairs = find_overlaps(_parts(target), _parts(labels))
    table = np.zeros((len(pairs.target_ids), len(pairs.instance_ids)))
    table[pairs.first, pairs.second] = pairs.iou()
    enough = (table >= overlap) & (table > 0)
    chosen = linear_sum_assignment(np.where(enough, table + 1, 0), maximize=True)
    tp = int(enough[chosen].sum())
    return tp, int((~enough.any(axis=0)).sum()), len(pairs.target_ids) - tp


def autopet_volumes(target: BoolArray, labels: BoolArray, *, voxel: float = 1.0) -> tuple[float, float]:
    """False positive and false negative volume, as autoPET does: of the parts that meet nothing of the other mask.

    Parts of a volume are connected through edges (18 neighbours). The unit is that of `voxel`, the volume of one;
    autoPET gives millilitres, 1000 mm^3.

    References
    ----------
    Gatidis et al. 2024, doi:10.1038/s42256-024-00912-9; the challenge's val_script.
    """
    return voxel * _apart(labels, target), voxel * _apart(target, labels)


def regional_dice(target: BoolArray, labels: BoolArray) -> FloatArray:
    """Dice (L,) of each part of the target within the pixels that are nearest to it, as CC-metrics does.

    Distances are in pixels; a pixel as near to two parts belongs to the first of them. Without any part of the target
    there is one value: 1 where nothing is predicted either, else 0.

    References
    ----------
    Jaus et al. 2024, arXiv:2410.18684 (CC-metrics).
    """
    parts = _parts(target)
    count = int(parts.max(initial=0))
    if not count:
        return np.array([0.0 if labels.any() else 1.0])
    nearest, region = np.full(target.shape, np.inf), np.zeros(target.shape, np.int64)
    for number in range(1, count + 1):
        distance = ndimage.distance_transform_edt(parts != number)
        closer = distance < nearest
        nearest[closer], region[closer] = distance[closer], number
    own, found, common = (
        np.bincount(region[mask], minlength=count + 1)[1:] for mask in (target, labels, target & labels)
    )
    dice: FloatArray = 2 * common / (own + found)
    return dice


def _parts(mask: BoolArray) -> IntArray:
    """Number the parts of a mask, connected through corners too."""
    numbered: NDArray[Any] = ndimage.label(mask, np.ones((3,) * mask.ndim))[0]
    return numbered.astype(np.int64)


def _apart(mask: BoolArray, other: BoolArray) -> int:
    """Pixels of the parts of a mask that share none with the other one."""
    parts, count = ndimage.label(mask, ndimage.generate_binary_structure(mask.ndim, min(2, mask.ndim)))
    sizes = np.bincount(parts.reshape(-1), minlength=count + 1)
    met = np.unique(parts[other])
    sizes[met] = 0
    return int(sizes[1:].sum())
