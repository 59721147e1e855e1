"""maps of one case -> measures of objects: matches, average precision, aggregated Jaccard index, scores by size."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from segmeter.classes import ClassSpec
from segmeter.metrics.arrays import BoolArray, FloatArray, IntArray, divide
from segmeter.metrics.cases.columns import MeasureColumn, columns_of
from segmeter.metrics.config.measures import (
    AjiConfig,
    AveragePrecisionConfig,
    InstancesConfig,
    ObjectsConfig,
    PartitionConfig,
    SizesConfig,
)
from segmeter.metrics.config.scores import NUMBERS
from segmeter.metrics.map_checks import union_box
from segmeter.metrics.measures.protocol import CaseMaps, Measure, Name, Region, regions_of
from segmeter.metrics.objects.aggregated_jaccard import aggregated_jaccard
from segmeter.metrics.objects.matching import Overlaps, choose_pairs, find_overlaps
from segmeter.metrics.objects.panoptic import measure_masd
from segmeter.metrics.objects.partition import count_pairs, count_pixels, partition_scores

Numbers = dict[str, float]
LossSums = dict[str, FloatArray]

_SIZES = {1: ("small", "large"), 2: ("small", "medium", "large")}


def find_objects(mask: BoolArray, instances: NDArray[Any] | None, connectivity: int) -> NDArray[Any]:
    """Number the objects of a mask: its connected components, or the part of the instance map inside it."""
    if instances is not None:
        return np.where(mask, instances, 0)
    structure = ndimage.generate_binary_structure(mask.ndim, mask.ndim if connectivity == 8 else 1)
    numbered: NDArray[Any] = ndimage.label(mask, structure)[0]
    return numbered


def numbered_objects(
    maps: CaseMaps, region: Region, config: ObjectsConfig
) -> tuple[NDArray[Any], NDArray[Any], BoolArray | None]:
    """Number the objects of a region in target and labels, and mark void pixels; all cropped to the objects' box.

    Predicted objects keep their void pixels: these decide which objects lie mostly in void, and do not split an object
    in two.
    """
    target, labels = maps.planes(region)
    box = union_box(target == 1, labels)
    void = None if maps.spec.ignore_index is None else target[box] == 2
    if config.objects == "by_class":
        parts = [maps.planes(Region(name=region.name, members=(member,))) for member in region.members]
        ours, theirs = [part[0][box] == 1 for part in parts], [part[1][box] == 1 for part in parts]
        return number_in_turn(ours, config), number_in_turn(theirs, config), void
    given = (maps.target_instances, maps.instances) if config.objects == "maps" else (None, None)
    first, second = (
        find_objects(plane[box] == 1, None if numbers is None else numbers[box], config.connectivity)
        for plane, numbers in zip((target, labels), given, strict=True)
    )
    return first, second, void


def number_in_turn(masks: Sequence[BoolArray], config: ObjectsConfig) -> NDArray[Any]:
    """Number the objects of disjoint masks one after the other, with distinct numbers."""
    numbered = find_objects(masks[0], None, config.connectivity)
    for mask in masks[1:]:
        more = find_objects(mask, None, config.connectivity)
        numbered = np.where(more > 0, more + numbered.max(initial=0), numbered)
    return numbered


def overlaps_of(maps: CaseMaps, region: Region, config: ObjectsConfig) -> Overlaps:
    """Objects of a region in both maps and the pixels that they share; cached with the case for other measures."""
    key = (region.members, config.connectivity, config.objects)
    if key not in maps.kept:
        maps.kept[key] = find_overlaps(*numbered_objects(maps, region, config))
    found: Overlaps = maps.kept[key]
    return found


@dataclass(frozen=True)
class _Objects:
    """A measure of the objects of each region: columns of a case, and scores of the data set from their sums."""

    lengths: ClassVar = ("object_masd",)

    config: ObjectsConfig
    regions: tuple[Region, ...]
    case: Callable[[Any, Overlaps], tuple[Numbers, Numbers]]  # values and sums, by metric
    whole: Callable[[Any, Mapping[str, FloatArray]], LossSums]
    first: str  # a sum that every region has

    def __call__(self, maps: CaseMaps) -> Iterable[MeasureColumn]:
        for region in self.regions:
            overlaps = overlaps_of(maps, region, self.config)
            yield from columns_of(region.name, *self.case(self.config, overlaps))
            if isinstance(self.config, InstancesConfig) and self.config.distances:
                yield from columns_of(region.name, *_distances(maps, region, self.config, overlaps))

    def summarise(self, sums: Mapping[Name, FloatArray]) -> dict[Name, FloatArray]:
        by_region: dict[str, LossSums] = {}
        for (metric, region), total in sums.items():
            by_region.setdefault(region, {})[metric] = total
        scores: dict[Name, FloatArray] = {}
        for region in regions_of(sums, self.first):
            own = self.whole(self.config, by_region[region])
            scores |= {(name, region): score for name, score in own.items()}
        return scores


def _numbers(overlaps: Overlaps, chosen: IntArray) -> tuple[int, int, int]:
    """Tp, fp, fn."""
    return len(chosen), len(overlaps.spurious(chosen)), len(overlaps.target_ids) - len(chosen)


def _instances(config: InstancesConfig, overlaps: Overlaps) -> tuple[Numbers, Numbers]:
    chosen = choose_pairs(overlaps, config.threshold)
    tp, fp, fn = _numbers(overlaps, chosen)
    sums: Numbers = {"instances_tp": tp, "instances_fp": fp, "instances_fn": fn}
    sums["instances_iou"] = overlaps.iou()[chosen].sum()
    sums["instances_dice"] = overlaps.dice()[chosen].sum()
    return {name: value[0] for name, value in _qualities(_as_arrays(sums)).items()}, sums


def _as_arrays(sums: Numbers) -> LossSums:
    return {name: np.array([value], np.float64) for name, value in sums.items()}


def _qualities(sums: Mapping[str, FloatArray]) -> LossSums:
    tp, total = sums["instances_tp"], sums["instances_iou"]
    objects = tp + (sums["instances_fp"] + sums["instances_fn"]) / 2
    quality = {"pq": divide(total, objects), "sq": divide(total, tp), "rq": divide(tp, objects)}
    return quality | {"object_dice": divide(sums["instances_dice"], tp)}


def _distances(maps: CaseMaps, region: Region, config: InstancesConfig, overlaps: Overlaps) -> tuple[Numbers, Numbers]:
    """The mean surface distance of the objects that match."""
    chosen = choose_pairs(overlaps, config.threshold)
    numbered = numbered_objects(maps, region, config)
    masd = measure_masd(*numbered, overlaps, chosen, np.asarray(maps.spacing, np.float64))
    return {"object_masd": masd.mean() if masd.size else np.nan}, {"instances_masd": masd.sum()}


def _all_instances(config: InstancesConfig, sums: Mapping[str, FloatArray]) -> LossSums:
    masd = {"object_masd": divide(sums["instances_masd"], sums["instances_tp"])} if config.distances else {}
    return _qualities(sums) | masd | {name: sums[f"instances_{name}"] for name in NUMBERS}


def _precision(config: AveragePrecisionConfig, overlaps: Overlaps) -> tuple[Numbers, Numbers]:
    """From an IoU of 0.5 on an object has at most one partner, so that all pairs above a threshold are matches."""
    iou, sums = overlaps.iou(), Numbers()
    for threshold in config.thresholds:
        tp, fp, fn = _numbers(overlaps, np.flatnonzero(iou > threshold))
        sums |= {f"ap_tp@{threshold:g}": tp, f"ap_all@{threshold:g}": tp + fp + fn}
    return {"ap": _all_precision(config, _as_arrays(sums))["ap"][0]}, sums


def _all_precision(config: AveragePrecisionConfig, sums: Mapping[str, FloatArray]) -> LossSums:
    scores = {f"ap@{t:g}": divide(sums[f"ap_tp@{t:g}"], sums[f"ap_all@{t:g}"]) for t in config.thresholds}
    return {"ap": np.mean(list(scores.values()), axis=0)} | scores


def _aji(config: AjiConfig, overlaps: Overlaps) -> tuple[Numbers, Numbers]:
    common, union = aggregated_jaccard(overlaps)
    return {"aji": common / union if union else np.nan}, {"aji_common": common, "aji_union": union}


def _all_aji(config: AjiConfig, sums: Mapping[str, FloatArray]) -> LossSums:
    return {"aji": divide(sums["aji_common"], sums["aji_union"])}


def _sizes(config: SizesConfig, overlaps: Overlaps) -> tuple[Numbers, Numbers]:
    """Found and missed objects by the size in the target, spurious ones by the predicted size."""
    chosen = choose_pairs(overlaps, config.threshold)
    found, missed = (
        overlaps.target_sizes[overlaps.first[chosen]],
        np.delete(overlaps.target_sizes, overlaps.first[chosen]),
    )
    spurious = overlaps.instance_sizes[overlaps.spurious(chosen)]
    sums = Numbers()
    for name, areas in (("tp", found), ("fn", missed), ("fp", spurious)):
        numbers = _count_by_size(areas, config.limits)
        sums |= {f"sizes_{name}@{size}": n for size, n in zip(_SIZES[len(config.limits)], numbers, strict=True)}
    return {}, sums


def _count_by_size(areas: IntArray, limits: tuple[int, ...]) -> IntArray:
    return np.bincount(np.searchsorted(limits, areas, side="right"), minlength=len(limits) + 1)


def _all_sizes(config: SizesConfig, sums: Mapping[str, FloatArray]) -> LossSums:
    scores: LossSums = {}
    for size in _SIZES[len(config.limits)]:
        tp, fp, fn = (sums[f"sizes_{name}@{size}"] for name in ("tp", "fp", "fn"))
        scores[f"object_recall@{size}"] = divide(tp, tp + fn)
        scores[f"object_f1@{size}"] = divide(2 * tp, 2 * tp + fp + fn)
        scores |= {f"object_fp@{size}": fp, f"object_fn@{size}": fn}
    return scores


def _partition(config: PartitionConfig, overlaps: Overlaps) -> tuple[Numbers, Numbers]:
    """A side without objects is a failure, which no other partition is worse than.

    A predicted object is one where it shares pixels with the target's, or does not lie mostly in void.
    """
    joint, rows, columns = count_pixels(overlaps, config.missed)
    spurious = overlaps.spurious(np.arange(len(overlaps.common)))
    held = len(overlaps.target_ids) > 0, bool(overlaps.common.size or spurious.size)
    if not held[0]:
        columns = overlaps.instance_sizes[spurious].astype(np.float64)
    sums: Numbers = {
        "partition_common": count_pairs(joint) if all(held) else 0.0,
        "partition_pairs": count_pairs(rows) + count_pairs(columns),
    }
    if not any(held):
        return dict.fromkeys(("voi", "voi_split", "voi_merge", "are"), np.nan), sums
    if not all(held):
        return dict.fromkeys(("voi", "voi_split", "voi_merge"), np.inf) | {"are": 1.0}, sums
    scores = partition_scores(overlaps, config.missed)
    found = {"voi": scores.split + scores.merge, "voi_split": scores.split, "voi_merge": scores.merge}
    return found | {"are": scores.adapted_rand_error}, sums


def _all_partition(config: PartitionConfig, sums: Mapping[str, FloatArray]) -> LossSums:
    return {"are": 1 - divide(2 * sums["partition_common"], sums["partition_pairs"])}


def build_instances(config: InstancesConfig, *, spec: ClassSpec, regions: tuple[Region, ...]) -> Measure:
    return _Objects(config, regions, _instances, _all_instances, "instances_tp")


def build_average_precision(config: AveragePrecisionConfig, *, spec: ClassSpec, regions: tuple[Region, ...]) -> Measure:
    return _Objects(config, regions, _precision, _all_precision, f"ap_tp@{config.thresholds[0]:g}")


def build_aji(config: AjiConfig, *, spec: ClassSpec, regions: tuple[Region, ...]) -> Measure:
    return _Objects(config, regions, _aji, _all_aji, "aji_common")


def build_partition(config: PartitionConfig, *, spec: ClassSpec, regions: tuple[Region, ...]) -> Measure:
    return _Objects(config, regions, _partition, _all_partition, "partition_common")


def build_sizes(config: SizesConfig, *, spec: ClassSpec, regions: tuple[Region, ...]) -> Measure:
    return _Objects(config, regions, _sizes, _all_sizes, "sizes_tp@small")
