"""Measures the objects of a case: matches, average precision, partitions, scores by size, events, and content."""

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from segmeter.checks import expected
from segmeter.classes import ClassSpec
from segmeter.errors import ConfigError
from segmeter.metrics.arrays import BoolArray, FloatArray, IntArray, divide, union_box
from segmeter.metrics.config.measures import CITYSCAPES_SIZES, InstanceIouConfig, ObjectsConfig
from segmeter.metrics.config.scores import NUMBERS
from segmeter.metrics.distances import distances_by_class
from segmeter.metrics.measures.protocol import OBJECTS, CaseMaps, Numbers, Region, RegionMeasure
from segmeter.metrics.objects import matching
from segmeter.metrics.objects.matching import INSTANCE_EVENTS, TARGET_EVENTS, Events, Overlaps
from segmeter.metrics.objects.scores import measure_masd
from segmeter.metrics.surfaces import summarise_distances

_SIZES = {1: ("small", "large"), 2: ("small", "medium", "large")}
_QUALITIES = ("pq", "sq", "rq", "object_dice")
_IIOU = ("iiou_found", "iiou_objects", "iiou_pixels", "iiou_fp")


def numbered_objects(
    maps: CaseMaps, region: Region, config: ObjectsConfig
) -> tuple[NDArray[Any], NDArray[Any], BoolArray | None]:
    """Number the objects of a region in target and labels, and mark void pixels; all cropped to the objects' box.

    Predicted objects keep their void pixels, which decide whether an object lies mostly in void. This way void doesn't
    split an object in two either.
    """
    planes_by_side = object_planes(maps, region, config)
    target, labels = (reduce(np.maximum, planes) for planes in planes_by_side)
    box = union_box(target == 1, labels)
    void = target[box] == 2
    instance_maps = (maps.target_instances, maps.instances) if config.objects == "maps" else (None, None)
    target_objects, predicted_objects = (
        number_objects([plane[box] == 1 for plane in planes], None if ids is None else ids[box], config.connectivity)
        for planes, ids in zip(planes_by_side, instance_maps, strict=True)
    )
    return target_objects, predicted_objects, void if void.any() else None


def object_planes(maps: CaseMaps, region: Region, config: ObjectsConfig) -> list[tuple[NDArray[np.uint8], ...]]:
    """Return the target's and the labels' planes in which objects are found: one each, or one for each class."""
    groups = [(member,) for member in region.members] if config.objects == "by_class" else [region.members]
    pairs = [maps.planes(Region(name=region.name, members=members)) for members in groups]
    return list(zip(*pairs, strict=True))


def number_objects(masks: Sequence[BoolArray], instances: NDArray[Any] | None, connectivity: int) -> NDArray[Any]:
    """Number the objects of disjoint masks one after the other, with distinct numbers.

    They are the connected components of each mask, or the part of the instance map inside it.
    """
    parts = [
        matching.label_parts(mask, connectivity)[0] if instances is None else np.where(mask, instances, 0)
        for mask in masks
    ]
    return reduce(lambda numbered, more: np.where(more > 0, more + numbered.max(initial=0), numbered), parts)


def overlaps_of(maps: CaseMaps, region: Region, config: ObjectsConfig) -> Overlaps:
    """Find the objects of a region in both maps and the pixels that they share. The result is cached with the case, for
    other measures.
    """
    key = (region.members, config.connectivity, config.objects)
    if key not in maps.kept:
        maps.kept[key] = matching.find_overlaps(*numbered_objects(maps, region, config))
    overlaps: Overlaps = maps.kept[key]
    return overlaps


def _count(overlaps: Overlaps, chosen: IntArray) -> Numbers:
    """Count matched, spurious and missed objects."""
    numbers = len(chosen), len(overlaps.spurious(chosen)), len(overlaps.target_ids) - len(chosen)
    return dict(zip(NUMBERS, numbers, strict=True))


