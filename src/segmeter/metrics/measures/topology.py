"""maps of one case -> how far the topology of each class and group is off."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from segmeter.classes import ClassSpec
from segmeter.metrics.arrays import BoolArray, FloatArray
from segmeter.metrics.cases.columns import MeasureColumn, columns_of
from segmeter.metrics.config.measures import TopologyConfig
from segmeter.metrics.map_checks import union_box
from segmeter.metrics.measures.protocol import CaseMaps, Measure, Name, Region
from segmeter.metrics.objects.topology import betti_numbers


@dataclass(frozen=True)
class _Topology:
    config: TopologyConfig
    regions: tuple[Region, ...]

    def __call__(self, maps: CaseMaps) -> Iterable[MeasureColumn]:
        for region in self.regions:
            yield from columns_of(region.name, self._errors(*maps.masks(region)), {})

    def summarise(self, sums: Mapping[Name, FloatArray]) -> dict[Name, FloatArray]:
        return {}

    def _errors(self, target: BoolArray, labels: BoolArray) -> dict[str, float]:
        names = [*(f"betti{i}_error" for i in range(target.ndim)), "euler_error"]
        held = bool(target.any()), bool(labels.any())
        if not all(held):
            return dict.fromkeys(names, math.inf if any(held) else math.nan)
        box = union_box(target, labels)
        one, other = (betti_numbers(mask[box], self.config.connectivity) for mask in (target, labels))
        euler = [sum((-1) ** i * b for i, b in enumerate(numbers)) for numbers in (one, other)]
        values = [abs(a - b) for a, b in zip(one, other, strict=True)] + [abs(euler[0] - euler[1])]
        return dict(zip(names, map(float, values), strict=True))


def build_topology(config: TopologyConfig, *, spec: ClassSpec, regions: tuple[Region, ...]) -> Measure:
    return _Topology(config, regions)
