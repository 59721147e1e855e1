"""maps of one case -> what its reference and its image show, by which cases are sliced."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segmeter.classes import ClassSpec
from segmeter.metrics.arrays import BoolArray, FloatArray
from segmeter.metrics.cases.columns import MeasureColumn, columns_of
from segmeter.metrics.config.measures import ContentConfig
from segmeter.metrics.measures.objects import find_objects
from segmeter.metrics.measures.protocol import CaseMaps, Measure, Name, Region

OF_A_CLASS = ("object_size", "touches_border")
BRIGHTNESS = ("brightness", "image")  # metric and region
CONTENT = (*OF_A_CLASS, BRIGHTNESS[0])  # of reference and image alone, so that no two runs differ in them


@dataclass(frozen=True)
class _Content:
    config: ContentConfig
    regions: tuple[Region, ...]

    def __call__(self, maps: CaseMaps) -> Iterable[MeasureColumn]:
        for region in self.regions:
            mask = maps.masks(region)[0]
            numbered = find_objects(mask, maps.target_instances, self.config.connectivity)
            sizes = np.unique(numbered[numbered > 0], return_counts=True)[1]
            size = float(np.median(sizes)) if sizes.size else np.nan
            border = float(_touches_border(mask)) if sizes.size else np.nan
            yield from columns_of(region.name, dict(zip(OF_A_CLASS, (size, border), strict=True)), {})
        if maps.image is not None:
            yield MeasureColumn(*BRIGHTNESS, _brightness(maps.image))

    def summarise(self, sums: Mapping[Name, FloatArray]) -> dict[Name, FloatArray]:
        return {}


def _brightness(image: NDArray[Any]) -> float:
    """Mean over pixels and channels; of integers as a share of the largest that their type holds."""
    largest = np.iinfo(image.dtype).max if image.dtype.kind in "iu" else 1
    return float(image.mean(dtype=np.float64)) / largest


def _touches_border(mask: BoolArray) -> bool:
    return any(bool(np.take(mask, [0, -1], axis=axis).any()) for axis in range(mask.ndim))


def build_content(config: ContentConfig, *, spec: ClassSpec, regions: tuple[Region, ...]) -> Measure:
    return _Content(config, regions)
