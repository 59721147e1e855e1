"""maps of one case -> distances between the surfaces of each class and group."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from segmeter.classes import ClassSpec
from segmeter.metrics.arrays import FloatArray
from segmeter.metrics.cases.columns import MeasureColumn, columns_of
from segmeter.metrics.config.measures import SurfaceConfig
from segmeter.metrics.measures.protocol import CaseMaps, Measure, Name, Region
from segmeter.metrics.surfaces.options import SUFFIXES, SurfaceKind
from segmeter.metrics.surfaces.surface import SurfaceMetrics, surface_metrics, surface_metrics_by_class

_DISTANCES = ("hd", "hd95", "hd95_pooled", "assd", "masd")


@dataclass(frozen=True)
class _Surface:
    lengths: ClassVar = tuple(f"{name}{suffix}" for name in _DISTANCES for suffix in SUFFIXES.values())

    config: SurfaceConfig
    regions: tuple[Region, ...]

    def __call__(self, maps: CaseMaps) -> Iterable[MeasureColumn]:
        for surface in tuple(SUFFIXES) if self.config.surface == "both" else (self.config.surface,):
            for region, scores in self._scores(maps, surface):
                yield from columns_of(region.name, self._values(scores, SUFFIXES[surface]), {})

    def _values(self, scores: SurfaceMetrics, suffix: str) -> dict[str, float]:
        values: dict[str, float] = {f"{name}{suffix}": getattr(scores, name) for name in _DISTANCES}
        either = (np.nan_to_num(scores.near_target) + np.nan_to_num(scores.near_mask)) / 2
        for i, tolerance in enumerate(scores.tolerances):
            values[f"nsd{suffix}@{tolerance:g}"] = scores.nsd[i]
            if self.config.surface == "both" and not suffix:
                share = math.nan if scores.status == "both_empty" else float(either[i])
                values[f"nsd_mean@{tolerance:g}"] = share
        return values

    def summarise(self, sums: Mapping[Name, FloatArray]) -> dict[Name, FloatArray]:
        return {}

    def _scores(self, maps: CaseMaps, surface: SurfaceKind) -> Iterable[tuple[Region, SurfaceMetrics]]:
        """Measure the classes of one map together, and groups and multilabel planes one by one."""
        together = [region for region in self.regions if maps.counted_together(region)]
        options: dict[str, Any] = {
            "spacing": maps.spacing,
            "tolerances": self.config.tolerances,
            "surface": surface,
            "penalty": self.config.penalty,
        }
        if together:
            members = sorted({region.members[0] for region in together})  # a group of one class is measured once
            found = surface_metrics_by_class(
                maps.target,
                maps.labels,
                num_classes=maps.spec.num_classes,
                classes=members,
                ignore_index=maps.spec.ignore_index,
                **options,
            )
            by_class = dict(zip(members, found, strict=True))
            yield from ((region, by_class[region.members[0]]) for region in together)
        for region in self.regions:
            if region not in together:
                yield region, surface_metrics(*maps.masks(region), **options)


def build_surface(config: SurfaceConfig, *, spec: ClassSpec, regions: tuple[Region, ...]) -> Measure:
    return _Surface(config, regions)
