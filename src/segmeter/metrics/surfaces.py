"""Computes Hausdorff and mean surface distances and surface Dice of two masks, all from one set of distances.

A surface is one of two things; for both, everything outside the image is background:

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
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from segmeter.checks import expected, real_numbers, require_name, shown
from segmeter.errors import InputError
from segmeter.metrics import arrays
from segmeter.metrics.arrays import BoolArray, FloatArray, Status
from segmeter.metrics.distances import Distances, SurfaceKind, distances_by_class

Penalty = Literal["inf", "diagonal", "nan"] | float

TOLERANCES = (1.0, 2.0, 3.0, 4.0, 5.0)

_DISTANCES = ("hd", "hd95", "hd95_pooled", "assd", "masd", "mean_from_target", "mean_from_mask")
_SHARES = ("nsd", "near_target", "near_mask")
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
        Mean of both directions' distances together.
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
        T of them, as given.
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
        Of the surface Dice, in the same unit, >= 0. A distance equal to one, up to rounding, is within it.
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
    doi:10.2196/26151 (surface Dice, by marching
    cubes).

    Examples
    --------
    >>> target = np.zeros((5, 9), bool)
    >>> mask = target.copy()
    >>> target[2, 2], mask[2, 6] = True, True
    >>> found = surface_metrics(target, mask, spacing=(1, 0.5), tolerances=(1, 2))
    >>> found.hd, found.nsd.tolist(), found.status
    (2.0, [0.0, 1.0], 'ok')
    """
    where = "surface_metrics"
    arrays.check_maps(where, target, mask, "mask", kinds="b", axes=(2, 3))
    options: dict[str, Any] = {"spacing": spacing, "tolerances": tolerances, "surface": surface, "penalty": penalty}
    edges, near, failed = _check_options(where, target, **options)
    box = arrays.union_box(target, mask)
    pairs = distances_by_class(target[box], mask[box], range(1, 2), edges, surface=surface)
    return summarise_distances(*next(pairs), near, failed)


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
    """Measure every class of a label map in one pass; class k's result is that of the masks ``map == k``.

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
    >>> [found.hd for found in surface_metrics_by_class(target, labels, num_classes=3, spacing=(1, 0.5))]
    [0.5, 0.5, 0.5]
    """
    where = "surface_metrics_by_class"
    first, second, num_classes = arrays.known_labels(
        where, target, labels, num_classes=num_classes, ignore_index=ignore_index, kinds="iu"
    )
    options: dict[str, Any] = {"spacing": spacing, "tolerances": tolerances, "surface": surface, "penalty": penalty}
    edges, near, failed = _check_options(where, target, **options)
    chosen = range(num_classes)
    if classes is not None:  # renumber the measured ones 1, 2, ...; all others become 0, of which no surface is found
        classes = arrays.known_classes(where, classes, num_classes)
        number = np.zeros(num_classes + 1, first.dtype)
        number[classes] = np.arange(1, len(classes) + 1)
        first, second, chosen = number[first], number[second], range(1, len(classes) + 1)
    pairs = distances_by_class(first, second, chosen, edges, surface=surface)
    return tuple(summarise_distances(*pair, near, failed) for pair in pairs)


def summarise_distances(
    ours: Distances, theirs: Distances, tolerances: tuple[float, ...], penalty: float
) -> SurfaceMetrics:
    """Summarise both sides' distances in every way; `penalty` is the value if one surface has no point."""
    points = len(ours.distances), len(theirs.distances)
    found: dict[str, Any] = {"status": arrays.find_status(*points), "tolerances": tolerances}
    found |= {"points_target": points[0], "points_mask": points[1]}
    if not all(points):
        found |= dict.fromkeys(_DISTANCES, penalty if any(points) else math.nan)
        shares = [0.0 if held else math.nan for held in (any(points), *points)]
        found |= {name: np.full(len(tolerances), share) for name, share in zip(_SHARES, shares, strict=True)}
        return SurfaceMetrics(**found)
    both, means = ours.joined(theirs), (ours.mean(), theirs.mean())
    near = ours.near(tolerances), theirs.near(tolerances)
    return SurfaceMetrics(
        **found,
        hd=float(both.distances.max()),
        hd95=max(ours.percentile(95), theirs.percentile(95)),
        hd95_pooled=both.percentile(95),
        assd=both.mean(),
        masd=sum(means) / 2,
        mean_from_target=means[0],
        mean_from_mask=means[1],
        nsd=(near[0] + near[1]) / both.sizes.sum(),
        near_target=near[0] / ours.sizes.sum(),
        near_mask=near[1] / theirs.sizes.sum(),
    )


def _check_options(
    where: str,
    target: NDArray[Any],
    *,
    spacing: Sequence[float],
    tolerances: Sequence[float],
    surface: str,
    penalty: Penalty,
) -> tuple[FloatArray, tuple[float, ...], float]:
    """Refuse options out of range; return the spacing, the tolerances and the distance that a failure counts as."""
    edges, near = arrays.check_spacing(where, spacing, target.ndim), real_numbers(where, "tolerances", tolerances)
    if not all(tolerance >= 0 for tolerance in near):
        raise InputError(expected(where, "tolerances", ">= 0", tuple(tolerances)))
    require_name(where, "surface", surface, get_args(SurfaceKind))
    if not (penalty in _PENALTIES if isinstance(penalty, str) else isinstance(penalty, Real) and penalty >= 0):
        rule = f"to be one of {', '.join(_PENALTIES)} or a number >= 0"
        raise InputError(expected(where, "penalty", rule, shown(penalty)))
    diagonal = math.hypot(*(length * edge for length, edge in zip(target.shape, edges, strict=True)))
    return np.array(edges), near, diagonal if penalty == "diagonal" else float(penalty)