class Instances(RegionMeasure):
    """Matches objects, and measures how many are found and how well."""

    region_marker_sums = ("instances_tp",)
    scores_also_per_case = _QUALITIES

    def case(self, maps: CaseMaps, region: Region) -> tuple[Numbers, Numbers]:
        overlaps = overlaps_of(maps, region, self.config)
        chosen = matching.choose_pairs(overlaps, self.config.threshold)
        sums = {f"instances_{name}": number for name, number in _count(overlaps, chosen).items()}
        sums["instances_iou"] = overlaps.iou()[chosen].sum()
        sums["instances_dice"] = overlaps.dice()[chosen].sum()
        values = Numbers()
        if self.config.distances:
            numbered = numbered_objects(maps, region, self.config)
            masd = measure_masd(*numbered, overlaps, chosen, np.asarray(maps.spacing, np.float64))
            values["object_masd"] = masd.mean() if masd.size else np.nan
            sums["instances_masd"] = masd.sum()
        return values, sums

    def dataset_scores(self, sums: Mapping[str, FloatArray], region: str) -> dict[str, FloatArray]:
        tp, iou = sums["instances_tp"], sums["instances_iou"]
        objects = tp + (sums["instances_fp"] + sums["instances_fn"]) / 2
        qualities = (divide(iou, objects), divide(iou, tp), divide(tp, objects), divide(sums["instances_dice"], tp))
        scores = dict(zip(_QUALITIES, qualities, strict=True))
        if self.config.distances:
            scores["object_masd"] = divide(sums["instances_masd"], tp)
        return scores | {name: sums[f"instances_{name}"] for name in NUMBERS}


class AveragePrecision(RegionMeasure):
    """Measures the share of correct objects at each IoU threshold."""

    region_marker_sums = ("ap_tp",)
    scores_also_per_case = ("ap",)

    def case(self, maps: CaseMaps, region: Region) -> tuple[Numbers, Numbers]:
        """Count matches, which need no choice: thresholds are at least 0.5, so an object has at most one partner."""
        overlaps = overlaps_of(maps, region, self.config)
        iou = overlaps.iou()
        sums = Numbers()
        for threshold in self.config.thresholds:
            numbers = _count(overlaps, np.flatnonzero(iou > threshold))
            sums |= {f"ap_tp@{threshold:g}": numbers["tp"], f"ap_all@{threshold:g}": sum(numbers.values())}
        return {}, sums

    def dataset_scores(self, sums: Mapping[str, FloatArray], region: str) -> dict[str, FloatArray]:
        """Return the precision at each threshold, and its mean."""
        thresholds = self.config.thresholds
        scores = {f"ap@{t:g}": divide(sums[f"ap_tp@{t:g}"], sums[f"ap_all@{t:g}"]) for t in thresholds}
        return {"ap": np.mean(list(scores.values()), axis=0)} | scores


class Aji(RegionMeasure):
    """Measures the aggregated Jaccard index."""

    region_marker_sums = ("aji_common",)
    scores_also_per_case = ("aji",)

    def case(self, maps: CaseMaps, region: Region) -> tuple[Numbers, Numbers]:
        common, union = matching.aggregated_jaccard(overlaps_of(maps, region, self.config))
        return {}, {"aji_common": common, "aji_union": union}

    def dataset_scores(self, sums: Mapping[str, FloatArray], region: str) -> dict[str, FloatArray]:
        return {"aji": divide(sums["aji_common"], sums["aji_union"])}


class Sizes(RegionMeasure):
    """Counts found and missed objects by their size in the target, and spurious objects by their predicted size."""

    region_marker_sums = ("sizes_tp",)

    def case(self, maps: CaseMaps, region: Region) -> tuple[Numbers, Numbers]:
        overlaps = overlaps_of(maps, region, self.config)
        limits = sorted(self.config.limits)
        chosen = matching.choose_pairs(overlaps, self.config.threshold)
        matched = overlaps.first[chosen]
        areas_by_name = {
            "tp": overlaps.target_sizes[matched],
            "fn": np.delete(overlaps.target_sizes, matched),
            "fp": overlaps.instance_sizes[overlaps.spurious(chosen)],
        }
        sums = Numbers()
        for name, areas in areas_by_name.items():
            numbers = np.bincount(np.searchsorted(limits, areas, side="right"), minlength=len(limits) + 1)
            sums |= {f"sizes_{name}@{size}": n for size, n in zip(_SIZES[len(limits)], numbers, strict=True)}
        return {}, sums

    def dataset_scores(self, sums: Mapping[str, FloatArray], region: str) -> dict[str, FloatArray]:
        scores: dict[str, FloatArray] = {}
        for size in _SIZES[len(self.config.limits)]:
            tp, fp, fn = (sums[f"sizes_{name}@{size}"] for name in NUMBERS)
            scores[f"object_recall@{size}"] = divide(tp, tp + fn)
            scores[f"object_f1@{size}"] = divide(2 * tp, 2 * tp + fp + fn)
            scores |= {f"object_fp@{size}": fp, f"object_fn@{size}": fn}
        return scores


