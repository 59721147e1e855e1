"""What can be measured of a case beside its counts, and the settings of each; no torch, no heavy import."""

import math
from dataclasses import dataclass
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


@MEASURES.register("surface", builder=f"{_MEASURES}:build_surface")
@dataclass(frozen=True, kw_only=True)
class SurfaceConfig(MeasureConfig):
    """Distances between surfaces: hd, hd95, hd95_pooled, assd, masd, and nsd@t for each tolerance t.

    Parameters
    ----------
    tolerances
        Of the surface Dice, in the unit of the spacing, >= 0.
    penalty
        The distances where exactly one side holds the class: "inf", "diagonal" (the image's), "nan", or a number.
    school
        Where a surface lies: "A", on the border's pixels; "B", between pixels, weighed by area. See `surface_metrics`.
    """

    name: str = "surface"
    tolerances: tuple[float, ...] = (1.0,)
    penalty: Literal["inf", "diagonal", "nan"] | float = "inf"
    school: Literal["A", "B"] = "A"

    def _check(self, problems: Problems) -> None:
        ok = bool(self.tolerances) and all(0 <= tolerance < math.inf for tolerance in self.tolerances)
        ok = ok and len({f"{tolerance:g}" for tolerance in self.tolerances}) == len(self.tolerances)
        problems.expect(ok, "tolerances", "to be distinct numbers >= 0", list(self.tolerances))
        named = self.penalty in ("inf", "diagonal", "nan")
        number = isinstance(self.penalty, int | float) and not self.penalty < 0
        problems.expect(named or number, "penalty", "to be inf, diagonal, nan or a number >= 0", self.penalty)
        problems.one_of("school", self.school, ("A", "B"))


@MEASURES.register("boundary", builder=f"{_MEASURES}:build_boundary")
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
