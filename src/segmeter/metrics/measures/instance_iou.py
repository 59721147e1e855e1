"""maps of one case -> IoU in which every object of a class weighs the same (iIoU), and the sums behind it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segmeter.checks import expected
from segmeter.classes import ClassSpec
from segmeter.errors import ConfigError
from segmeter.metrics.arrays import FloatArray, divide
from segmeter.metrics.cases.columns import MeasureColumn, columns_of
from segmeter.metrics.config.measures import CITYSCAPES_SIZES, InstanceIouConfig
from segmeter.metrics.measures.objects import find_objects, number_in_turn
from segmeter.metrics.measures.protocol import CaseMaps, Measure, Name, Region, regions_of

_SUMS = ("iiou_found", "iiou_objects", "iiou_pixels", "iiou_fp")


@dataclass(frozen=True)
class _InstanceIou:
    config: InstanceIouConfig
    regions: tuple[Region, ...]
    sizes: Mapping[str, float]  # of the average object, by region; empty takes those of the data

    def __call__(self, maps: CaseMaps) -> Iterable[MeasureColumn]:
        for region in self.regions:
            sums = dict(zip(_SUMS, self._count(maps, region), strict=True))
            value = self._score(region.name, {name: np.array([total]) for name, total in sums.items()})
            yield from columns_of(region.name, {"iiou": value[0]}, sums)

    def summarise(self, sums: Mapping[Name, FloatArray]) -> dict[Name, FloatArray]:
        return {
            ("iiou", region): self._score(region, {name: sums[name, region] for name in _SUMS})
            for region in regions_of(sums, _SUMS[0])
        }

    def _count(self, maps: CaseMaps, region: Region) -> tuple[float, int, int, int]:
        """The found shares of all objects together, objects, their pixels, and false positives."""
        target, labels = maps.planes(region)
        numbers = self._number(maps, region, target)
        held = numbers != 0  # few pixels, which are sorted
        ids, place = np.unique(numbers[held], return_inverse=True)
        sizes, found = np.bincount(place), np.bincount(place, weights=labels[held] == 1)
        spurious = int(np.count_nonzero((labels == 1) & (target == 0)))
        return float((found / sizes).sum()), len(ids), int(sizes.sum()), spurious

    def _number(self, maps: CaseMaps, region: Region, target: NDArray[Any]) -> NDArray[Any]:
        """Number the target's objects as the other measures of objects do."""
        if self.config.objects == "by_class":
            members = (Region(name=region.name, members=(member,)) for member in region.members)
            return number_in_turn([maps.planes(member)[0] == 1 for member in members], self.config)
        given = maps.target_instances if self.config.objects == "maps" else None
        return find_objects(target == 1, given, self.config.connectivity)

    def _score(self, region: str, sums: Mapping[str, FloatArray]) -> FloatArray:
        found, objects, pixels, fp = (sums[name] for name in _SUMS)
        average = np.nan_to_num(divide(pixels, objects)) if not self.sizes else self.sizes[region]
        return divide(average * found, average * objects + fp)


def build_instance_iou(config: InstanceIouConfig, *, spec: ClassSpec, regions: tuple[Region, ...]) -> Measure:
    """Build the measure of those regions whose average size is given, or of all where the data say it."""
    sizes: Mapping[str, float] = {}
    if config.average_sizes != "data":
        sizes = CITYSCAPES_SIZES if config.average_sizes == "cityscapes" else config.average_sizes
        regions = tuple(region for region in regions if region.name in sizes)
        if not regions:
            rule = f"to name measured classes of {', '.join(spec.names)}"
            raise ConfigError(expected("metrics", "measures.iiou.average_sizes", rule, ", ".join(sizes)))
    return _InstanceIou(config, regions, sizes)
