"""Declares the settings of the measures that a case can have in addition to its counts. Imports nothing heavy."""

import math
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from segmeter.schema import Config, Registry, Unit

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
HighIou = Annotated[float, Unit("IoU"), Field(ge=0.5, lt=1)]
Length = Annotated[float, Unit("unit of the spacing"), Field(ge=0)]
Area = Annotated[int, Unit("pixels"), Field(ge=1)]


class MeasureConfig(Config, title="metrics.measures"):
    """Settings that every measure has."""

    name: str
    """The registered name of the measure."""
    classes: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    """Names of the classes to measure. null takes the classes that means run over; for a binary task, the object alone.
    """


@MEASURES.register("surface", builder=f"{_MEASURES}.masks:Surface")
class SurfaceConfig(MeasureConfig):
    """Distances between surfaces: hd, hd95, hd95_pooled, assd, masd, and nsd@t for each tolerance t.

    With marching cubes the names end in ``_marching_cubes``, as in ``nsd_marching_cubes@t``. Both surfaces are measured
    if a convention other than ours is requested.
    """

    name: str = "surface"
    tolerances: Annotated[tuple[Length, ...], Field(min_length=1)] = (1.0,)
    """Tolerances of the surface Dice; each gives one nsd@t."""
    penalty: Literal["inf", "diagonal", "nan"] | Length = "inf"
    """Distance if exactly one side contains the class: "inf", "diagonal" (of the image), "nan", or a number."""
    surface: Literal["border_pixels", "marching_cubes", "both"] = "border_pixels"
    """Where a surface lies. With "border_pixels", it lies on the pixels of the border. With "marching_cubes", it lies
    between pixels, weighted by area (see `surface_metrics`). With "both", you get both of them and ``nsd_mean@t``, the
    mean share of the two masks' border pixels, which some tools call surface Dice."""

    @field_validator("penalty", mode="before")
    @classmethod
    def _as_word(cls, penalty: Any) -> Any:
        """Take back the words that the command line has read as numbers."""
        return str(penalty) if isinstance(penalty, float) and (math.isnan(penalty) or penalty == math.inf) else penalty


@MEASURES.register("boundary", builder=f"{_MEASURES}.masks:Boundary")
class BoundaryConfig(MeasureConfig):
    """Boundary IoU: the overlap of the bands just inside the borders."""

    name: str = "boundary"
    width: Annotated[int | None, Unit("pixels")] = Field(None, ge=1)
    """Width of the bands along every axis; null takes `ratio` of the diagonal in pixels. In volumes with few slices
    that is often more than their depth."""
    ratio: Annotated[float, Unit("share of the diagonal")] = Field(0.02, gt=0, le=1)
    """Width of the bands if `width` is null."""


@MEASURES.register("error_types", builder=f"{_MEASURES}.masks:ErrorTypes")
class ErrorTypesConfig(MeasureConfig):
    """Wrong pixels by type (2-D): at the boundary, in the extent of a found segment, or whole segments.

    boundary_errors, extent_errors and segment_errors are shares of the union; with the IoU they add up to 1. The data
    set also has boundary_gain, extent_gain and segment_gain: how much the IoU would rise without these errors.
    """

    name: str = "error_types"
    width: Annotated[int | None, Unit("pixels")] = Field(None, ge=1, le=16384)
    """Errors within this distance of the border count as boundary errors; null takes `ratio` of the diagonal."""
    ratio: Annotated[float, Unit("share of the diagonal")] = Field(0.01, gt=0, le=1)
    """The width if `width` is null."""


class ConnectedConfig(MeasureConfig):
    """Settings of every measure of connected pixels."""

    connectivity: Literal[8, 4] = 8
    """Neighbours of a pixel of an object or class: 8 includes corners (26 in a volume), 4 does not (6 in a volume)."""


class ObjectsConfig(ConnectedConfig):
    """Settings of every measure of objects.

    Ignored pixels of the target (void) follow panopticapi's rule, as in ``match_instances(void=)``. They belong to no
    object of either side, so sizes and unions exclude them. A predicted object without a partner is not counted as
    spurious if more than half of it is void. That share is computed before void pixels are removed; they also connect
    its parts.
    """

    objects: Literal["maps", "components", "by_class"] = "maps"
    """How objects are found. With "maps", they come from the instance maps of a case, such as files of object numbers
    or the result of a watershed. A side without a map is read as with "components". With "components", the connected
    pixels of a class or group are an object, on both sides. With "by_class", this is done for each class of a group,
    and objects of different classes may match."""


class MatchedConfig(ObjectsConfig):
    """Settings of every measure of matched objects."""

    threshold: MatchIou = 0.5
    """Two objects match if their IoU is above this."""


@MEASURES.register("instances", builder=f"{_MEASURES}.objects:Instances")
class InstancesConfig(MatchedConfig):
    """Matching objects: pq, sq, rq (F1 over objects), the mean Dice of matches, and tp, fp, fn of the data set."""

    name: str = "instances"
    distances: bool = False
    """Also measure the mean surface distance of the matches (object_masd), in the unit of the spacing."""


@MEASURES.register("average_precision", builder=f"{_MEASURES}.objects:AveragePrecision")
class AveragePrecisionConfig(ObjectsConfig):
    """tp / (tp + fp + fn) over objects at each IoU threshold (ap@t), and its mean over the thresholds (ap).

    Cellpose and the Data Science Bowl of 2018 call this average precision, StarDist calls it accuracy. COCO's metric of
    that name is different: it needs a confidence per object.
    """

    name: str = "average_precision"
    thresholds: Annotated[tuple[HighIou, ...], Field(min_length=1)] = (
        0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95,
    )  # fmt: skip
    """Two objects match if their IoU is above the threshold."""


