"""What can be measured of a case beside its counts, and the settings of each; no torch, no heavy import."""

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from segmeter.checks import Problems, collecting
from segmeter.registry import Registry

MEASURES = Registry("measure")

_MEASURES = "segmeter.metrics.measures"


@dataclass(frozen=True, kw_only=True)
class MeasureConfig:
    """What every measure has.

    Parameters
    ----------
    name
        The registered name of the measure.
    classes
        Which classes are measured, by name. None: those that means run over; of a binary task only the object.
    """

    name: str
    classes: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        with collecting(f"metrics.measures.{self.name}") as problems:
            distinct = self.classes is None or (0 < len(self.classes) == len(set(self.classes)))
            problems.expect(distinct, "classes", "to be null or distinct names", list(self.classes or ()))
            self._check(problems)

    def _check(self, problems: Problems) -> None:
        """Note what is wrong with the measure's own settings."""


@MEASURES.register("surface", builder=f"{_MEASURES}.surface:build_surface")
@dataclass(frozen=True, kw_only=True)
class SurfaceConfig(MeasureConfig):
    """Distances between surfaces: hd, hd95, hd95_pooled, assd, masd, and nsd@t for each tolerance t.

    For marching cubes their names end in ``_marching_cubes`` (``nsd_marching_cubes@t``). Under another convention than
    ours both surfaces are measured.

    Parameters
    ----------
    tolerances
        Of the surface Dice, in the unit of the spacing, >= 0.
    penalty
        The distances where exactly one side holds the class: "inf", "diagonal" (the image's), "nan", or a number.
    surface
        Where a surface lies: "border_pixels", on the pixels of the border; "marching_cubes", between pixels, weighted
        by area (see `surface_metrics`); "both": both, and ``nsd_mean@t``, the mean of the shares of the two masks'
        border pixels, which some tools call surface Dice.
    """

    name: str = "surface"
    tolerances: tuple[float, ...] = (1.0,)
    penalty: Literal["inf", "diagonal", "nan"] | float = "inf"
    surface: Literal["border_pixels", "marching_cubes", "both"] = "border_pixels"

    def __post_init__(self) -> None:
        if isinstance(self.penalty, float) and (math.isnan(self.penalty) or self.penalty == math.inf):
            object.__setattr__(self, "penalty", str(self.penalty))  # the command line reads these words as numbers
        super().__post_init__()

    def _check(self, problems: Problems) -> None:
        ok = bool(self.tolerances) and all(0 <= tolerance < math.inf for tolerance in self.tolerances)
        ok = ok and len({f"{tolerance:g}" for tolerance in self.tolerances}) == len(self.tolerances)
        problems.expect(ok, "tolerances", "to be distinct numbers >= 0", list(self.tolerances))
        named = self.penalty in ("inf", "diagonal", "nan")
        number = isinstance(self.penalty, int | float) and not self.penalty < 0
        problems.expect(named or number, "penalty", "to be inf, diagonal, nan or a number >= 0", self.penalty)
        problems.one_of("surface", self.surface, ("border_pixels", "marching_cubes", "both"))


@MEASURES.register("boundary", builder=f"{_MEASURES}.boundary:build_boundary")
@dataclass(frozen=True, kw_only=True)
class BoundaryConfig(MeasureConfig):
    """Boundary IoU (2-D): the overlap of the bands just inside the borders.

    Parameters
    ----------
    width
        Of the bands, pixels, >= 1; None is `ratio` of the image's diagonal.
    ratio
        Of the diagonal, above 0, at most 1.
    """

    name: str = "boundary"
    width: int | None = None
    ratio: float = 0.02

    def _check(self, problems: Problems) -> None:
        problems.in_range("width", self.width, 1)
        problems.in_range("ratio", self.ratio, 0, 1, above=True)


