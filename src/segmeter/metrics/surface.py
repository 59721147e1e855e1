"""two masks -> Hausdorff, mean surface distances and surface Dice, all from one set of distances.

A surface is a mask and not its erosion with the 4-neighbourhood (3-D: 6-neighbourhood), with background outside the
image; its points are pixel centres times the spacing, and each counts once ("school A": MONAI, medpy, MetricsReloaded).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from segmeter.checks import expected
from segmeter.errors import InputError
from segmeter.metrics.distances import BoolArray, Distances, distances_by_class
from segmeter.metrics.maps import Status, check_maps, erase_ignored, find_status, spacing_problems, union_box
from segmeter.metrics.overlap import FloatArray

Penalty = Literal["inf", "diagonal", "nan"] | float
School = Literal["A"]

TOLERANCES = (1.0, 2.0, 3.0, 4.0, 5.0)

_PENALTIES = ("inf", "diagonal", "nan")
_ROUNDING = 1 + 1e-12  # 3 pixels of 0.1 are 0.30000000000000004, and within 0.3


@dataclass(frozen=True, kw_only=True)
class SurfaceMetrics:
    """Distances between two surfaces, in the unit of the spacing.

    Parameters
    ----------
    status
        "ok", or which of the masks is empty: the distances are then the penalty, or NaN where both are.
    hd
        Hausdorff distance: the larger of the two directed maxima.
    hd95
        The larger of the two directed 95th percentiles, linearly interpolated (MONAI, MetricsReloaded).
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
    tolerances
        T of them, as given.
    points_target, points_mask
        Sizes of the two surfaces.
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
    tolerances: tuple[float, ...]
    points_target: int
    points_mask: int


def surface_metrics(
    target: BoolArray,
    mask: BoolArray,
    *,
    spacing: Sequence[float],
    tolerances: Sequence[float] = TOLERANCES,
    school: School = "A",
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
    school
        "A", the only one offered: see the module.
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
    Maier-Hein et al. 2024, doi:10.1038/s41592-023-02151-z (which distance suits what).

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
    check_maps(where, target, mask, "mask", kinds="b", axes=(2, 3))
    _check_options(where, target.ndim, spacing=spacing, tolerances=tolerances, school=school, penalty=penalty)
    box = union_box(target, mask)
    pairs = distances_by_class(target[box], mask[box], range(1, 2), np.asarray(spacing, np.float64))
    failed = _penalty_value(penalty, target.shape, spacing)
    return summarise_distances(next(pairs), tuple(tolerances), failed)


def surface_metrics_by_class(
    target: NDArray[Any],
    labels: NDArray[Any],
    *,
    num_classes: int,
    spacing: Sequence[float],
    tolerances: Sequence[float] = TOLERANCES,
    ignore_index: int | None = None,
    penalty: Penalty = "inf",
) -> tuple[SurfaceMetrics, ...]:
    """Measure every class of a label map in one pass; class k's result is that of the masks ``map == k``.

    Parameters
    ----------
    target, labels : (H, W) or (D, H, W), integer
        Reference and predicted class maps of one shape.
    num_classes
        K, background included, 1 to 65533.
    spacing, tolerances, penalty
        As for `surface_metrics`.
    ignore_index
        Value of `target` that marks pixels to leave out: they belong to no class in either map, so that the border of
        an ignored region is a surface of both. Not a class.

    Returns
    -------
    K SurfaceMetrics, in the order of the classes.

    Raises
    ------
    InputError
        As `surface_metrics`, or a pixel that is not ignored is outside the classes.
    """
    where = "surface_metrics_by_class"
    check_maps(where, target, labels, "labels", kinds="iu", axes=(2, 3))
    _check_options(where, target.ndim, spacing=spacing, tolerances=tolerances, school="A", penalty=penalty)
    maps = erase_ignored(where, target, labels, num_classes=num_classes, ignore_index=ignore_index)
    pairs = distances_by_class(*maps, range(num_classes), np.asarray(spacing, np.float64))
    failed = _penalty_value(penalty, target.shape, spacing)
    return tuple(summarise_distances(distances, tuple(tolerances), failed) for distances in pairs)


def summarise_distances(distances: Distances, tolerances: tuple[float, ...], penalty: float) -> SurfaceMetrics:
    """Every summary of one pair's distances; `penalty` is the value where one surface has no point."""
    ours, theirs = distances.from_target, distances.from_mask
    sizes = len(ours), len(theirs)
    if not all(sizes):
        return _empty(sizes, tolerances, penalty)
    both = np.concatenate([ours, theirs])
    means = float(ours.mean()), float(theirs.mean())
    limits = np.asarray(tolerances, np.float64)[:, None] * _ROUNDING
    return SurfaceMetrics(
        status="ok",
        hd=float(both.max()),
        hd95=float(max(np.percentile(ours, 95), np.percentile(theirs, 95))),
        hd95_pooled=float(np.percentile(both, 95)),
        assd=float(both.mean()),
        masd=sum(means) / 2,
        mean_from_target=means[0],
        mean_from_mask=means[1],
        nsd=np.count_nonzero(both <= limits, axis=1) / len(both),
        tolerances=tolerances,
        points_target=sizes[0],
        points_mask=sizes[1],
    )


def _empty(sizes: tuple[int, int], tolerances: tuple[float, ...], penalty: float) -> SurfaceMetrics:
    status = find_status(*sizes)
    value = math.nan if status == "both_empty" else penalty
    return SurfaceMetrics(
        status=status,
        hd=value,
        hd95=value,
        hd95_pooled=value,
        assd=value,
        masd=value,
        mean_from_target=value,
        mean_from_mask=value,
        nsd=np.full(len(tolerances), math.nan if status == "both_empty" else 0.0),
        tolerances=tolerances,
        points_target=sizes[0],
        points_mask=sizes[1],
    )


def _penalty_value(penalty: Penalty, shape: tuple[int, ...], spacing: Sequence[float]) -> float:
    if penalty == "diagonal":
        return math.hypot(*(length * edge for length, edge in zip(shape, spacing, strict=True)))
    return float(penalty)


def _check_options(
    where: str, axes: int, *, spacing: Sequence[float], tolerances: Sequence[float], school: str, penalty: Penalty
) -> None:
    problems = spacing_problems(where, spacing, axes)
    if not all(tolerance >= 0 for tolerance in tolerances):
        problems.append(expected(where, "tolerances", ">= 0", tuple(tolerances)))
    if school != "A":
        problems.append(expected(where, "school", "to be 'A', the only one offered", repr(school)))
    number = not isinstance(penalty, str) and penalty >= 0
    if not number and penalty not in _PENALTIES:
        rule = f"to be one of {', '.join(_PENALTIES)} or a number >= 0"
        problems.append(expected(where, "penalty", rule, repr(penalty)))
    if problems:
        raise InputError(problems)
