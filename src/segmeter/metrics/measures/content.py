"""maps of one case -> what its reference shows, by which cases are sliced."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from segmeter.classes import ClassSpec
from segmeter.metrics.arrays import BoolArray, FloatArray
from segmeter.metrics.cases.columns import MeasureColumn, columns_of
from segmeter.metrics.config.measures import ContentConfig
from segmeter.metrics.measures.objects import find_objects
from segmeter.metrics.measures.protocol import CaseMaps, Measure, Name, Region

CONTENT = ("object_size", "touches_border")  # of the reference alone, so that no two runs differ in them


@dataclass(frozen=True)
class _Content:
    config: ContentConfig
    regions: tuple[Region, ...]

    def __call__(self, maps: CaseMaps) -> Iterable[MeasureColumn]:
        for region in self.regions:
            mask = maps.masks(region)[0]
            sizes = np.bincount(find_objects(mask, maps.target_instances, self.config.connectivity).reshape(-1))[1:]
            size = float(np.median(sizes[sizes > 0])) if sizes.any() else np.nan
            border = float(_touches_border(mask)) if sizes.any() else np.nan
            yield from columns_of(region.name, dict(zip(CONTENT, (size, border), strict=True)), {})

    def summarise(self, sums: Mapping[Name, FloatArray]) -> dict[Name, FloatArray]:
        return {}


def _touches_border(mask: BoolArray) -> bool:
    return any(bool(np.take(mask, [0, -1], axis=axis).any()) for axis in range(mask.ndim))


def build_content(config: ContentConfig, *, spec: ClassSpec, regions: tuple[Region, ...]) -> Measure:
    return _Content(config, regions)