@MEASURES.register("aji", builder=f"{_MEASURES}.objects:Aji")
class AjiConfig(ObjectsConfig):
    """Aggregated Jaccard index (aji), Kumar et al. 2017, Algorithm 1: several targets may take one prediction."""

    name: str = "aji"


@MEASURES.register("partition", builder=f"{_MEASURES}.objects:Partition")
class PartitionConfig(ObjectsConfig):
    """Counts how the prediction splits and merges the target's objects.

    voi is the variation of information in bits, with its parts voi_split and voi_merge; are is the adapted Rand error.
    If one side has no object, the first three are infinite and are is 1.
    """

    name: str = "partition"
    missed: Literal["pixels", "segment"] = "pixels"
    """How to treat pixels of target objects that are predicted as background. With "pixels", each is a segment of its
    own, so a missed object does not count as found whole. With "segment", all are one more segment, as in
    scikit-image."""


@MEASURES.register("events", builder=f"{_MEASURES}.objects:ObjectEvents")
class EventsConfig(MatchedConfig):
    """Count what happened to each object of the data set.

    A target object is one of objects_matched (IoU above the threshold), objects_split (two or more predicted objects
    lie in it by more than half), objects_merged (one predicted object covers more than half of it and of another one)
    and objects_missed. A predicted object is matched, part of a split one, one of objects_merging, or objects_spurious.
    """

    name: str = "events"
    table: bool = True
    """Whether to write objects.parquet, which has one row per object of either side."""
    distances: bool = False
    """Whether its rows of matched objects have hd95 and the distance of the centroids, in the unit of the spacing."""


Challenge = Literal["brats", "picai", "autopet", "cc"]


@MEASURES.register("lesions", builder=f"{_MEASURES}.masks:Lesions")
class LesionsConfig(MeasureConfig):
    """Lesions as challenges score them, including their rules for empty cases.

    BraTS: brats_dice and brats_hd95 over lesions, brats_f1, and the numbers brats_tp, brats_fp, brats_fn. PI-CAI:
    picai_f1, picai_tp, picai_fp, picai_fn, where a second candidate on a found lesion is ignored. autoPET: the volumes
    autopet_fp_volume and autopet_fn_volume of components without any overlap. CC-metrics: cc_dice, the mean Dice within
    the region nearest to each lesion.
    """

    name: str = "lesions"
    conventions: Annotated[tuple[Challenge, ...], Field(min_length=1)] = ("brats", "picai", "autopet", "cc")
    """Which challenges to follow."""
    dilation: Annotated[int, Unit("steps")] = Field(3, ge=0, le=100)
    """BraTS: components that touch after so many dilations are one lesion; 3, or 1 for meningiomas and metastases."""
    least: Annotated[float, Unit("volume in the unit of the spacing")] = Field(50.0, ge=0)
    """BraTS: lesions up to this volume are ignored; 50, or 2 for metastases."""
    overlap: MatchIou = 0.1
    """PI-CAI: the lowest IoU with which a candidate finds a lesion."""


@MEASURES.register("topology", builder=f"{_MEASURES}.masks:Topology")
class TopologyConfig(ConnectedConfig):
    """Errors in the numbers of objects (betti0_error), of holes (betti1_error) and in the Euler number (euler_error).

    In a volume betti1_error counts tunnels and betti2_error cavities. All are infinite if one side is empty. The
    background has the other connectivity.
    """

    name: str = "topology"


@MEASURES.register("sizes", builder=f"{_MEASURES}.objects:Sizes")
class SizesConfig(MatchedConfig):
    """Recall and F1 over the data set's objects of each size: object_recall@small, object_f1@small and so on."""

    name: str = "sizes"
    limits: tuple[Area] | tuple[Area, Area] = (32**2, 96**2)
    """Areas (volumes in 3-D) from which an object is medium, and large, without void pixels. A single number separates
    small from large. The default is COCO's."""


@MEASURES.register("iiou", builder=f"{_MEASURES}.objects:build_instance_iou")
class InstanceIouConfig(ObjectsConfig):
    """IoU in which each target object weighs as much as one of average size (iiou), as in Cityscapes.

    Pixels of a class without a number in its instance map belong to no object. They count neither as found nor as
    missed.
    """

    name: str = "iiou"
    average_sizes: Annotated[
        Literal["data", "cityscapes"] | dict[str, Annotated[float, Field(gt=0)]], Unit("pixels")
    ] = "data"
    """Pixels of an average object, by class; other classes are not measured. With "data", this is the mean of the
    measured objects. With "cityscapes", these are the sizes of its ten classes with objects, in full resolution."""


@MEASURES.register("content", builder=f"{_MEASURES}.masks:Content")
class ContentConfig(ConnectedConfig):
    """Facts about a case, for slices.

    object_size is the median size of the target's objects in pixels or voxels. touches_border is 1 if the class reaches
    the edge of the image. brightness is the image's mean, with eval or with score images=FOLDER.
    """

    name: str = "content"


@MEASURES.register("cldice", builder=f"{_MEASURES}.masks:ClDice")
class ClDiceConfig(MeasureConfig):
    """Centreline Dice of tubes (cldice): how much of each side's skeleton lies within the other side's mask."""

    name: str = "cldice"
