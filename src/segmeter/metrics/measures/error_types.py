"""maps of one case -> wrong pixels of each class and group by type, and the sums behind those of the data set."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from segmeter.checks import expected
from segmeter.classes import ClassSpec
from segmeter.errors import InputError
from segmeter.metrics.arrays import FloatArray, IntArray, divide
from segmeter.metrics.cases.columns import MeasureColumn, columns_of
from segmeter.metrics.config.measures import ErrorTypesConfig
from segmeter.metrics.measures.protocol import CaseMaps, Measure, Name, Region, regions_of
from segmeter.metrics.pixels.error_types import TYPES, border_width, error_types, iou_gain

_SIDES = ("fp", "fn")


@dataclass(frozen=True)
class _ErrorTypes:
    config: ErrorTypesConfig
    regions: tuple[Region, ...]

    def __call__(self, maps: CaseMaps) -> Iterable[MeasureColumn]:
        for region, counts, right in self._counts(maps):
            shares = divide(counts.sum(axis=0), counts.sum() + right)
            values = {f"{kind}_errors": float(share) for kind, share in zip(TYPES, shares, strict=True)}
            sums = {
                f"errors_{side}_{kind}": counts[s, t] for s, side in enumerate(_SIDES) for t, kind in enumerate(TYPES)
            }
            yield from columns_of(region.name, values, sums | {"errors_tp": right})

    def summarise(self, sums: Mapping[Name, FloatArray]) -> dict[Name, FloatArray]:
        found: dict[Name, FloatArray] = {}
        for region in regions_of(sums, "errors_tp"):
            sides = [[sums[f"errors_{side}_{kind}", region] for kind in TYPES] for side in _SIDES]
            counts, right = np.moveaxis(np.array(sides), -1, 0), sums["errors_tp", region]
            shares = divide(counts.sum(axis=1), (counts.sum(axis=(1, 2)) + right)[:, None])
            gains = iou_gain(counts, right)
            for t, kind in enumerate(TYPES):
                found[f"{kind}_errors", region], found[f"{kind}_gain", region] = shares[:, t], gains[:, t]
        return found

    def _counts(self, maps: CaseMaps) -> Iterable[tuple[Region, IntArray, int]]:
        """Wrong pixels (2, 3) and right ones of each region; single classes are counted together."""
        if len(maps.shape) != 2:
            rule = "to have two spatial axes for error types"
            remedy = "Set data.flat=true." if maps.shape[0] == 1 else "Leave out this measure."
            raise InputError(expected("error_types", "target", rule, maps.target.shape, remedy))
        width = self.config.width or border_width(maps.shape, self.config.ratio)
        together = [region for region in self.regions if maps.counted_together(region)]
        if together:
            spec = maps.spec
            found = error_types(
                maps.target, maps.labels, num_classes=spec.num_classes, ignore_index=spec.ignore_index, width=width
            )
            for region in together:
                k = region.members[0]
                yield region, found.counts[k], int(found.right[k])
        for region in self.regions:
            if region not in together:
                target, labels = maps.planes(region)
                found = error_types(target, labels, num_classes=2, ignore_index=2, width=width)
                yield region, found.counts[1], int(found.right[1])


def build_error_types(config: ErrorTypesConfig, *, spec: ClassSpec, regions: tuple[Region, ...]) -> Measure:
    return _ErrorTypes(config, regions)
