"""Sorts the wrong pixels of each class by type: boundary, extent or segment (2-D)."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from skimage import measure

from segmeter.metrics.arrays import FloatArray, IntArray, divide, validated_labels, validated_width

TYPES = ("boundary", "extent", "segment")
RATIO = 0.01  # The paper's width of the boundary, as a share of the image's diagonal.

_WIDEST = 1 << 14  # pixels
_LEAST_SHIFT = 3  # Blocks have an edge of 2^shift pixels, which is at least half the width of the boundary.


@dataclass(frozen=True, kw_only=True)
class ErrorTypes:
    """Wrong pixels of each class, of one image or of several: the counts of images can be added.

    Parameters
    ----------
    counts : (K, 2, 3), int64
        False positives and false negatives of each class, by type in the order of `TYPES`. They add up to FP and FN.
    right : (K,), int64
        True positives.
    width
        Errors within this many pixels of the border are boundary errors.
    """

    counts: IntArray
    right: IntArray
    width: int

    @property
    def share(self) -> FloatArray:
        """Share of each type in the union (K, 3). With the IoU they add up to 1; NaN for a class in neither map."""
        return divide(self.counts.sum(axis=1), (self.counts.sum(axis=(1, 2)) + self.right)[:, None])

    @property
    def gain(self) -> FloatArray:
        """By how much the IoU of each class would rise if one type were corrected (K, 3)."""
        return iou_gain(self.counts, self.right)


def error_types(
    target: NDArray[Any],
    labels: NDArray[Any],
    *,
    num_classes: int,
    ignore_index: int | None = None,
    width: int | None = None,
) -> ErrorTypes:
    """Sort the wrong pixels of each class into errors of the boundary, of extent, and whole segments.

    A wrong pixel is a core of the boundary if true positives and true negatives of its class lie within `width`, and
    its connected part of such pixels adjoins both. Boundary errors are the wrong pixels of the same class and side
    (false positives or false negatives) within `width` of a core. All other errors are extent errors if their segment
    contains true positives, and segment errors if it doesn't. A segment is a connected part of the prediction for false
    positives, and of the target for false negatives. Pixels connect through corners too.

    Parameters
    ----------
    target, labels : (H, W), integer or bool
        Reference and predicted class maps.
    num_classes
        K, background included.
    ignore_index
        Value of `target` that marks pixels to leave out: they are neither right nor wrong. Predicted segments run
        through them.
    width
        In pixels, >= 1. Distances between pixel centres are rounded to whole pixels. None is 1 % of the image's
        diagonal, rounded, at least 1.

    Raises
    ------
    InputError
        Shapes differ or are not 2-D, a dtype is not integer, a pixel that is not ignored is outside the classes, or
        the width is out of range.

    References
    ----------
    Bernhard et al., WACV 2024, "What's Outside the Intersection? Fine-grained Error Analysis for Semantic Segmentation
    Beyond IoU". There, ignored pixels count as true negatives beside a boundary.

    Examples
    --------
    >>> target, labels = np.zeros((2, 40, 40), np.uint8)
    >>> target[10:20, 10:20], labels[10:20, 11:20], labels[30:34, 30:34] = 1, 1, 1  # a column missed, a square made up
    >>> error_types(target, labels, num_classes=2, width=1).counts[1].tolist()
    [[0, 0, 16], [10, 0, 0]]
    """
    where = "error_types"
    truth, predicted, num_classes = validated_labels(
        where, target, labels, num_classes=num_classes, ignore_index=ignore_index, axes=(2,)
    )
    if ignore_index is not None:
        no_class = predicted.dtype.type(num_classes)  # the dtype of `labels` may not hold it
        predicted = np.where((labels >= 0) & (labels < num_classes), labels, no_class).astype(predicted.dtype)
    width = validated_width(where, width, target.shape, RATIO, most=_WIDEST)
    truth, predicted = np.ascontiguousarray(truth), np.ascontiguousarray(predicted)
    counts = np.zeros((num_classes, 2, 3), np.int64)
    if not truth.size:
        return ErrorTypes(counts=counts, right=counts[:, 0, 0], width=width)
    from segmeter.metrics.pixels import _kernels as kernels  # numba: only where something is measured

    shift = max(_LEAST_SHIFT, (width - 1).bit_length() - 1)
    right, wrong, has_right, has_other = kernels.survey(truth, predicted, num_classes, shift)
    reach = np.sqrt((width + 0.5) ** 2 - np.arange(width + 1.0) ** 2).astype(np.int64)
    adjacent = np.ones(2, np.int64)  # the reach of the eight neighbours
    right_pixels = np.flatnonzero(truth == predicted)
    for side, own in enumerate((predicted, truth)):  # false positives, then false negatives
        classes = own.reshape(-1)
        places = wrong[classes[wrong] != num_classes]
        near = kernels.look_around(places, own, truth, predicted, True, reach, shift, has_right)
        near[near] = kernels.look_around(places[near], own, truth, predicted, False, reach, shift, has_other)
        seeds = _keep(places[near], own, num_classes)
        has_seed = np.zeros_like(has_right)
        y, x = np.divmod(places[near], own.shape[1])
        has_seed[classes[places[near]], y >> shift, x >> shift] = True
        near[~near] = kernels.look_around(places[~near], own, seeds, seeds, True, reach, shift, has_seed)
        parts = _number_parts(_keep(places[near], own, num_classes), num_classes)[places[near]]
        adjoins_both = np.ones(parts.max(initial=0) + 1, bool)
        for both, has_any in ((True, has_right), (False, has_other)):
            adjoins = kernels.look_around(places[near], own, truth, predicted, both, adjacent, shift, has_any)
            adjoins_both &= np.bincount(parts, adjoins, len(adjoins_both)) > 0
        near[near] = adjoins_both[parts]
        segments = _number_parts(own, num_classes)
        has_true_positives = np.zeros(segments.max() + 1, bool)
        has_true_positives[segments[right_pixels]] = True
        types = np.where(near, 0, np.where(has_true_positives[segments[places]], 1, 2))
        np.add.at(counts[:, side], (classes[places], types), 1)
    return ErrorTypes(counts=counts, right=right, width=width)


def _keep(places: IntArray, classes: NDArray[Any], nothing: int) -> NDArray[Any]:
    """Return a map with the classes at these places, and `nothing` everywhere else."""
    sparse = np.full_like(classes, nothing)
    sparse.reshape(-1)[places] = classes.reshape(-1)[places]
    return sparse


def _number_parts(classes: NDArray[Any], nothing: int) -> IntArray:
    """Number the connected parts of each class from 1 on, corners included, in the flattened map; 0 is `nothing`."""
    numbers: IntArray = measure.label(classes, background=nothing, connectivity=2)  # type: ignore[no-untyped-call]
    return numbers.reshape(-1)


def iou_gain(counts: NDArray[Any], right: NDArray[Any]) -> FloatArray:
    """Compute by how much the IoU would rise if errors of one type were corrected.

    A corrected false positive leaves the union, and a corrected false negative joins the intersection.

    Parameters
    ----------
    counts : (..., 2, 3)
        False positives and false negatives by type.
    right : (...)
        True positives.

    Returns
    -------
    (..., 3), NaN where the union is empty; 1 minus the IoU where the correction leaves an empty union.
    """
    union = counts.sum(axis=(-2, -1)) + right
    corrected_common = right[..., None] + counts[..., 1, :]
    corrected_union = union[..., None] - counts[..., 0, :]
    is_emptied = (corrected_union == 0) & (union[..., None] > 0)
    corrected = np.where(is_emptied, 1.0, divide(corrected_common, corrected_union))
    gain: FloatArray = corrected - divide(right, union)[..., None]
    return gain
