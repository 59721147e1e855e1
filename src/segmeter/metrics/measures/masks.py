"""Measures the masks of a case: surfaces, boundary bands, centrelines, types of errors, topology, and lesions."""

import math
from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from typing import Literal

import numpy as np
from skimage.measure import euler_number

from segmeter.checks import expected
from segmeter.errors import InputError
from segmeter.metrics.arrays import BoolArray, FloatArray, divide, share_of_diagonal, union_box
from segmeter.metrics.cases.table import MeasureColumn
from segmeter.metrics.config.scores import BRIGHTNESS, NUMBERS, OF_A_CLASS, SUFFIXES
from segmeter.metrics.measures.objects import number_objects
from segmeter.metrics.measures.protocol import CaseMaps, Numbers, Region, RegionMeasure
from segmeter.metrics.objects.matching import label_parts
from segmeter.metrics.objects.scores import autopet_volumes, brats_lesions, picai_lesions, regional_dice
from segmeter.metrics.pixels.error_types import TYPES, error_types, iou_gain
from segmeter.metrics.shapes import boundary_iou, centreline_dice, cldice_of_counts
from segmeter.metrics.surfaces import SurfaceMetrics, surface_metrics_by_class

_DISTANCES = ("hd", "hd95", "hd95_pooled", "assd", "masd")
_POINTS = ("inside_target", "points_mask", "inside_mask", "points_target")
_SIDES_AND_TYPES = list(product(enumerate(("fp", "fn")), enumerate(TYPES)))
_COUNTING = ("brats", "picai")  # These challenges count lesions.


class Surface(RegionMeasure):
    """Distances between the surfaces of each class and group."""

    def measure(self, maps: CaseMaps) -> Iterator[tuple[Region, Numbers, Numbers]]:
        config = self.config
        for surface in SUFFIXES if config.surface == "both" else (config.surface,):
            for target, labels, counting, regions in maps.passes(self.regions):
                classes = sorted({k for _, k in regions})  # a group of one class is measured once
                metrics = surface_metrics_by_class(
                    target,
                    labels,
                    classes=classes,
                    spacing=maps.spacing,
                    tolerances=config.tolerances,
                    surface=surface,
                    penalty=config.penalty,
                    **counting,
                )
                for region, k in regions:
                    yield region, self._values(metrics[classes.index(k)], SUFFIXES[surface]), {}

    def _values(self, scores: SurfaceMetrics, suffix: str) -> Numbers:
        values: Numbers = {f"{name}{suffix}": getattr(scores, name) for name in _DISTANCES}
        mean_share = (np.nan_to_num(scores.near_target) + np.nan_to_num(scores.near_mask)) / 2
        for i, tolerance in enumerate(scores.tolerances):
            values[f"nsd{suffix}@{tolerance:g}"] = scores.nsd[i]
            if self.config.surface == "both" and not suffix:
                values[f"nsd_mean@{tolerance:g}"] = math.nan if scores.status == "both_empty" else mean_share[i]
        return values


class Boundary(RegionMeasure):
    """Boundary IoU of each class and group."""

    region_marker_sums = ("boundary_common",)
    scores_also_per_case = ("boundary_iou",)

    def measure(self, maps: CaseMaps) -> Iterator[tuple[Region, Numbers, Numbers]]:
        width = self.config.width or share_of_diagonal(maps.shape, self.config.ratio)
        for target, labels, counting, regions in maps.passes(self.regions):
            counts = boundary_iou(target, labels, width=width, **counting).counts
            for region, k in regions:
                common = counts[k, k]
                union = counts[k].sum() + counts[:, k].sum() - common
                yield region, {}, {"boundary_common": common, "boundary_union": union}

    def dataset_scores(self, sums: Mapping[str, FloatArray], region: str) -> dict[str, FloatArray]:
        return {"boundary_iou": divide(sums["boundary_common"], sums["boundary_union"])}


class ClDice(RegionMeasure):
    """Centreline Dice of each class and group."""

    region_marker_sums = ("cldice_points_mask",)
    scores_also_per_case = ("cldice",)

    def case(self, maps: CaseMaps, region: Region) -> tuple[Numbers, Numbers]:
        scores = centreline_dice(*maps.masks(region))
        return {}, {f"cldice_{part}": getattr(scores, part) for part in _POINTS}

    def dataset_scores(self, sums: Mapping[str, FloatArray], region: str) -> dict[str, FloatArray]:
        return {"cldice": cldice_of_counts(*(sums[f"cldice_{part}"] for part in _POINTS))}


class ErrorTypes(RegionMeasure):
    """Wrong pixels of each class and group by type."""

    region_marker_sums = ("errors_tp",)
    scores_also_per_case = tuple(f"{kind}_errors" for kind in TYPES)

    def measure(self, maps: CaseMaps) -> Iterator[tuple[Region, Numbers, Numbers]]:
        if len(maps.shape) != 2:
            rule = "to have two spatial axes for error types"
            remedy = "Set data.flat=true." if maps.shape[0] == 1 else "Leave out this measure."
            raise InputError(expected("error_types", "target", rule, maps.target.shape, remedy))
        width = self.config.width or share_of_diagonal(maps.shape, self.config.ratio)
        for target, labels, counting, regions in maps.passes(self.regions):
            errors = error_types(target, labels, width=width, **counting)
            for region, k in regions:
                sums = {f"errors_{side}_{kind}": errors.counts[k, s, t] for (s, side), (t, kind) in _SIDES_AND_TYPES}
                yield region, {}, sums | {"errors_tp": errors.right[k]}

    def dataset_scores(self, sums: Mapping[str, FloatArray], region: str) -> dict[str, FloatArray]:
        flat = np.stack([sums[f"errors_{side}_{kind}"] for (_, side), (_, kind) in _SIDES_AND_TYPES], axis=-1)
        counts = flat.reshape(-1, 2, len(TYPES))
        right = sums["errors_tp"]
        shares = divide(counts.sum(axis=1), (counts.sum(axis=(1, 2)) + right)[:, None])
        gains = iou_gain(counts, right)
        scores: dict[str, FloatArray] = {}
        for t, kind in enumerate(TYPES):
            scores |= {f"{kind}_errors": shares[:, t], f"{kind}_gain": gains[:, t]}
        return scores


