"""Computes Hausdorff distances, mean surface distances and surface Dice of two masks, all from one set of distances.

There are two definitions of a surface. In both, everything outside the image is background:

* "border_pixels" (default; MONAI, medpy, MetricsReloaded, panoptica): the pixels of a mask that its erosion with the
  4-neighbourhood (3-D: 6-neighbourhood) removes. The points are pixel centres times the spacing, and each counts once.
* "marching_cubes" (DeepMind's surface-distance, MONAI's ``use_subvoxels``): the elements that marching squares (3-D:
  marching cubes) place between foreground and background. The points are the centres of the 2 x 2 (2 x 2 x 2) pixels,
  times the spacing, and each is weighted by the length (area) of its element. The 95th percentile is the smallest
  distance within which 95 % of the surface lies.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from segmeter.checks import expected, real_numbers, require_name, shown
from segmeter.errors import InputError
from segmeter.metrics import arrays
from segmeter.metrics.arrays import BoolArray, FloatArray, Status
from segmeter.metrics.distances import Distances, SurfaceKind, distances_by_class

Penalty = Literal["inf", "diagonal", "nan"] | float

TOLERANCES = (1.0, 2.0, 3.0, 4.0, 5.0)

_PENALTIES = ("inf", "diagonal", "nan")


@dataclass(frozen=True, kw_only=True)
class SurfaceMetrics:
    """Distances between two surfaces, in the unit of the spacing.

    Parameters
    ----------
    status
        "ok", or which of the masks is empty. The distances are then the penalty, or NaN if both are.
    hd
        Hausdorff distance: the larger of the two directed maxima.
    hd95
        The larger of the two directed 95th percentiles; linearly interpolated for border pixels (MONAI,
        MetricsReloaded).
    hd95_pooled
        The 95th percentile of both directions' distances together (medpy, panoptica).
    assd
        Mean of the distances of both directions together.
    masd
        Mean of the two directed means (panoptica's ASSD).
    mean_from_target, mean_from_mask
        The directed means.
    nsd : (T,), float64
        Normalised surface Dice: the share of both surfaces within each tolerance of the other. 0 where exactly one
        mask is empty.
    near_target, near_mask : (T,), float64
        The same share of the target's surface and of the mask's. NaN for a mask that is empty.
    tolerances
        The T tolerances, as given.
    points_target, points_mask
        How many points the two surfaces have.
    """

    status: Status
    hd: float
    hd95: float
    hd95_pooled: float
    assd: float
    masd: float
    mean_from_target: float
    mean_from_mask: float
    nsd: FloatArray
    near_target: FloatArray
    near_mask: FloatArray
    tolerances: tuple[float, ...]
    points_target: int
    points_mask: int


def surface_metrics(
    target: BoolArray,
    mask: BoolArray,
    *,
    spacing: Sequence[float],
    tolerances: Sequence[float] = TOLERANCES,
    surface: SurfaceKind = "border_pixels",
    penalty: Penalty = "inf",
) -> SurfaceMetrics:
    """Measure how far two masks' surfaces are apart, by every usual summary, in one pass.

    Parameters
    ----------
    target, mask : (H, W) or (D, H, W), bool
        Reference and prediction, of one shape. True is foreground.
    spacing
        Pixel edge per axis, in axis order. All > 0; its unit is the unit of the results.
    tolerances
        Tolerances of the surface Dice, in the same unit, >= 0. A distance that equals one, up to rounding, is within
        it.
    surface
        "border_pixels" or "marching_cubes": where the surface lies; see the module.
    penalty
        The distances where exactly one mask is empty: "inf", "diagonal" (the image's), "nan", or a number >= 0.

    Returns
    -------
    SurfaceMetrics

    Raises
    ------
    InputError
        Shapes differ, a dtype is not bool, the map is neither 2-D nor 3-D, or an option is out of range.

    References
    ----------
    Maier-Hein et al. 2024, doi:10.1038/s41592-023-02151-z (which distance suits what); Nikolov et al. 2021,
    doi:10.2196/26151 (surface Dice, by marching cubes).

    Examples
    --------
    >>> target = np.zeros((5, 9), bool)
    >>> mask = target.copy()
    >>> target[2, 2], mask[2, 6] = True, True
    >>> metrics = surface_metrics(target, mask, spacing=(1, 0.5), tolerances=(1, 2))
    >>> metrics.hd, metrics.nsd.tolist(), metrics.status
    (2.0, [0.0, 1.0], 'ok')
    """
    where = "surface_metrics"
    arrays.check_maps(where, target, mask, "mask", kinds="b", axes=(2, 3))
    options = _validated_options(where, target, spacing, tolerances, surface, penalty)
    box = arrays.union_box(target, mask)
    pairs = distances_by_class(target[box], mask[box], range(1, 2), options.spacing, surface=surface)
    return summarise_distances(*next(pairs), options.tolerances, options.penalty)


def surface_metrics_by_class(
    target: NDArray[Any],
    labels: NDArray[Any],
    *,
    num_classes: int,
    spacing: Sequence[float],
    tolerances: Sequence[float] = TOLERANCES,
    ignore_index: int | None = None,
    surface: SurfaceKind = "border_pixels",
    penalty: Penalty = "inf",
    classes: Sequence[int] | None = None,
) -> tuple[SurfaceMetrics, ...]:
    """Measure every class of a label map in one pass. Class k has the result that the masks ``map == k`` would give.

    Parameters
    ----------
    target, labels : (H, W) or (D, H, W), integer
        Reference and predicted class maps of one shape.
    num_classes
        K, background included, 1 to 65533.
    spacing, tolerances, surface, penalty
        As for `surface_metrics`.
    ignore_index
        Value of `target` that marks pixels to leave out: they belong to no class in either map, so that the border of
        an ignored region is a surface of both. Not a class.
    classes
        The classes to measure, distinct; None is all of them.

    Returns
    -------
    One SurfaceMetrics per class, in the order of `classes`.

    Raises
    ------
    InputError
        As `surface_metrics`, or a pixel that is not ignored is outside the classes, or `classes` names no class.

    Examples
    --------
    >>> target = np.array([[0, 0, 1, 1, 2, 2]])
    >>> labels = np.array([[0, 1, 1, 1, 1, 2]])
    >>> [metrics.hd for metrics in surface_metrics_by_class(target, labels, num_classes=3, spacing=(1, 0.5))]
    [0.5, 0.5, 0.5]
    """
    where = "surface_metrics_by_class"
    target, labels, num_classes = arrays.validated_labels(
        where, target, labels, num_classes=num_classes, ignore_index=ignore_index, kinds="iu"
    )
    options = _validated_options(where, target, spacing, tolerances, surface, penalty)
    measured = range(num_classes)
    if classes is not None:  # renumber the measured classes 1, 2, ...; all others become 0, which is not measured
        classes = arrays.validated_classes(where, classes, num_classes)
        new_label = np.zeros(num_classes + 1, target.dtype)
        new_label[classes] = np.arange(1, len(classes) + 1)
        target, labels = new_label[target], new_label[labels]
        measured = range(1, len(classes) + 1)
    pairs = distances_by_class(target, labels, measured, options.spacing, surface=surface)
    return tuple(summarise_distances(*pair, options.tolerances, options.penalty) for pair in pairs)


def summarise_distances(
    from_target: Distances, from_mask: Distances, tolerances: tuple[float, ...], penalty: float
) -> SurfaceMetrics:
    """Summarise the distances of both directions in every way. If one surface has no points, they are the penalty."""
    points = len(from_target.distances), len(from_mask.distances)
    status = arrays.find_status(*points)
    if not all(points):
        distance = penalty if any(points) else math.nan
        nsd, near_target, near_mask = (
            np.full(len(tolerances), 0.0 if defined else math.nan) for defined in (any(points), *points)
        )
        return SurfaceMetrics(
            status=status,
            hd=distance,
            hd95=distance,
            hd95_pooled=distance,
            assd=distance,
            masd=distance,
            mean_from_target=distance,
            mean_from_mask=distance,
            nsd=nsd,
            near_target=near_target,
            near_mask=near_mask,
            tolerances=tolerances,
            points_target=points[0],
            points_mask=points[1],
        )
    both = from_target.joined(from_mask)
    means = from_target.mean(), from_mask.mean()
    near_target, near_mask = from_target.near(tolerances), from_mask.near(tolerances)
    return SurfaceMetrics(
        status=status,
        hd=float(both.distances.max()),
        hd95=max(from_target.percentile(95), from_mask.percentile(95)),
        hd95_pooled=both.percentile(95),
        assd=both.mean(),
        masd=sum(means) / 2,
        mean_from_target=means[0],
        mean_from_mask=means[1],
        nsd=(near_target + near_mask) / both.sizes.sum(),
        near_target=near_target / from_target.sizes.sum(),
        near_mask=near_mask / from_mask.sizes.sum(),
        tolerances=tolerances,
        points_target=points[0],
        points_mask=points[1],
    )


class _Options(NamedTuple):
    spacing: FloatArray
    tolerances: tuple[float, ...]
    penalty: float  # as a distance


def _validated_options(
    where: str,
    target: NDArray[Any],
    spacing: Sequence[float],
    tolerances: Sequence[float],
    surface: str,
    penalty: Penalty,
) -> _Options:
    """Refuse options out of range, and return them as numbers."""
    edges = arrays.validated_spacing(where, spacing, target.ndim)
    distances = real_numbers(where, "tolerances", tolerances)
    if not all(tolerance >= 0 for tolerance in distances):
        raise InputError(expected(where, "tolerances", ">= 0", tuple(tolerances)))
    require_name(where, "surface", surface, get_args(SurfaceKind))
    if not (penalty in _PENALTIES if isinstance(penalty, str) else isinstance(penalty, Real) and penalty >= 0):
        rule = f"to be one of {', '.join(_PENALTIES)} or a number >= 0"
        raise InputError(expected(where, "penalty", rule, shown(penalty)))
    diagonal = math.hypot(*(length * edge for length, edge in zip(target.shape, edges, strict=True)))
    return _Options(np.array(edges), distances, diagonal if penalty == "diagonal" else float(penalty))
