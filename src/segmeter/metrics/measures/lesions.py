"""maps of one case -> scores of the lesions of each class and group, as challenges define them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from segmeter.classes import ClassSpec
from segmeter.metrics.arrays import BoolArray, FloatArray, divide
from segmeter.metrics.cases.columns import MeasureColumn, columns_of
from segmeter.metrics.config.measures import LesionsConfig
from segmeter.metrics.measures.protocol import CaseMaps, Measure, Name, Region, regions_of
from segmeter.metrics.objects.lesions import autopet_volumes, brats_lesions, picai_lesions, regional_dice

Numbers = dict[str, float]


@dataclass(frozen=True)
class _Lesions:
    config: LesionsConfig
    regions: tuple[Region, ...]

    def __call__(self, maps: CaseMaps) -> Iterable[MeasureColumn]:
        for region in self.regions:
            target, labels = maps.masks(region)
            for convention in self.config.conventions:
                measure = getattr(self, f"_{convention}")
                yield from columns_of(region.name, *measure(target, labels, maps.spacing))

    def summarise(self, sums: Mapping[Name, FloatArray]) -> dict[Name, FloatArray]:
        scores: dict[Name, FloatArray] = {}
        for convention in ("brats", "picai"):
            for region in regions_of(sums, f"{convention}_tp"):
                tp, fp, fn = (sums[f"{convention}_{name}", region] for name in ("tp", "fp", "fn"))
                scores |= {(f"{convention}_{name}", region): n for name, n in (("tp", tp), ("fp", fp), ("fn", fn))}
                scores[f"{convention}_f1", region] = divide(2 * tp, 2 * tp + fp + fn)
        return scores

    def _brats(self, target: BoolArray, labels: BoolArray, spacing: tuple[float, ...]) -> tuple[Numbers, Numbers]:
        config = self.config
        found = brats_lesions(target, labels, spacing=spacing, dilation=config.dilation, least=config.least)
        sums = {"brats_tp": found.tp, "brats_fp": found.fp, "brats_fn": found.fn}
        return {"brats_dice": found.dice, "brats_hd95": found.hd95}, {name: float(n) for name, n in sums.items()}

    def _picai(self, target: BoolArray, labels: BoolArray, spacing: tuple[float, ...]) -> tuple[Numbers, Numbers]:
        numbers = picai_lesions(target, labels, overlap=self.config.overlap)
        return {}, {f"picai_{name}": float(n) for name, n in zip(("tp", "fp", "fn"), numbers, strict=True)}

    def _autopet(self, target: BoolArray, labels: BoolArray, spacing: tuple[float, ...]) -> tuple[Numbers, Numbers]:
        fp, fn = autopet_volumes(target, labels, voxel=float(np.prod(spacing)))
        return {"autopet_fp_volume": fp, "autopet_fn_volume": fn}, {}

    def _cc(self, target: BoolArray, labels: BoolArray, spacing: tuple[float, ...]) -> tuple[Numbers, Numbers]:
        return {"cc_dice": float(regional_dice(target, labels).mean())}, {}


def build_lesions(config: LesionsConfig, *, spec: ClassSpec, regions: tuple[Region, ...]) -> Measure:
    return _Lesions(config, regions)