@dataclass(frozen=True, kw_only=True)
class ObjectsConfig(MeasureConfig):
    """What every measure of objects has.

    One rule says what ignored pixels of the target (void) mean for objects, that of panopticapi and of
    ``match_instances(void=)``. They belong to no object of either side: sizes and unions are without them. A predicted
    object without a partner is left out, rather than counted as spurious, where more than half of it is void; for that
    it is taken as it was predicted, void pixels included, which also hold its parts together.

    Parameters
    ----------
    connectivity
        How many neighbours a pixel of an object has: 8, corners included (26 in a volume), or 4, with a side in common
        (6 in a volume).
    objects
        "maps": the instance maps that come with a case (files of object numbers, what a watershed split) say what is
        one object; on a side without such a map it is as for "components". "components": the connected pixels of a
        class, or of a group's classes together, are objects on both sides. "by_class": in a group, those of each of its
        classes are, and objects of different classes may match.
    """

    connectivity: Literal[8, 4] = 8
    objects: Literal["maps", "components", "by_class"] = "maps"

    def _check(self, problems: Problems) -> None:
        problems.expect(self.connectivity in (8, 4), "connectivity", "to be 8 or 4", self.connectivity)
        problems.one_of("objects", self.objects, ("maps", "components", "by_class"))


@MEASURES.register("instances", builder=f"{_MEASURES}.objects:build_instances")
@dataclass(frozen=True, kw_only=True)
class InstancesConfig(ObjectsConfig):
    """Objects that match: pq, sq, rq (which is F1 over objects), their mean Dice, and tp, fp, fn of the data set.

    Parameters
    ----------
    threshold
        IoU that a match exceeds, 0 to 1 (1 excluded).
    distances
        Whether the mean surface distance of the matches (object_masd) is measured too, in the unit of the spacing.
    """

    name: str = "instances"
    threshold: float = 0.5
    distances: bool = False

    def _check(self, problems: Problems) -> None:
        super()._check(problems)
        problems.expect(0 <= self.threshold < 1, "threshold", "between 0 and 1, below 1", self.threshold)


@MEASURES.register("average_precision", builder=f"{_MEASURES}.objects:build_average_precision")
@dataclass(frozen=True, kw_only=True)
class AveragePrecisionConfig(ObjectsConfig):
    """tp / (tp + fp + fn) over objects at each IoU threshold (ap@t), and its mean over the thresholds (ap).

    This is what Cellpose and the Data Science Bowl of 2018 call average precision, and StarDist accuracy; it is not
    COCO's, which needs a confidence per object.

    Parameters
    ----------
    thresholds
        IoU that a match exceeds, ascending, 0.5 to 1 (1 excluded).
    """

    name: str = "average_precision"
    thresholds: tuple[float, ...] = (0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95)

    def _check(self, problems: Problems) -> None:
        super()._check(problems)
        rising = all(one < other for one, other in pairwise((*self.thresholds, 1.0)))
        ok = bool(self.thresholds) and self.thresholds[0] >= 0.5 and rising
        problems.expect(ok, "thresholds", "to ascend from 0.5 or above to below 1", list(self.thresholds))


@MEASURES.register("aji", builder=f"{_MEASURES}.objects:build_aji")
@dataclass(frozen=True, kw_only=True)
class AjiConfig(ObjectsConfig):
    """Aggregated Jaccard index (aji), Kumar et al. 2017, Algorithm 1: several targets may take one prediction."""

    name: str = "aji"


@MEASURES.register("sizes", builder=f"{_MEASURES}.objects:build_sizes")
@dataclass(frozen=True, kw_only=True)
class SizesConfig(ObjectsConfig):
    """Recall and F1 over the objects of each size, of the data set: object_recall@small, object_f1@small and so on.

    Parameters
    ----------
    limits
        Pixels (voxels in 3-D), void ones left out, from which on an object is medium, and large; one number tells small
        from large. The default is COCO's.
    threshold
        IoU that a match exceeds, 0 to 1 (1 excluded).
    """

    name: str = "sizes"
    limits: tuple[int, ...] = (32**2, 96**2)
    threshold: float = 0.5

    def _check(self, problems: Problems) -> None:
        super()._check(problems)
        rising = all(one < other for one, other in pairwise((0, *self.limits)))
        problems.expect(len(self.limits) in (1, 2) and rising, "limits", "to be 1 or 2 rising numbers", self.limits)
        problems.expect(0 <= self.threshold < 1, "threshold", "between 0 and 1, below 1", self.threshold)


@MEASURES.register("cldice", builder=f"{_MEASURES}.centreline:build_cldice")
@dataclass(frozen=True, kw_only=True)
class ClDiceConfig(MeasureConfig):
    """Centreline Dice of tubes: how much of each side's skeleton lies in the other side's mask (cldice)."""

    name: str = "cldice"
