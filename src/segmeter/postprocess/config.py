"""The steps that clean a label map, and their settings."""

from typing import Annotated, Any, Literal

from pydantic import Field

from segmeter.schema import Component, Config, Given, Registry, RuleError, Unit, rule

STEPS = Registry("postprocess step")

Connectivity = Literal[4, 8]
ClassNames = Annotated[tuple[str, ...], Field(min_length=1)] | None
Radius = Annotated[int, Unit("pixels"), Field(ge=1, le=50)]

_ROOM = "segmeter.postprocess"


class StepConfig(Config, title="postprocess"):
    """The keys that every step has."""

    name: str
    """The registered name of the step."""
    classes: ClassNames = None
    """Which classes it works on, by name and in this order; null: all but the first, which counts as background; for
    multilabel all."""


class RemovingStepConfig(StepConfig):
    """The keys of every step that removes pixels."""

    fill: str | None = None
    """The class that removed pixels get; null: that of the nearest pixel outside."""


class ComponentStepConfig(RemovingStepConfig):
    """The keys of every step that removes components."""

    connectivity: Connectivity = 8
    """Whether pixels that touch at a corner belong together (8) or not (4)."""


@STEPS.register("remove_small_objects", builder=f"{_ROOM}.masks:build_mask_step")
class RemoveSmallObjectsConfig(ComponentStepConfig, title="postprocess.remove_small_objects"):
    """Remove components of fewer than `min_pixels` pixels."""

    name: str = "remove_small_objects"
    min_pixels: Annotated[int, Unit("pixels")] = Field(64, ge=1)
    """The smallest area that stays."""


@STEPS.register("largest_component", builder=f"{_ROOM}.masks:build_mask_step")
class LargestComponentConfig(ComponentStepConfig, title="postprocess.largest_component"):
    """Keep only the largest component of each class; of equal ones the first in reading order."""

    name: str = "largest_component"


@STEPS.register("clear_border", builder=f"{_ROOM}.masks:build_mask_step")
class ClearBorderConfig(ComponentStepConfig, title="postprocess.clear_border"):
    """Remove components that come within `margin` pixels of the image's edge."""

    name: str = "clear_border"
    margin: Annotated[int, Unit("pixels")] = Field(0, ge=0)
    """Width of the zone along the edge; 0 removes what touches the edge."""


@STEPS.register("fill_holes", builder=f"{_ROOM}.masks:build_mask_step")
class FillHolesConfig(StepConfig, title="postprocess.fill_holes"):
    """Give holes in a class to that class, whatever class they held; a hole does not touch the image's edge."""

    name: str = "fill_holes"
    max_pixels: Annotated[int | None, Unit("pixels")] = Field(64, ge=1)
    """The largest hole that is filled; null fills every hole."""
    connectivity: Connectivity = 4
    """Connectivity of the hole's own pixels; 4 goes with objects of connectivity 8."""


@STEPS.register("opening", builder=f"{_ROOM}.masks:build_mask_step")
class OpeningConfig(RemovingStepConfig, title="postprocess.opening"):
    """Remove parts of a class that a disk does not fit into."""

    name: str = "opening"
    radius: Radius = 1
    """Radius of the disk."""


@STEPS.register("closing", builder=f"{_ROOM}.masks:build_mask_step")
class ClosingConfig(StepConfig, title="postprocess.closing"):
    """Give a class the gaps that a disk does not fit into, whatever class they held."""

    name: str = "closing"
    radius: Radius = 1
    """Radius of the disk."""


@STEPS.register("watershed", builder=f"{_ROOM}.objects:build_instance_step")
class WatershedConfig(StepConfig, title="postprocess.watershed"):
    """Split the objects of each class into instances at the necks of their shape; labels stay as they are."""

    name: str = "watershed"
    min_distance: Annotated[int, Unit("pixels")] = Field(5, ge=1)
    """Least distance between two centres."""


@STEPS.register("smooth", builder=f"{_ROOM}.masks:build_mask_step")
class SmoothConfig(RemovingStepConfig, title="postprocess.smooth"):
    """Give a class each pixel if it covers more than half of the disk around it; take the pixel away if less."""

    name: str = "smooth"
    radius: Radius = 2
    """Radius of the disk; what lies beyond the image does not count."""


@STEPS.register("skeleton", builder=f"{_ROOM}.masks:build_mask_step")
class SkeletonConfig(RemovingStepConfig, title="postprocess.skeleton"):
    """Thin each class to its centreline, one pixel wide."""

    name: str = "skeleton"


@STEPS.register("distance_split", builder=f"{_ROOM}.objects:build_instance_step")
class DistanceSplitConfig(StepConfig, title="postprocess.distance_split"):
    """Split the objects of each class into instances, one per core; labels stay as they are. Cores are the connected
    parts that lie deeper than `depth`, and other pixels go to the core that a watershed gives them.
    """

    name: str = "distance_split"
    depth: Annotated[float, Unit("pixels")] = Field(3, gt=0)
    """Distance to the outside from which a pixel belongs to a core; an object that is nowhere as deep stays whole."""


@STEPS.register("cores", builder=f"{_ROOM}.objects:build_instance_step")
class CoresConfig(StepConfig, title="postprocess.cores"):
    """Split the objects of a binary task into instances, one per core; labels stay as they are. Cores are the connected
    parts where the model is sure, as it learns to be with `data.core_depth`. Other pixels go to the core that a
    watershed on the probability gives them.
    """

    name: str = "cores"
    above: Annotated[float, Unit("probability")] = Field(0.97, gt=0, lt=1)
    """Probability above which a pixel belongs to a core. Training with `data.core_depth` asks for 0.95. A little more
    misses fewer borders, and a missed border merges two objects."""
    min_pixels: Annotated[int, Unit("pixels")] = Field(4, ge=1)
    """The smallest core; an object without one stays whole."""


INSTANCE_STEPS = ("watershed", "distance_split", "cores")
SEPARATING = (RemoveSmallObjectsConfig(min_pixels=16), CoresConfig())  # the steps for a model that was trained on cores


class PostprocessConfig(Config, title="postprocess"):
    """The steps that clean each label map, in the order in which they run."""

    steps: tuple[Annotated[Any, Component(STEPS)], ...] = ()
    """Steps, each a name or {name: STEP, KEY: VALUE}. A step that makes instances (watershed,
    distance_split, cores) comes last, as later changes would contradict it."""

    @rule("steps")
    def _instances_last(cls, steps: tuple[Any, ...], given: Given) -> None:
        for step in steps[:-1]:
            if step.name in INSTANCE_STEPS:
                raise RuleError(f"to have {step.name} only as the last step")
