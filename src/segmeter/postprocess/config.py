"""The steps that clean a label map, and their settings."""

from dataclasses import dataclass, field
from typing import Any, Literal

from segmeter.checks import Problems, collecting
from segmeter.registry import Registry

STEPS = Registry("postprocess step")

Connectivity = Literal[4, 8]
ClassNames = tuple[str, ...] | None

_STEPS = "segmeter.postprocess.steps"


@dataclass(frozen=True, kw_only=True)
class StepConfig:
    """What every step has.

    Parameters
    ----------
    name
        The registered name of the step.
    classes
        Which classes it works on, by name and in this order. None: all but the first, which counts as background;
        for multilabel all.
    """

    name: str
    classes: ClassNames = None

    def __post_init__(self) -> None:
        with collecting(f"postprocess.{self.name}") as problems:
            problems.expect(self.classes is None or len(self.classes) > 0, "classes", "to be null or names", [])
            self._check(problems)

    def _check(self, problems: Problems) -> None:
        """Note what is wrong with the step's own settings."""


@STEPS.register("remove_small_objects", builder=f"{_STEPS}:build_remove_small_objects")
@dataclass(frozen=True, kw_only=True)
class RemoveSmallObjectsConfig(StepConfig):
    """Remove components of fewer than `min_pixels` pixels.

    Parameters
    ----------
    min_pixels
        The smallest area that stays, pixels, >= 1.
    connectivity
        4 or 8: whether pixels that touch at a corner belong together.
    fill
        The class that removed pixels get; None: that of the nearest pixel outside.
    """

    name: str = "remove_small_objects"
    min_pixels: int = 64
    connectivity: Connectivity = 8
    fill: str | None = None

    def _check(self, problems: Problems) -> None:
        problems.in_range("min_pixels", self.min_pixels, 1)
        problems.expect(self.connectivity in (4, 8), "connectivity", "to be 4 or 8", self.connectivity)


@STEPS.register("largest_component", builder=f"{_STEPS}:build_largest_component")
@dataclass(frozen=True, kw_only=True)
class LargestComponentConfig(StepConfig):
    """Keep only the largest component of each class; of equal ones the first in reading order.

    Parameters
    ----------
    connectivity
        4 or 8: whether pixels that touch at a corner belong together.
    fill
        The class that removed pixels get; None: that of the nearest pixel outside.
    """

    name: str = "largest_component"
    connectivity: Connectivity = 8
    fill: str | None = None

    def _check(self, problems: Problems) -> None:
        problems.expect(self.connectivity in (4, 8), "connectivity", "to be 4 or 8", self.connectivity)


@STEPS.register("clear_border", builder=f"{_STEPS}:build_clear_border")
@dataclass(frozen=True, kw_only=True)
class ClearBorderConfig(StepConfig):
    """Remove components that come within `margin` pixels of the image's edge.

    Parameters
    ----------
    margin
        Width of the edge zone, pixels, >= 0; 0 is touching the edge.
    connectivity
        4 or 8: whether pixels that touch at a corner belong together.
    fill
        The class that removed pixels get; None: that of the nearest pixel outside.
    """

    name: str = "clear_border"
    margin: int = 0
    connectivity: Connectivity = 8
    fill: str | None = None

    def _check(self, problems: Problems) -> None:
        problems.in_range("margin", self.margin, 0)
        problems.expect(self.connectivity in (4, 8), "connectivity", "to be 4 or 8", self.connectivity)


@STEPS.register("fill_holes", builder=f"{_STEPS}:build_fill_holes")
@dataclass(frozen=True, kw_only=True)
class FillHolesConfig(StepConfig):
    """Give holes in a class to that class, whatever class they held; a hole does not touch the image's edge.

    Parameters
    ----------
    max_pixels
        The largest hole that is filled, pixels, >= 1; None fills every hole.
    connectivity
        4 or 8, of the hole's own pixels; 4 goes with objects of connectivity 8.
    """

    name: str = "fill_holes"
    max_pixels: int | None = 64
    connectivity: Connectivity = 4

    def _check(self, problems: Problems) -> None:
        problems.in_range("max_pixels", self.max_pixels, 1)
        problems.expect(self.connectivity in (4, 8), "connectivity", "to be 4 or 8", self.connectivity)


@STEPS.register("opening", builder=f"{_STEPS}:build_opening")
@dataclass(frozen=True, kw_only=True)
class OpeningConfig(StepConfig):
    """Remove parts of a class that a disk does not fit into.

    Parameters
    ----------
    radius
        Of the disk, pixels, 1 to 50.
    fill
        The class that removed pixels get; None: that of the nearest pixel outside.
    """

    name: str = "opening"
    radius: int = 1
    fill: str | None = None

    def _check(self, problems: Problems) -> None:
        problems.in_range("radius", self.radius, 1, 50)


@STEPS.register("closing", builder=f"{_STEPS}:build_closing")
@dataclass(frozen=True, kw_only=True)
class ClosingConfig(StepConfig):
    """Give a class the gaps that a disk does not fit into, whatever class they held.

    Parameters
    ----------
    radius
        Of the disk, pixels, 1 to 50.
    """

    name: str = "closing"
    radius: int = 1

    def _check(self, problems: Problems) -> None:
        problems.in_range("radius", self.radius, 1, 50)


@STEPS.register("watershed", builder=f"{_STEPS}:build_watershed")
@dataclass(frozen=True, kw_only=True)
class WatershedConfig(StepConfig):
    """Split the objects of each class into instances at the necks of their shape; labels stay as they are.

    Parameters
    ----------
    min_distance
        Between two centres, pixels, >= 1.
    """

    name: str = "watershed"
    min_distance: int = 5

    def _check(self, problems: Problems) -> None:
        problems.in_range("min_distance", self.min_distance, 1)


@dataclass(frozen=True, kw_only=True)
class PostprocessConfig:
    """The steps, in the order in which they run.

    Parameters
    ----------
    steps
        Step configurations, each chosen by its `name`. A watershed comes last, as later changes would contradict it.

    Raises
    ------
    ConfigError
        A step follows a watershed.
    """

    steps: tuple[Any, ...] = field(default=(), metadata={"registry": STEPS})

    def __post_init__(self) -> None:
        with collecting("postprocess") as problems:
            names = [step.name for step in self.steps]
            problems.expect("watershed" not in names[:-1], "steps", "to have watershed only as the last step", names)