class Partition(RegionMeasure):
    """Measures how the prediction splits and merges the target's objects."""

    region_marker_sums = ("partition_common",)

    def case(self, maps: CaseMaps, region: Region) -> tuple[Numbers, Numbers]:
        return matching.partition_scores(overlaps_of(maps, region, self.config), self.config.missed)

    def dataset_scores(self, sums: Mapping[str, FloatArray], region: str) -> dict[str, FloatArray]:
        return {"are": 1 - divide(2 * sums["partition_common"], sums["partition_pairs"])}


class InstanceIou(RegionMeasure):
    """Measures an IoU in which every object of a class weighs the same."""

    region_marker_sums = ("iiou_found",)
    scores_also_per_case = ("iiou",)

    def case(self, maps: CaseMaps, region: Region) -> tuple[Numbers, Numbers]:
        """Sum up the share of each object that is found, the objects, their pixels, and false positive pixels."""
        target, labels = maps.planes(region)
        instance_map = maps.target_instances if self.config.objects == "maps" else None
        planes = object_planes(maps, region, self.config)[0]
        numbered = number_objects([plane == 1 for plane in planes], instance_map, self.config.connectivity)
        in_object = numbered != 0  # sorts few pixels
        ids, index = np.unique(numbered[in_object], return_inverse=True)
        sizes, found_pixels = np.bincount(index), np.bincount(index, weights=labels[in_object] == 1)
        false_positives = int(np.count_nonzero((labels == 1) & (target == 0)))
        sums = (float((found_pixels / sizes).sum()), len(ids), int(sizes.sum()), false_positives)
        return {}, dict(zip(_IIOU, sums, strict=True))

    def dataset_scores(self, sums: Mapping[str, FloatArray], region: str) -> dict[str, FloatArray]:
        """Compute the IoU as if each object had the average size."""
        found, objects, pixels, fp = (sums[name] for name in _IIOU)
        sizes = self.config.average_sizes
        average = np.nan_to_num(divide(pixels, objects)) if sizes == "data" else sizes[region]
        return {"iiou": divide(average * found, average * objects + fp)}


def build_instance_iou(config: InstanceIouConfig, *, spec: ClassSpec, regions: tuple[Region, ...]) -> InstanceIou:
    """Build the measure for the regions whose average size is given, or for all if it is measured on the data."""
    if config.average_sizes == "cityscapes":
        config = config.replace(average_sizes=dict(CITYSCAPES_SIZES))
    sizes = config.average_sizes
    regions = tuple(region for region in regions if sizes == "data" or region.name in sizes)
    if not regions:
        rule = f"to name measured classes of {', '.join(spec.names)}"
        given = sizes if isinstance(sizes, str) else ", ".join(sizes)
        raise ConfigError(expected("metrics", "measures.iiou.average_sizes", rule, given))
    return InstanceIou(config, spec=spec, regions=regions)


_EVENTS = tuple(dict.fromkeys([*TARGET_EVENTS, *INSTANCE_EVENTS[:4]]))


