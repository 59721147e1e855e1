"""maps of one case -> centreline Dice of each class and group, and the sums behind that of the data set."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from segmeter.classes import ClassSpec
from segmeter.metrics.arrays import FloatArray
from segmeter.metrics.cases.columns import MeasureColumn, columns_of
from segmeter.metrics.config.measures import ClDiceConfig
from segmeter.metrics.measures.protocol import CaseMaps, Measure, Name, Region, regions_of
from segmeter.metrics.surfaces.centreline import centreline_dice, cldice_of_counts

_PARTS = ("inside_target", "points_mask", "inside_mask", "points_target")


@dataclass(frozen=True)
class _ClDice:
    regions: tuple[Region, ...]

    def __call__(self, maps: CaseMaps) -> Iterable[MeasureColumn]:
        for region in self.regions:
            found = centreline_dice(*maps.masks(region))
            sums = {f"cldice_{part}": getattr(found, part) for part in _PARTS}
            yield from columns_of(region.name, {"cldice": found.cldice}, sums)

    def summarise(self, sums: Mapping[Name, FloatArray]) -> dict[Name, FloatArray]:
        return {
            ("cldice", region): cldice_of_counts(*(sums[f"cldice_{part}", region] for part in _PARTS))
            for region in regions_of(sums, "cldice_points_mask")
        }


def build_cldice(config: ClDiceConfig, *, spec: ClassSpec, regions: tuple[Region, ...]) -> Measure:
    return _ClDice(regions)
