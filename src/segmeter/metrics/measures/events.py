"""maps of one case -> what became of the objects of each class and group: numbers, and a row per object."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from segmeter.classes import ClassSpec
from segmeter.metrics.arrays import FloatArray, IntArray
from segmeter.metrics.cases.columns import MeasureColumn, columns_of
from segmeter.metrics.cases.objects import join_objects, pack_objects
from segmeter.metrics.config.measures import EventsConfig
from segmeter.metrics.map_checks import union_box
from segmeter.metrics.measures.objects import numbered_objects, overlaps_of
from segmeter.metrics.measures.protocol import OBJECTS, CaseMaps, Measure, Name, Region, regions_of
from segmeter.metrics.objects.events import INSTANCE_EVENTS, TARGET_EVENTS, Events, find_events
from segmeter.metrics.objects.matching import Overlaps, choose_pairs, renumber
from segmeter.metrics.surfaces.distances import distances_by_class
from segmeter.metrics.surfaces.surface import summarise_distances

_NUMBERS = tuple(dict.fromkeys([*TARGET_EVENTS, *INSTANCE_EVENTS[:4]]))


@dataclass(frozen=True)
class _Events:
    config: EventsConfig
    regions: tuple[Region, ...]

    def __call__(self, maps: CaseMaps) -> Iterable[MeasureColumn]:
        tables = []
        for region in self.regions:
            overlaps = overlaps_of(maps, region, self.config)
            events = find_events(overlaps, choose_pairs(overlaps, self.config.threshold))
            numbers = events.numbers()
            yield from columns_of(region.name, {}, {f"events_{name}": numbers[name] for name in _NUMBERS})
            if self.config.table:
                tables.append(_table(maps, region, self.config, overlaps, events))
        if tables:
            maps.kept[OBJECTS] = join_objects(tables)

    def summarise(self, sums: Mapping[Name, FloatArray]) -> dict[Name, FloatArray]:
        return {
            (f"objects_{name}", region): sums[f"events_{name}", region]
            for region in regions_of(sums, "events_matched")
            for name in _NUMBERS
        }


def _table(maps: CaseMaps, region: Region, config: EventsConfig, overlaps: Overlaps, events: Events) -> bytes:
    """A row per object of either side, the target's first, by ascending id."""
    target, instances, void = numbered_objects(maps, region, config)
    if void is not None:
        target, instances = np.where(void, 0, target), np.where(void, 0, instances)
    start = np.array([side.start for side in union_box(*(plane == 1 for plane in maps.planes(region)))])
    sides = [
        ("target", renumber(target, overlaps.target_ids), overlaps.target_ids, overlaps.target_sizes),
        ("prediction", renumber(instances, overlaps.instance_ids), overlaps.instance_ids, overlaps.instance_sizes),
    ]
    described = [
        _describe(numbered, start, maps.shape) | {"side": [side] * len(ids), "id": ids, "pixels": sizes}
        for side, numbered, ids, sizes in sides
    ]
    matched = np.flatnonzero(events.partners >= 0)
    partners = events.partners[matched]
    described[0] |= _partners(len(overlaps.target_ids), matched, overlaps.instance_ids[partners])
    described[1] |= _partners(len(overlaps.instance_ids), partners, overlaps.target_ids[matched])
    scores = _scores(maps, config, overlaps, (sides[0][1], sides[1][1]), matched, partners, described)
    for one, places in zip(described, (matched, partners), strict=True):
        for name, values in scores.items():
            column = np.full(len(one["id"]), np.nan)
            column[places] = values
            one[name] = column
    described[0]["event"] = [TARGET_EVENTS[k] for k in events.targets]
    described[1]["event"] = [INSTANCE_EVENTS[k] for k in events.instances]
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


def _partners(count: int, places: IntArray, ids: IntArray) -> dict[str, list[int | None]]:
    partners: list[int | None] = [None] * count
    for place, partner in zip(places.tolist(), ids.tolist(), strict=True):
        partners[place] = partner
    return {"partner": partners}


def _scores(
    maps: CaseMaps,
    config: EventsConfig,
    overlaps: Overlaps,
    numbered: tuple[IntArray, IntArray],
    matched: IntArray,
    partners: IntArray,
    described: list[dict[str, Any]],
) -> dict[str, NDArray[Any]]:
    """Of each matched pair."""
    pairs = {(t, s): p for p, (t, s) in enumerate(zip(overlaps.first.tolist(), overlaps.second.tolist(), strict=True))}
    chosen = np.array([pairs[pair] for pair in zip(matched.tolist(), partners.tolist(), strict=True)], np.int64)
    found = {"iou": overlaps.iou()[chosen], "dice": overlaps.dice()[chosen]}
    if not config.distances:
        return found
    spacing, ids = np.asarray(maps.spacing, np.float64), np.arange(1, len(matched) + 1)
    one, other = renumber(numbered[0], matched + 1), renumber(numbered[1], partners + 1)
    distances = distances_by_class(one, other, range(1, len(ids) + 1), spacing)
    found["hd95"] = np.array([summarise_distances(each, (), np.inf).hd95 for each in distances])
    ours, theirs = (
        np.array([side["centroid"][i] for i in places], np.float64).reshape(-1, len(spacing))
        for side, places in zip(described, (matched, partners), strict=True)
    )
    return found | {"centroid_distance": np.sqrt((((ours - theirs) * spacing) ** 2).sum(axis=1))}


def build_events(config: EventsConfig, *, spec: ClassSpec, regions: tuple[Region, ...]) -> Measure:
    return _Events(config, regions)
