"""The measures that a case can have beside its counts, and the settings of each. No torch, no heavy import."""

import math
from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from segmeter.schema import Config, Given, Registry, RuleError, Unit, rule

MEASURES = Registry("measure")

_MEASURES = "segmeter.metrics.measures"

CITYSCAPES_SIZES = {
    "bicycle": 4672.3249222261,
    "caravan": 36771.8241758242,
    "motorcycle": 6298.7200839748,
    "rider": 3930.4788056518,
    "bus": 35732.1511111111,
    "train": 67583.7075812274,
    "car": 12794.0202738185,
    "person": 3462.4756337644,
    "truck": 27855.1264367816,
    "trailer": 16926.9763313609,
}  # pixels of an average object, as cityscapesScripts 2.3.0 has them

MatchIou = Annotated[float, Unit("IoU"), Field(ge=0, lt=1)]


class MeasureConfig(Config, title="metrics.measures"):
    """What every measure has."""

    name: str
    """The registered name of the measure."""
    classes: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    """Which classes are measured, by name; null: those that means run over; of a binary task only the object."""

    @rule("classes")
    @classmethod
    def _distinct(cls, classes: tuple[str, ...] | None, given: Given) -> None:
        if classes and len(set(classes)) < len(classes):
            raise RuleError("to be null or distinct names")


@MEASURES.register("surface", builder=f"{_MEASURES}.masks:Surface")
class SurfaceConfig(MeasureConfig):
    """Distances between surfaces: hd, hd95, hd95_pooled, assd, masd, and nsd@t for each tolerance t.

    For marching cubes their names end in ``_marching_cubes`` (``nsd_marching_cubes@t``). Under another convention than
    ours both surfaces are measured.
    """

    name: str = "surface"
    tolerances: tuple[Annotated[float, Unit("unit of the spacing"), Field(ge=0)], ...] = (1.0,)
    """Tolerances of the surface Dice, one nsd@t each."""
    penalty: Literal["inf", "diagonal", "nan"] | Annotated[float, Unit("unit of the spacing"), Field(ge=0)] = "inf"
    """The distances where exactly one side holds the class: "inf", "diagonal" (the image's), "nan", or a number."""
    surface: Literal["border_pixels", "marching_cubes", "both"] = "border_pixels"
    """Where a surface lies: "border_pixels", on the pixels of the border; "marching_cubes", between pixels, weighted by
    area (see `surface_metrics`); "both": both, and ``nsd_mean@t``, the mean of the shares of the two masks' border
    pixels, which some tools call surface Dice."""

    @field_validator("penalty", mode="before")
    @classmethod
    def _as_word(cls, penalty: Any) -> Any:
        """The command line reads these words as numbers."""
        return str(penalty) if isinstance(penalty, float) and (math.isnan(penalty) or penalty == math.inf) else penalty

    @rule("tolerances")
    @classmethod
    def _named_apart(cls, tolerances: tuple[float, ...], given: Given) -> None:
        if len({f"{tolerance:g}" for tolerance in tolerances}) < max(1, len(tolerances)):
            raise RuleError("to be distinct numbers >= 0")


@MEASURES.register("boundary", builder=f"{_MEASURES}.masks:Boundary")
class BoundaryConfig(MeasureConfig):
    """Boundary IoU: the overlap of the bands just inside the borders."""

    name: str = "boundary"
    width: Annotated[int | None, Unit("pixels")] = Field(None, ge=1)
    """Width of the bands along every axis; null takes `ratio` of the diagonal in pixels, which in volumes of few slices
    is often more than their depth."""
    ratio: Annotated[float, Unit("share of the diagonal")] = Field(0.02, gt=0, le=1)
    """Width of the bands where `width` is null."""


@MEASURES.register("error_types", builder=f"{_MEASURES}.masks:ErrorTypes")
class ErrorTypesConfig(MeasureConfig):
    """Wrong pixels by type (2-D): at the boundary, in the extent of a found segment, or whole segments.

    boundary_errors, extent_errors and segment_errors are shares of the union, which with the IoU add up to 1; of the
    data set also boundary_gain, extent_gain and segment_gain, by how much the IoU would rise if they were mended.
    """

    name: str = "error_types"
    width: Annotated[int | None, Unit("pixels")] = Field(None, ge=1, le=16384)
    """Within how many pixels of the border an error is one of the boundary; null takes `ratio` of the diagonal."""
    ratio: Annotated[float, Unit("share of the diagonal")] = Field(0.01, gt=0, le=1)
    """The width where `width` is null."""


