"""Numbers of matched, missed, split and merged objects of each class and group, and a row per object."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from scipy import ndimage

from segmeter.metrics.arrays import FloatArray, IntArray
from segmeter.metrics.cases.objects import join_objects, pack_objects
from segmeter.metrics.map_checks import union_box
from segmeter.metrics.measures.objects import numbered_objects, overlaps_of
from segmeter.metrics.measures.protocol import OBJECTS, CaseMaps, Numbers, Region, RegionMeasure
from segmeter.metrics.objects.matching import (
    INSTANCE_EVENTS,
    TARGET_EVENTS,
    Overlaps,
    choose_pairs,
    find_events,
    renumber,
)
from segmeter.metrics.surfaces.distances import distances_by_class
from segmeter.metrics.surfaces.surface import summarise_distances

_NUMBERS = tuple(dict.fromkeys([*TARGET_EVENTS, *INSTANCE_EVENTS[:4]]))


class ObjectEvents(RegionMeasure):
    """Events of the objects of each region, and their rows in objects.parquet."""

    first = ("events_matched",)

    def measure(self, maps: CaseMaps) -> Iterator[tuple[Region, Numbers, Numbers]]:
        tables = []
        for region in self.regions:
            overlaps = overlaps_of(maps, region, self.config)
            chosen = choose_pairs(overlaps, self.config.threshold)
            numbers = find_events(overlaps, chosen).numbers()
            yield region, {}, {f"events_{name}": numbers[name] for name in _NUMBERS}
            if self.config.table:
                tables.append(self._table(maps, region, overlaps, chosen))
        if tables:
            maps.kept[OBJECTS] = join_objects(tables)

    def whole(self, sums: Mapping[str, FloatArray], region: str) -> dict[str, FloatArray]:
        return {f"objects_{name}": sums[f"events_{name}"] for name in _NUMBERS}

    def _table(self, maps: CaseMaps, region: Region, overlaps: Overlaps, chosen: IntArray) -> bytes:
        """A row per object of either side, the target's first, by ascending id."""
        target, instances, void = numbered_objects(maps, region, self.config)
        if void is not None:
            target, instances = np.where(void, 0, target), np.where(void, 0, instances)
        start = np.array([side.start for side in union_box(*(plane == 1 for plane in maps.planes(region)))])
        numbered = renumber(target, overlaps.target_ids), renumber(instances, overlaps.instance_ids)
        ids, sizes = (overlaps.target_ids, overlaps.instance_ids), (overlaps.target_sizes, overlaps.instance_sizes)
        described = [_describe(one, start, maps.shape) for one in numbered]
        places = overlaps.first[chosen], overlaps.second[chosen]
        scores = {"iou": overlaps.iou()[chosen], "dice": overlaps.dice()[chosen]}
        if self.config.distances:
            spacing = np.asarray(maps.spacing, np.float64)
            one, other = (renumber(each, place + 1) for each, place in zip(numbered, places, strict=True))
            distances = distances_by_class(one, other, range(1, len(chosen) + 1), spacing)
            scores["hd95"] = np.array([summarise_distances(each, (), np.inf).hd95 for each in distances])
            ours, theirs = (
                np.array([side["centroid"][i] for i in place], np.float64).reshape(-1, len(spacing))
                for side, place in zip(described, places, strict=True)
            )
            scores["centroid_distance"] = np.sqrt((((ours - theirs) * spacing) ** 2).sum(axis=1))
        events = find_events(overlaps, chosen)
        happened = [[TARGET_EVENTS[k] for k in events.targets], [INSTANCE_EVENTS[k] for k in events.instances]]
        for k, side in enumerate(described):
            side |= {"side": [("target", "prediction")[k]] * len(ids[k]), "id": ids[k], "pixels": sizes[k]}
            side["event"], partners = happened[k], np.full(len(ids[k]), None, object)
            partners[places[k]] = ids[1 - k][places[1 - k]].tolist()
            side["partner"] = partners
            for name, values in scores.items():
                side[name] = np.full(len(ids[k]), np.nan)
                side[name][places[k]] = values
        columns: dict[str, Any] = {name: [*described[0][name], *described[1][name]] for name in described[0]}
        columns["size"] = [int(pixels) * float(np.prod(maps.spacing)) for pixels in columns["pixels"]]
        columns["region"] = [region.name] * len(columns["id"])
        return pack_objects(columns)


def _describe(numbered: IntArray, start: IntArray, shape: tuple[int, ...]) -> dict[str, Any]:
    """Box, centroid and whether the image's edge is touched, of objects that are numbered from 1 on."""
    boxes = ndimage.find_objects(numbered) if numbered.size else []
    if not boxes:
        return {"box": [], "centroid": [], "touches_border": []}
    firsts = np.array([[side.start for side in box] for box in boxes], np.int64).reshape(-1, numbered.ndim) + start
    lasts = np.array([[side.stop for side in box] for box in boxes], np.int64).reshape(-1, numbered.ndim) + start
    flat = numbered.reshape(-1)
    held = np.flatnonzero(flat)
    sizes = np.bincount(flat[held], minlength=len(boxes) + 1)[1:]
    places = np.unravel_index(held, numbered.shape)
    sums = [np.bincount(flat[held], place, minlength=len(boxes) + 1)[1:] for place in places]
    centroids = np.stack(sums, axis=1) / sizes[:, None] + start
    return {
        "box": np.concatenate([firsts, lasts], axis=1).tolist(),
        "centroid": centroids.tolist(),
        "touches_border": ((firsts == 0) | (lasts == np.array(shape))).any(axis=1).tolist(),
    }