class ObjectEvents(RegionMeasure):
    """Counts the events of each region's objects, and makes the objects' rows in objects.parquet."""

    region_marker_sums = ("events_matched",)

    def measure(self, maps: CaseMaps) -> Iterator[tuple[Region, Numbers, Numbers]]:
        rows = []
        for region in self.regions:
            overlaps = overlaps_of(maps, region, self.config)
            chosen = matching.choose_pairs(overlaps, self.config.threshold)
            events = matching.find_events(overlaps, chosen)
            yield region, {}, {f"events_{name}": number for name, number in events.numbers().items()}
            rows += self._rows(maps, region, overlaps, chosen, events) if self.config.table else []
        if self.config.table:
            maps.kept[OBJECTS] = rows

    def dataset_scores(self, sums: Mapping[str, FloatArray], region: str) -> dict[str, FloatArray]:
        return {f"objects_{name}": sums[f"events_{name}"] for name in _EVENTS}

    def _rows(
        self, maps: CaseMaps, region: Region, overlaps: Overlaps, chosen: IntArray, events: Events
    ) -> list[dict[str, Any]]:
        """Build a row per object of either side, the target's first, by ascending id."""
        target, instances, void = numbered_objects(maps, region, self.config)
        if void is not None:
            target, instances = np.where(void, 0, target), np.where(void, 0, instances)
        start = np.array([side.start for side in union_box(*(plane == 1 for plane in maps.planes(region)))])
        numbered = matching.renumber(target, overlaps.target_ids), matching.renumber(instances, overlaps.instance_ids)
        ids, sizes = (overlaps.target_ids, overlaps.instance_ids), (overlaps.target_sizes, overlaps.instance_sizes)
        shapes = [_describe(objects, start, maps.shape) for objects in numbered]
        matched = overlaps.first[chosen], overlaps.second[chosen]  # indices of the matched objects of either side
        scores = {"iou": overlaps.iou()[chosen], "dice": overlaps.dice()[chosen]}
        if self.config.distances:
            spacing = np.asarray(maps.spacing, np.float64)
            pairs = [matching.renumber(objects, index + 1) for objects, index in zip(numbered, matched, strict=True)]
            distances = distances_by_class(pairs[0], pairs[1], range(1, len(chosen) + 1), spacing)
            scores["hd95"] = np.array([summarise_distances(*sides, (), np.inf).hd95 for sides in distances])
            target_centroids, predicted_centroids = (
                np.array([shape["centroid"][i] for i in index], np.float64).reshape(-1, len(spacing))
                for shape, index in zip(shapes, matched, strict=True)
            )
            steps = (target_centroids - predicted_centroids) * spacing
            scores["centroid_distance"] = np.sqrt((steps**2).sum(axis=1))
        event_names = [[TARGET_EVENTS[k] for k in events.targets], [INSTANCE_EVENTS[k] for k in events.instances]]
        rows = []
        for k, side in enumerate(("target", "prediction")):
            volumes = [pixels * float(np.prod(maps.spacing)) for pixels in sizes[k].tolist()]
            columns = {"id": ids[k].tolist(), "pixels": sizes[k].tolist(), "size": volumes, "event": event_names[k]}
            columns |= shapes[k]
            side_rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
            extra = {"partner": ids[1 - k][matched[1 - k]], **scores}  # for matched objects only; undefined is null
            for i, *values in zip(matched[k].tolist(), *(column.tolist() for column in extra.values()), strict=True):
                side_rows[i] |= {key: value for key, value in zip(extra, values, strict=True) if value == value}
            rows += [{"side": side, "region": region.name, **row} for row in side_rows]
        return rows


def _describe(numbered: IntArray, start: IntArray, shape: tuple[int, ...]) -> dict[str, Any]:
    """Find the box and the centroid of objects that are numbered from 1, and whether they touch the image's edge."""
    if not numbered.any():
        return {"box": [], "centroid": [], "touches_border": []}
    boxes = ndimage.find_objects(numbered)
    ends = [[(side.start, side.stop) for side in box] for box in boxes]
    starts, stops = np.moveaxis(np.array(ends, np.int64) + start[:, None], -1, 0)
    centroids = ndimage.center_of_mass(numbered > 0, numbered, range(1, len(boxes) + 1))
    return {
        "box": np.concatenate([starts, stops], axis=1).tolist(),
        "centroid": (np.array(centroids) + start).tolist(),
        "touches_border": ((starts == 0) | (stops == np.array(shape))).any(axis=1).tolist(),
    }