class ObjectsConfig(MeasureConfig):
    """What every measure of objects has.

    One rule says what ignored pixels of the target (void) mean for objects, that of panopticapi and of
    ``match_instances(void=)``. They belong to no object of either side: sizes and unions are without them. A predicted
    object without a partner is left out, rather than counted as spurious, where more than half of it is void; for that
    it is taken as it was predicted, void pixels included, which also hold its parts together.
    """

    connectivity: Literal[8, 4] = 8
    """How many neighbours a pixel of an object has: 8, corners included (26 in a volume), or 4, with a side in common
    (6 in a volume)."""
    objects: Literal["maps", "components", "by_class"] = "maps"
    """What is one object. "maps": the instance maps that come with a case (files of object numbers, what a watershed
    split) say so; a side without such a map is read as "components". "components": the connected pixels of a class, or
    of a group's classes together, on both sides. "by_class": in a group, those of each of its classes, and objects of
    different classes may match."""


@MEASURES.register("instances", builder=f"{_MEASURES}.objects:Instances")
class InstancesConfig(ObjectsConfig):
    """Objects that match: pq, sq, rq (which is F1 over objects), their mean Dice, and tp, fp, fn of the data set."""

    name: str = "instances"
    threshold: MatchIou = 0.5
    """A match has an IoU above this."""
    distances: bool = False
    """Also measure the mean surface distance of the matches (object_masd), in the unit of the spacing."""


@MEASURES.register("average_precision", builder=f"{_MEASURES}.objects:AveragePrecision")
class AveragePrecisionConfig(ObjectsConfig):
    """tp / (tp + fp + fn) over objects at each IoU threshold (ap@t), and its mean over the thresholds (ap).

    This is what Cellpose and the Data Science Bowl of 2018 call average precision, and StarDist accuracy; it is not
    COCO's, which needs a confidence per object.
    """

    name: str = "average_precision"
    thresholds: tuple[Annotated[float, Unit("IoU"), Field(ge=0.5, lt=1)], ...] = (
        0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95,
    )  # fmt: skip
    """A match has an IoU above the threshold; ascending."""

    @rule("thresholds")
    @classmethod
    def _ascending(cls, thresholds: tuple[float, ...], given: Given) -> None:
        if not thresholds or any(one >= other for one, other in pairwise(thresholds)):
            raise RuleError("to ascend from 0.5 or above to below 1")


@MEASURES.register("aji", builder=f"{_MEASURES}.objects:Aji")
class AjiConfig(ObjectsConfig):
    """Aggregated Jaccard index (aji), Kumar et al. 2017, Algorithm 1: several targets may take one prediction."""

    name: str = "aji"


@MEASURES.register("partition", builder=f"{_MEASURES}.objects:Partition")
class PartitionConfig(ObjectsConfig):
    """How the prediction cuts and joins the target's objects: variation of information in bits (voi, and its parts
    voi_split and voi_merge; infinite where one side has no object), and the adapted Rand error (are; then 1).
    """

    name: str = "partition"
    missed: Literal["pixels", "segment"] = "pixels"
    """What pixels of target objects are that are predicted as background: "pixels", segments of one pixel each, by
    which an object that is missed is not one that is found whole; or one "segment" more, as in scikit-image."""


@MEASURES.register("events", builder=f"{_MEASURES}.objects:ObjectEvents")
class EventsConfig(ObjectsConfig):
    """What became of each object: numbers of the data set.

    Every target object is one of objects_matched (IoU above the threshold), objects_split (two or more predicted
    objects lie in it by more than half of themselves), objects_merged (the predicted object that holds more than half
    of it holds more than half of another one too) and objects_missed; every predicted one is matched, a part of a split
    one, one of objects_merging, or objects_spurious.
    """

    name: str = "events"
    threshold: MatchIou = 0.5
    """A match has an IoU above this."""
    table: bool = True
    """Whether objects.parquet is written: one row per object of either side."""
    distances: bool = False
    """Whether its rows of matched objects have hd95 and the distance of the centroids, in the unit of the spacing."""


Challenge = Literal["brats", "picai", "autopet", "cc"]