class Topology(RegionMeasure):
    """Errors in the topology of each class and group; infinite if one side is empty."""

    def case(self, maps: CaseMaps, region: Region) -> tuple[Numbers, Numbers]:
        target, labels = maps.masks(region)
        names = [*(f"betti{i}_error" for i in range(target.ndim)), "euler_error"]
        sides_have_pixels = bool(target.any()), bool(labels.any())
        if not all(sides_have_pixels):
            return dict.fromkeys(names, math.inf if any(sides_have_pixels) else math.nan), {}
        box = union_box(target, labels)
        betti = [betti_numbers(mask[box], self.config.connectivity) for mask in (target, labels)]
        euler = [sum((-1) ** i * b for i, b in enumerate(numbers)) for numbers in betti]
        errors = [abs(a - b) for a, b in zip((*betti[0], euler[0]), (*betti[1], euler[1]), strict=True)]
        return dict(zip(names, errors, strict=True)), {}


class Lesions(RegionMeasure):
    """Scores of the lesions of each class and group, as challenges define them."""

    region_marker_sums = ("brats_tp", "picai_tp")

    def case(self, maps: CaseMaps, region: Region) -> tuple[Numbers, Numbers]:
        config = self.config
        target, labels = maps.masks(region)
        values, sums = Numbers(), Numbers()
        for challenge in config.conventions:
            if challenge == "brats":
                scores = brats_lesions(
                    target, labels, spacing=maps.spacing, dilation=config.dilation, least=config.least
                )
                values |= {"brats_dice": scores.dice, "brats_hd95": scores.hd95}
                sums |= {f"brats_{name}": getattr(scores, name) for name in NUMBERS}
            elif challenge == "picai":
                numbers = picai_lesions(target, labels, overlap=config.overlap)
                sums |= {f"picai_{name}": n for name, n in zip(NUMBERS, numbers, strict=True)}
            elif challenge == "autopet":
                fp, fn = autopet_volumes(target, labels, voxel=float(np.prod(maps.spacing)))
                values |= {"autopet_fp_volume": fp, "autopet_fn_volume": fn}
            else:
                values["cc_dice"] = regional_dice(target, labels).mean()
        return values, sums

    def dataset_scores(self, sums: Mapping[str, FloatArray], region: str) -> dict[str, FloatArray]:
        scores: dict[str, FloatArray] = {}
        for challenge in _COUNTING:
            if f"{challenge}_tp" in sums:
                numbers = {f"{challenge}_{name}": sums[f"{challenge}_{name}"] for name in NUMBERS}
                tp, fp, fn = numbers.values()
                scores |= numbers | {f"{challenge}_f1": divide(2 * tp, 2 * tp + fp + fn)}
        return scores


class Content(RegionMeasure):
    """Facts about a case's reference and image. Cases are sliced by them."""

    def case(self, maps: CaseMaps, region: Region) -> tuple[Numbers, Numbers]:
        mask = maps.masks(region)[0]
        numbered = number_objects([mask], maps.target_instances, self.config.connectivity)
        sizes = np.unique(numbered[numbered > 0], return_counts=True)[1]
        edges = [np.take(mask, [0, -1], axis=axis).any() for axis in range(mask.ndim)]
        facts = (np.median(sizes), any(edges)) if sizes.size else (np.nan, np.nan)
        return dict(zip(OF_A_CLASS, facts, strict=True)), {}

    def __call__(self, maps: CaseMaps) -> Iterable[MeasureColumn]:
        yield from super().__call__(maps)
        if maps.image is not None:  # the mean over pixels and channels; for integers, divided by the dtype's largest
            image = maps.image
            largest = np.iinfo(image.dtype).max if image.dtype.kind in "iu" else 1
            yield MeasureColumn(*BRIGHTNESS, float(image.mean(dtype=np.float64)) / largest)


def betti_numbers(mask: BoolArray, connectivity: Literal[8, 4] = 8) -> tuple[int, ...]:
    """Count the objects and holes of an image, or the objects, tunnels and cavities of a volume.

    Parameters
    ----------
    mask : (H, W) or (D, H, W), bool
        Everything outside it is background.
    connectivity
        8: pixels that share a corner belong to one object (26 in a volume), and the background has the other
        connectivity; 4: those that share a side do (6).

    Returns
    -------
    (b0, b1), or (b0, b1, b2) of a volume. Their alternating sum is the Euler number.

    Examples
    --------
    >>> ring = np.array([[1, 1, 1], [1, 0, 1], [1, 1, 1]], bool)
    >>> betti_numbers(ring), betti_numbers(np.stack([ring * 0, ring, ring * 0]) > 0)
    ((1, 1), (1, 1, 0))
    """
    padded = np.pad(mask, 1)
    objects = label_parts(padded, connectivity)[1]
    enclosed = label_parts(~padded, 4 if connectivity == 8 else 8)[1] - 1
    if mask.ndim == 2:
        return objects, enclosed
    euler: int = euler_number(padded, mask.ndim if connectivity == 8 else 1)  # type: ignore[no-untyped-call]
    return objects, objects + enclosed - euler, enclosed
