"""maps of one case -> boundary IoU of each class and group, and the sums behind that of the data set."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from segmeter.classes import ClassSpec
from segmeter.metrics.arrays import FloatArray, divide
from segmeter.metrics.cases.columns import MeasureColumn, columns_of
from segmeter.metrics.config.measures import BoundaryConfig
from segmeter.metrics.measures.protocol import CaseMaps, Measure, Name, Region, regions_of
from segmeter.metrics.surfaces.boundary_iou import BoundaryIoU, band_width, boundary_iou


@dataclass(frozen=True)
class _Boundary:
    config: BoundaryConfig
    regions: tuple[Region, ...]

    def __call__(self, maps: CaseMaps) -> Iterable[MeasureColumn]:
        for region, k, scores in self._scores(maps):
            counts = scores.counts
            common = counts[k, k]
            union = counts[k].sum() + counts[:, k].sum() - common
            sums = {"boundary_common": common, "boundary_union": union}
            yield from columns_of(region.name, {"boundary_iou": scores.iou[k]}, sums)

    def summarise(self, sums: Mapping[Name, FloatArray]) -> dict[Name, FloatArray]:
        return {
            ("boundary_iou", region): divide(sums["boundary_common", region], sums["boundary_union", region])
            for region in regions_of(sums, "boundary_common")
        }

    def _scores(self, maps: CaseMaps) -> Iterable[tuple[Region, int, BoundaryIoU]]:
        together = [region for region in self.regions if maps.counted_together(region)]
        width = self.config.width or band_width(maps.shape, self.config.ratio)
        if together:
            found = boundary_iou(
                maps.target,
                maps.labels,
                num_classes=maps.spec.num_classes,
                ignore_index=maps.spec.ignore_index,
                width=width,
            )
            yield from ((region, region.members[0], found) for region in together)
        for region in self.regions:
            if region not in together:
                target, labels = maps.planes(region)
                yield region, 1, boundary_iou(target, labels, num_classes=2, ignore_index=2, width=width)


def build_boundary(config: BoundaryConfig, *, spec: ClassSpec, regions: tuple[Region, ...]) -> Measure:
    return _Boundary(config, regions)
