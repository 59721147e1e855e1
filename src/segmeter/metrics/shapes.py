"""Measures the overlap of a mask's shape: bands inside the borders (boundary IoU) and centrelines (clDice)."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from skimage.morphology import skeletonize

from segmeter.metrics import arrays
from segmeter.metrics.arrays import BoolArray, FloatArray, IntArray, Status
from segmeter.metrics.pixels.confusion import confusion_matrix

RATIO = 0.02  # The paper's width of the bands, as a share of the image's diagonal.

_WIDEST = 1 << 30  # pixels, so that sums of widths don't overflow


@dataclass(frozen=True, kw_only=True)
class BoundaryIoU:
    """Boundary IoU of each class of one image or volume.

    Parameters
    ----------
    iou : (K,), float64
        NaN if neither map contains the class, 0 if only one does.
    status
        For each class "ok", or which of the masks is empty.
    counts : (K + 1, K + 1), int64
        Pixels of each (target band, predicted band) pair; row and column K count pixels in no band. Counts of several
        images can be added.
    width
        Width of the bands, in pixels.
    """

    iou: FloatArray
    status: tuple[Status, ...]
    counts: IntArray
    width: int


def boundary_iou(
    target: NDArray[Any],
    labels: NDArray[Any],
    *,
    num_classes: int,
    ignore_index: int | None = None,
    width: int | None = None,
) -> BoundaryIoU:
    """Measure the overlap of bands inside the borders of each class. Unlike IoU it does not saturate for large objects.

    A class's band is its mask without the mask eroded `width` times with 3 x 3 (3 x 3 x 3 in a volume). Everything
    outside the image is background.

    Parameters
    ----------
    target, labels : (H, W) or (D, H, W), integer or bool
        Reference and predicted class maps. bool is read as the classes 0 and 1.
    num_classes
        K, background included, 1 to 65533.
    ignore_index
        Value of `target` that marks pixels to leave out: they belong to no class in either map, so that the border of
        an ignored region is a border of both. Not a class.
    width
        In pixels along every axis, >= 1. None is 2 % of the diagonal in pixels, rounded, at least 1.

    Returns
    -------
    BoundaryIoU

    Raises
    ------
    InputError
        Shapes differ or have other axes, a dtype is not integer, a pixel that is not ignored is outside the classes, or
        the width is below 1.

    References
    ----------
    Cheng et al. 2021, arXiv:2103.16562.

    Examples
    --------
    >>> target = np.zeros((7, 7), np.uint8)
    >>> labels = target.copy()
    >>> target[1:6, 1:6], labels[1:6, 1:5] = 1, 1  # rings of 16 and 14 pixels; 11 are in both
    >>> boundary_iou(target, labels, num_classes=2, width=1).iou[1] == 11 / (16 + 14 - 11)
    np.True_
    """
    where = "boundary_iou"
    *maps, num_classes = arrays.validated_labels(
        where, target, labels, num_classes=num_classes, ignore_index=ignore_index
    )
    width = arrays.validated_width(where, width, target.shape, RATIO, most=_WIDEST)
    bands = [_keep_band(class_map, width, num_classes) for class_map in maps]
    counts = confusion_matrix(*bands, num_classes=num_classes + 1)
    in_target, in_labels, in_both = (
        pixels[:num_classes] for pixels in (counts.sum(axis=1), counts.sum(axis=0), np.diag(counts))
    )
    status = tuple(arrays.find_status(*pair) for pair in zip(in_target, in_labels, strict=True))
    iou = arrays.divide(in_both, in_target + in_labels - in_both)
    return BoundaryIoU(iou=iou, status=status, counts=counts, width=width)


def _keep_band(labels: NDArray[Any], width: int, outside: int) -> NDArray[Any]:
    """Keep the pixels whose window, `width` to each side, leaves the map or contains another value."""
    band = np.ones(labels.shape, bool)
    if 2 * width < min(labels.shape):
        length = 2 * width + 1
        uniform, middle = np.ones(labels.shape, bool), labels
        for axis in range(labels.ndim):  # a window is uniform if its lines are, and their middle pixels are equal
            uniform, middle = np.moveaxis(uniform, axis, 0), np.moveaxis(middle, axis, 0)
            agree = _all_in_a_row(middle[1:] == middle[:-1], length - 1)
            uniform = np.moveaxis(_all_in_a_row(uniform, length) & agree, 0, axis)
            middle = np.moveaxis(middle[width:-width], 0, axis)
        band[(slice(width, -width),) * labels.ndim] = ~uniform
    return np.where(band, labels, labels.dtype.type(outside))


def _all_in_a_row(flags: BoolArray, length: int) -> BoolArray:
    """Mark where `length` lines in a row are true, along the first axis. Each step doubles the checked length."""
    checked = 1
    while checked < length:
        step = min(checked, length - checked)
        flags = flags[:-step] & flags[step:]
        checked += step
    return flags


@dataclass(frozen=True, kw_only=True)
class CentrelineDice:
    """Centreline Dice and its parts.

    Parameters
    ----------
    status
        "ok", or which of the masks is empty.
    cldice
        Harmonic mean of the two shares; 0 if exactly one mask is empty, NaN if both are.
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

    Skeletons are scikit-image's: Zhang's method for an image, Lee's for a volume. If thinning makes a mask vanish (a
    cube of 2 x 2 x 2), the mask is its own skeleton.

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
    >>> scores = centreline_dice(target, mask)
    >>> scores.precision, 0.4 < scores.sensitivity < 0.6
    (1.0, True)
    """
    arrays.check_maps("centreline_dice", target, mask, "mask", kinds="b", axes=(2, 3))
    box = tuple(slice(max(side.start - 1, 0), side.stop + 1) for side in arrays.union_box(target, mask))
    target, mask = target[box], mask[box]  # with a margin, as thinning treats a box of one slice as an image
    skeletons = []
    for shape in (target, mask):
        thin = skeletonize(shape.copy()) > 0 if shape.any() else shape  # type: ignore[no-untyped-call]
        skeletons.append(thin if thin.any() else shape)
    points_target, points_mask = (int(skeleton.sum()) for skeleton in skeletons)
    inside_mask, inside_target = int((skeletons[0] & mask).sum()), int((skeletons[1] & target).sum())
    shares = arrays.divide(np.array([inside_mask, inside_target]), np.array([points_target, points_mask]))
    sensitivity, precision = shares.tolist()
    return CentrelineDice(
        status=arrays.find_status(points_target, points_mask),
        cldice=float(cldice_of_counts(inside_target, points_mask, inside_mask, points_target)),
        precision=precision,
        sensitivity=sensitivity,
        inside_target=inside_target,
        points_mask=points_mask,
        inside_mask=inside_mask,
        points_target=points_target,
    )


def cldice_of_counts(
    inside_target: FloatArray | int,
    points_mask: FloatArray | int,
    inside_mask: FloatArray | int,
    points_target: FloatArray | int,
) -> FloatArray:
    """Return 2 P S / (P + S); 0 if one skeleton is missing or nothing is inside, NaN if both skeletons are missing."""
    points_mask, points_target = np.asarray(points_mask, np.float64), np.asarray(points_target, np.float64)
    precision = np.nan_to_num(arrays.divide(np.asarray(inside_target, np.float64), points_mask))
    sensitivity = np.nan_to_num(arrays.divide(np.asarray(inside_mask, np.float64), points_target))
    score = np.nan_to_num(arrays.divide(2 * precision * sensitivity, precision + sensitivity))
    return np.where(points_mask + points_target > 0, score, np.nan)
