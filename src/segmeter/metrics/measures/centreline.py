"""maps of one case -> centreline Dice of each class and group, and the sums behind that of the data set."""

from collections.abc import Mapping
from dataclasses import dataclass

from segmeter.classes import ClassSpec
from segmeter.metrics.arrays import FloatArray
from segmeter.metrics.config.measures import ClDiceConfig
from segmeter.metrics.measures.protocol import SUM, CaseMaps, Measure, Region, names_of
from segmeter.metrics.surfaces.centreline import centreline_dice, cldice_of_counts


@dataclass(frozen=True)
class _ClDice:
    regions: tuple[Region, ...]

    def __call__(self, maps: CaseMaps) -> dict[str, float]:
        columns: dict[str, float] = {}
        for region in self.regions:
            found = centreline_dice(*maps.masks(region))
            columns[f"cldice/{region.name}"] = found.cldice
            for name in ("inside_target", "points_mask", "inside_mask", "points_target"):
                columns[f"{SUM}cldice_{name}/{region.name}"] = float(getattr(found, name))
        return columns

    def summarise(self, sums: Mapping[str, FloatArray]) -> dict[str, FloatArray]:
        parts = ("inside_target", "points_mask", "inside_mask", "points_target")
        return {
            f"cldice/{name}": cldice_of_counts(*(sums[f"cldice_{part}/{name}"] for part in parts))
            for name in names_of(sums, "cldice_points_mask")
        }


def build_cldice(config: ClDiceConfig, *, spec: ClassSpec, regions: tuple[Region, ...]) -> Measure:
    return _ClDice(regions)