@MEASURES.register("lesions", builder=f"{_MEASURES}.masks:Lesions")
class LesionsConfig(MeasureConfig):
    """Lesions as challenges score them, empty cases included.

    BraTS: brats_dice and brats_hd95 over lesions, brats_f1, and numbers brats_tp, brats_fp, brats_fn. PI-CAI: picai_f1,
    picai_tp, picai_fp, picai_fn, in which a second candidate on a found lesion is forgiven. autoPET: the volumes
    autopet_fp_volume and autopet_fn_volume of parts that meet nothing. CC-metrics: cc_dice, the mean Dice in the
    regions nearest to each lesion.
    """

    name: str = "lesions"
    conventions: Annotated[tuple[Challenge, ...], Field(min_length=1)] = ("brats", "picai", "autopet", "cc")
    """Which of them, each once."""
    dilation: Annotated[int, Unit("steps")] = Field(3, ge=0, le=100)
    """BraTS: parts that meet when they are dilated so often are one lesion; 3, or 1 for meningiomas and metastases."""
    least: Annotated[float, Unit("volume in the unit of the spacing")] = Field(50.0, ge=0)
    """BraTS: lesions up to this volume do not count; 50, or 2 for metastases."""
    overlap: MatchIou = 0.1
    """PI-CAI: the least IoU of a candidate with the lesion that it finds."""

    @rule("conventions")
    @classmethod
    def _each(cls, conventions: tuple[str, ...], given: Given) -> None:
        if len(set(conventions)) < len(conventions):
            raise RuleError("to name each once")


@MEASURES.register("topology", builder=f"{_MEASURES}.masks:Topology")
class TopologyConfig(MeasureConfig):
    """By how many the prediction is off in objects (betti0_error), holes or, in a volume, tunnels (betti1_error),
    cavities (betti2_error, volumes) and in the Euler number (euler_error); infinite where one side holds nothing.
    """

    name: str = "topology"
    connectivity: Literal[8, 4] = 8
    """How many neighbours a pixel of the class has: 8, corners included (26 in a volume), or 4 (6 in a volume). The
    background has the other connectivity."""


@MEASURES.register("sizes", builder=f"{_MEASURES}.objects:Sizes")
class SizesConfig(ObjectsConfig):
    """Recall and F1 over the objects of each size, of the data set: object_recall@small, object_f1@small and so on."""

    name: str = "sizes"
    limits: tuple[Annotated[int, Unit("pixels"), Field(ge=1)], ...] = (32**2, 96**2)
    """Areas (volumes in 3-D), void pixels left out, from which on an object is medium, and large; one number tells
    small from large. The default is COCO's."""
    threshold: MatchIou = 0.5
    """A match has an IoU above this."""

    @rule("limits")
    @classmethod
    def _rising(cls, limits: tuple[int, ...], given: Given) -> None:
        if len(limits) not in (1, 2) or any(one >= other for one, other in pairwise(limits)):
            raise RuleError("to be 1 or 2 rising numbers")


@MEASURES.register("iiou", builder=f"{_MEASURES}.objects:build_instance_iou")
class InstanceIouConfig(ObjectsConfig):
    """IoU in which each object of the target weighs as much as one of average size (iiou), as Cityscapes has it.

    Pixels of a class that its instance map gives no number belong to no object: they are neither found nor missed.
    """

    name: str = "iiou"
    average_sizes: Annotated[
        Literal["data", "cityscapes"] | dict[str, Annotated[float, Field(gt=0)]], Unit("pixels")
    ] = "data"
    """Pixels of an average object, by class; the others are then not measured. "data": the mean of the objects that are
    measured; "cityscapes": those of its ten classes with objects, in full resolution."""


@MEASURES.register("content", builder=f"{_MEASURES}.masks:Content")
class ContentConfig(MeasureConfig):
    """What a case shows, for slices: object_size, the median size of the target's objects in pixels or voxels,
    touches_border, 1 where the class reaches the edge of the image, and with eval, or score with images=FOLDER, the
    image's mean brightness.
    """

    name: str = "content"
    connectivity: Literal[8, 4] = 8
    """How many neighbours a pixel of an object has: 8, corners included (26 in a volume), or 4 (6 in a volume)."""


@MEASURES.register("cldice", builder=f"{_MEASURES}.masks:ClDice")
class ClDiceConfig(MeasureConfig):
    """Centreline Dice of tubes: how much of each side's skeleton lies in the other side's mask (cldice)."""

    name: str = "cldice"
