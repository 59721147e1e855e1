"""Centreline Dice of two masks of tubes: how much of each one's skeleton lies in the other."""

from dataclasses import dataclass

import numpy as np
from skimage.morphology import skeletonize

from segmeter.metrics.arrays import BoolArray, FloatArray, divide
from segmeter.metrics.map_checks import Status, check_maps, find_status, union_box


@dataclass(frozen=True, kw_only=True)
class CentrelineDice:
    """Centreline Dice and what it is made of.

    Parameters
    ----------
    status
        "ok", or which of the masks is empty.
    cldice
        Harmonic mean of the two shares; 0 where exactly one mask is empty, NaN where both are.
    precision
        The share of the prediction's skeleton inside the target; NaN without a skeleton.
    sensitivity
        The share of the target's skeleton inside the prediction; NaN without a skeleton.
    inside_target, points_mask
        Pixels of the prediction's skeleton in the target, and all of them.
    inside_mask, points_target
        Pixels of the target's skeleton in the prediction, and all of them.
    """

    status: Status
    cldice: float
    precision: float
    sensitivity: float
    inside_target: int
    points_mask: int
    inside_mask: int
    points_target: int


def centreline_dice(target: BoolArray, mask: BoolArray) -> CentrelineDice:
    """Measure whether thin, branching objects are found along their length, whatever their width.

    Skeletons are scikit-image's, of an image by Zhang's method, of a volume by Lee's; a mask that thinning makes vanish
    (a cube of 2 x 2 x 2) is its own skeleton.

    Parameters
    ----------
    target, mask : (H, W) or (D, H, W), bool
        Reference and prediction, of one shape. True is foreground.

    Returns
    -------
    CentrelineDice

    Raises
    ------
    InputError
        Shapes differ, a dtype is not bool, or the map is neither 2-D nor 3-D.

    References
    ----------
    Shit et al. 2021, arXiv:2003.07311 (clDice).

    Examples
    --------
    >>> target = np.zeros((5, 12), bool)
    >>> target[1:4, 1:11] = True
    >>> mask = target.copy()
    >>> mask[:, 6:] = False  # half of the length
    >>> found = centreline_dice(target, mask)
    >>> found.precision, 0.4 < found.sensitivity < 0.6
    (1.0, True)
    """
    check_maps("centreline_dice", target, mask, "mask", kinds="b", axes=(2, 3))
    box = tuple(slice(max(side.start - 1, 0), side.stop + 1) for side in union_box(target, mask))
    target, mask = target[box], mask[box]  # with a margin, as thinning treats a box of one slice as an image
    skeletons = [_thin(one) for one in (target, mask)]
    points = [int(skeleton.sum()) for skeleton in skeletons]
    inside = int((skeletons[0] & mask).sum()), int((skeletons[1] & target).sum())
    precision, sensitivity = (
        float(divide(np.array(n), np.array(total))) for n, total in zip(inside[::-1], points[::-1], strict=True)
    )
    return CentrelineDice(
        status=find_status(*points),
        cldice=float(cldice_of_counts(inside[1], points[1], inside[0], points[0])),
        precision=precision,
        sensitivity=sensitivity,
        inside_target=inside[1],
        points_mask=points[1],
        inside_mask=inside[0],
        points_target=points[0],
    )


def _thin(mask: BoolArray) -> BoolArray:
    if not mask.any():
        return mask
    writeable = np.require(mask, requirements="W")  # thinning refuses other arrays, though it does not change them
    skeleton: BoolArray = skeletonize(writeable) > 0  # type: ignore[no-untyped-call]
    return skeleton if skeleton.any() else mask


def cldice_of_counts(
    inside_target: FloatArray | int,
    points_mask: FloatArray | int,
    inside_mask: FloatArray | int,
    points_target: FloatArray | int,
) -> FloatArray:
    """2 P S / (P + S); 0 where a skeleton is missing on one side or nothing is inside, NaN where both are missing."""
    first, second = (np.asarray(part, np.float64) for part in (points_mask, points_target))
    precision = np.nan_to_num(divide(np.asarray(inside_target, np.float64), first))
    sensitivity = np.nan_to_num(divide(np.asarray(inside_mask, np.float64), second))
    score = np.nan_to_num(divide(2 * precision * sensitivity, precision + sensitivity))
    return np.where(first + second > 0, score, np.nan)
