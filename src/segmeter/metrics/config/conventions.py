"""Conventions of well-known tools for the headline metrics, one table of choices each; no heavy import.

A convention changes the headline metrics only. The record of each case is the same under all of them, so that a run can
be summarised under another one later.
"""

import hashlib
import json
import math
from dataclasses import asdict, dataclass
from typing import Literal

from segmeter.metrics.surfaces.distances import SurfaceKind

Figure = Literal["iou", "dice", "hd95", "assd", "nsd"]
Aggregation = Literal["dataset", "pooled", "cases", "classes", "pooled_cases", "pairs"]

ALL = "all"  # as a configuration's convention: ours, and the headline metrics under every other one
LEFT_OUT = math.nan
BRATS_DIAGONAL = 373.12866  # of 240 x 240 x 155 voxels of 1 mm


@dataclass(frozen=True, kw_only=True)
class Convention:
    """The choices behind a tool's metrics. A value of NaN for empty masks leaves the case out of the mean.

    Parameters
    ----------
    name, version
        The version rises when a choice changes.
    tool
        The tool's release and the calls, with their settings, that this convention reproduces.
    figures
        The metrics that the tool computes.
    aggregation
        "dataset": counts are summed over the cases, then scored, then averaged over classes. "pooled": they are summed
        over the classes too. "cases": the mean over classes of each case, then over cases. "classes": the mean over
        cases of each class, then over classes. "pooled_cases": counts are summed over the classes of each case, then
        scored, then averaged over cases. "pairs": one mean over all pairs of case and class. Distances are per case,
        and averaged as "classes" there, else as "cases".
    weighted
        Whether the mean over classes is weighted by their shares of the target's pixels.
    background
        Whether class 0 counts for IoU and Dice; None leaves it to ``metrics.background``. It counts always for
        multilabel.
    surface_background
        The same for distances; None takes every class that was measured.
    groups
        Whether groups of classes, where there are any, replace the classes (regions).
    iou_both_empty, dice_both_empty
        The score of a class that neither mask contains.
    overlap_target_empty
        Both scores of a class that only the prediction contains. They are always 0 for one that only the target
        contains.
    surface
        What a surface is: see `segmeter.metrics.surfaces.surface`.
    hd95
        "max" of the two directed percentiles, or that of both directions "pooled".
    percentile
        "linear" interpolation between points, or "weighted": the smallest distance within which 95 % of the surface
        lies.
    assd
        The mean of both directions' distances "pooled", or the "mean" of the two directed means.
    nsd
        The share of both surfaces "pooled", or the "mean" of the two shares.
    hd95_one_empty, assd_one_empty
        The distance where exactly one mask contains the class; None is the measure's penalty.
    distance_both_empty
        The distance where neither mask does. Surface Dice is 0 where one mask contains the class, left out where none
        does.
    ignore
        Whether the tool leaves out pixels that the target marks as ignored ("target"), or cannot ("none"); here they
        are left out either way.
    refused
        Behaviour of the tool that is not reproduced.
    """

    name: str
    version: int = 1
    tool: str
    figures: tuple[Figure, ...] = ("iou", "dice", "hd95", "assd", "nsd")
    aggregation: Aggregation = "cases"
    weighted: bool = False
    background: bool | None = False
    surface_background: bool | None = False
    groups: bool = False
    iou_both_empty: float = LEFT_OUT
    dice_both_empty: float = LEFT_OUT
    overlap_target_empty: float = 0.0
    surface: SurfaceKind = "border_pixels"
    hd95: Literal["max", "pooled"] = "max"
    percentile: Literal["linear", "weighted"] = "linear"
    assd: Literal["pooled", "mean"] = "pooled"
    nsd: Literal["pooled", "mean"] = "pooled"
    hd95_one_empty: float | None = math.inf
    assd_one_empty: float | None = math.inf
    distance_both_empty: float = LEFT_OUT
    ignore: Literal["target", "none"] = "none"
    refused: tuple[str, ...] = ()

    @property
    def hash(self) -> str:
        """Sha256 of the choices, 16 digits."""
        text = json.dumps({name: repr(value) for name, value in asdict(self).items()}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


_FLOAT32 = "counts in float32, in which 16777216 + 1 + 1 is 16777216"
_DROPPED = "predictions outside the classes, dropped without a word"
_TWICE = ("class weights divided by the number of classes twice, by which a perfect prediction scores 1 / K",)
_SMP: tuple[tuple[str, Aggregation, bool, tuple[str, ...]], ...] = (
    ("macro", "dataset", False, ()),
    ("weighted", "dataset", True, ()),
    ("micro-imagewise", "pooled_cases", False, ()),
    ("macro-imagewise", "classes", False, ()),
    ("weighted-imagewise", "classes", True, _TWICE),
)

_TABLE = (
    Convention(
        name="segmeter",
        tool="segmeter",
        aggregation="dataset",
        background=None,
        surface_background=None,
        hd95_one_empty=None,
        assd_one_empty=None,
        ignore="target",
    ),
    Convention(
        name="mmseg",
        tool="mmsegmentation 1.2.2: IoUMetric(iou_metrics=['mIoU', 'mDice']), as a fraction and not rounded",
        figures=("iou", "dice"),
        aggregation="dataset",
        background=True,
        ignore="target",
        refused=(_FLOAT32, _DROPPED),
    ),
    Convention(
        name="cityscapes",
        tool="cityscapesScripts 2.3.0: evalPixelLevelSemanticLabeling, averageScoreClasses",
        figures=("iou",),
        aggregation="dataset",
        background=True,
        ignore="target",
    ),
    Convention(
        name="nnunet",
        tool="nnU-Net 2.8.1: evaluate_predictions, foreground_mean",
        figures=("iou", "dice"),
        aggregation="classes",
        groups=True,
        ignore="target",
        refused=(
            "a mean over classes that one class absent from all cases makes NaN",
            "cases without a prediction, skipped",
        ),
    ),
    Convention(
        name="monai",
        tool="MONAI 1.6.1: MeanIoU(), DiceMetric(), HausdorffDistanceMetric(percentile=95), "
        "SurfaceDistanceMetric(symmetric=True), SurfaceDiceMetric(class_thresholds)",
        background=True,
        overlap_target_empty=LEFT_OUT,
        hd95_one_empty=LEFT_OUT,
        ignore="target",
        refused=("0.0 for the mean distance when every object was missed",),
    ),
    Convention(
        name="medpy",
        tool="medpy 0.5.2: metric.binary.jc, dc, hd95, assd",
        figures=("iou", "dice", "hd95", "assd"),
        iou_both_empty=1.0,
        hd95="pooled",
        refused=("an error in place of a distance where a side is empty",),
    ),
    Convention(
        name="deepmind",
        tool="surface-distance 0.1: compute_dice_coefficient, compute_robust_hausdorff(95), "
        "compute_average_surface_distance (the mean of its two values), compute_surface_dice_at_tolerance",
        figures=("dice", "hd95", "assd", "nsd"),
        surface="marching_cubes",
        percentile="weighted",
        assd="mean",
        refused=("an infinite Hausdorff distance between two empty masks",),
    ),
    Convention(
        name="metrics-reloaded",
        tool="MetricsReloaded, commit ca3d352: intersection_over_union, dsc, measured_hausdorff_distance_perc, "
        "measured_average_distance, normalised_surface_distance",
        dice_both_empty=1.0,
        distance_both_empty=0.0,
        refused=("an error in place of a distance where one side is empty",),
    ),
    Convention(
        name="panoptica",
        tool="panoptica 2.1.7: IOU, DSC, HD95, ASSD, NSD of whole masks, not of matched instances",
        hd95="pooled",
        assd="mean",
        nsd="mean",
        refused=("a distance to a corner of the array where one side is empty", "0 for the Dice of two empty masks"),
    ),
    Convention(
        name="smp",
        tool="segmentation_models_pytorch 0.6.0: iou_score, f1_score with reduction='micro'",
        figures=("iou", "dice"),
        aggregation="pooled",
        background=True,
        ignore="target",
    ),
    *(
        Convention(
            name=f"smp-{reduction}",
            tool=f"segmentation_models_pytorch 0.6.0: iou_score, f1_score with reduction='{reduction}', "
            f"zero_division=1{', class_weights: shares of the target' * weighted}",
            figures=("iou", "dice"),
            aggregation=aggregation,
            weighted=weighted,
            background=True,
            iou_both_empty=1.0,
            dice_both_empty=1.0,
            ignore="target",
            refused=refused,
        )
        for reduction, aggregation, weighted, refused in _SMP
    ),
    Convention(
        name="seg_metrics",
        tool="seg_metrics 1.2.8: write_metrics: jaccard, dice",
        figures=("iou", "dice"),
        iou_both_empty=1.0,
        dice_both_empty=1.0,
        refused=(
            "distances from borders of 8 neighbours, which have none at the image's edge and are 0.0 where one side is "
            "empty",
        ),
    ),
    Convention(
        name="brats",
        tool="BraTS 2020, as nnU-Net's scripts compute it: Dice and medpy's hd95 of each region",
        figures=("dice", "hd95"),
        aggregation="classes",
        groups=True,
        dice_both_empty=1.0,
        hd95="pooled",
        hd95_one_empty=BRATS_DIAGONAL,
        distance_both_empty=0.0,
    ),
    Convention(
        name="ultralytics",
        tool="Ultralytics 8.4: SemanticMetrics.miou of several classes",
        figures=("iou",),
        aggregation="dataset",
        background=True,
        overlap_target_empty=LEFT_OUT,
        ignore="target",
        refused=(_FLOAT32, _DROPPED, "0 where the reference contains no class at all"),
    ),
    Convention(
        name="ultralytics-one-class",
        tool="Ultralytics 8.4: SemanticMetrics.miou of one class and background",
        figures=("iou",),
        aggregation="dataset",
        iou_both_empty=0.0,
        ignore="target",
        refused=(_FLOAT32, _DROPPED),
    ),
    Convention(
        name="detectron2",
        tool="detectron2, commit 02b5c4e: SemSegEvaluator, mIoU as a fraction",
        figures=("iou",),
        aggregation="dataset",
        background=True,
        overlap_target_empty=LEFT_OUT,
        ignore="target",
    ),
    Convention(
        name="torchmetrics",
        tool="torchmetrics 1.9.0: segmentation.MeanIoU of any input_format",
        figures=("iou",),
        aggregation="pairs",
        background=True,
    ),
    Convention(
        name="torchmetrics-jaccard",
        tool="torchmetrics 1.9.0: JaccardIndex(task='multiclass', average='macro')",
        figures=("iou",),
        aggregation="dataset",
        background=True,
        ignore="target",
        refused=(_FLOAT32,),
    ),
    *(
        Convention(
            name=f"torchmetrics-jaccard-{task}",
            tool=f"torchmetrics 1.9.0: JaccardIndex(task='{task}')",
            figures=("iou",),
            aggregation="dataset",
            iou_both_empty=0.0,
            ignore="target",
            refused=(_FLOAT32,),
        )
        for task in ("binary", "multilabel")
    ),
    Convention(
        name="hf-evaluate",
        tool="Hugging Face evaluate 0.4.6: mean_iou",
        figures=("iou",),
        aggregation="dataset",
        background=True,
        ignore="target",
        refused=("recall under the name of IoU where ignore_index is a class (evaluate#421)", _DROPPED),
    ),
    Convention(
        name="fiftyone",
        tool="FiftyOne 1.22: evaluate_segmentations(), dice_score()",
        figures=("dice",),
        aggregation="pooled",
        background=True,
        ignore="target",
        refused=(_DROPPED, "a Dice of each sample that counts the samples before it too"),
    ),
    Convention(
        name="fiftyone-report",
        tool="FiftyOne 1.22: evaluate_segmentations(), metrics()['fscore']",
        figures=("dice",),
        aggregation="pooled",
        dice_both_empty=0.0,
        ignore="target",
        refused=(_DROPPED,),
    ),
    Convention(
        name="lightly-studio",
        tool="lightly-studio, commit 8f4a390: miou of each sample, averaged over samples",
        figures=("iou",),
        refused=("an error where a sample contains no class on either side",),
    ),
)

CONVENTIONS = {convention.name: convention for convention in _TABLE}
OURS = CONVENTIONS["segmeter"]


def differences(
    convention: Convention, *, surfaces: bool = True, groups: bool = True, background: bool = True
) -> list[str]:
    """List the choices in which a convention differs from ours.

    Parameters
    ----------
    convention
        One of `CONVENTIONS`.
    surfaces, groups
        Whether surfaces were measured, and whether there are groups; choices that do not apply are left out.
    background
        Whether our means include class 0.

    Examples
    --------
    >>> differences(CONVENTIONS["smp"])
    ['all pixels pooled']
    """
    if convention is OURS:
        return []
    said = [_PHRASES["aggregation"].get(convention.aggregation)]
    if convention.background is not background:
        said.append("with background" if convention.background else "without background")
    if convention.weighted:
        said.append("classes weighted by their pixels")
    if groups and convention.groups:
        said.append("groups in place of classes")
    if surfaces and not _SURFACES.isdisjoint(convention.figures):
        said += [_PHRASES[choice].get(getattr(convention, choice)) for choice in _SURFACE_CHOICES]
    return [phrase for phrase in said if phrase] + _empty_policies(convention, surfaces)


_SURFACES = {"hd95", "assd", "nsd"}
_SURFACE_CHOICES = ("surface", "hd95", "percentile", "assd", "nsd")
_PHRASES: dict[str, dict[str, str]] = {
    "aggregation": {
        "pooled": "all pixels pooled",
        "cases": "mean per case, then over cases",
        "classes": "mean per class, then over classes",
        "pooled_cases": "pixels of each case pooled, then mean over cases",
        "pairs": "mean over all pairs of case and class",
    },
    "surface": {"marching_cubes": "surfaces of marching squares or cubes"},
    "hd95": {"pooled": "HD95 of both directions pooled"},
    "percentile": {"weighted": "percentile of the surface's length or area"},
    "assd": {"mean": "ASSD: mean of two means"},
    "nsd": {"mean": "NSD: mean of two shares"},
}


def _empty_policies(convention: Convention, surfaces: bool) -> list[str]:
    """Phrases for the values of empty masks."""
    said, both = [], []
    for figure, value in (("IoU", convention.iou_both_empty), ("Dice", convention.dice_both_empty)):
        if figure.lower() in convention.figures and not math.isnan(value):
            both.append(f"{figure} {value:g}")
    if math.isnan(convention.overlap_target_empty):
        said.append("without classes that only the prediction contains")
    if surfaces and "hd95" in convention.figures:
        if not math.isnan(convention.distance_both_empty):
            both.append(f"distance {convention.distance_both_empty:g}")
        cost = convention.hd95_one_empty or 0.0
        if math.isnan(cost):
            said.append("HD95 without misses")
        elif math.isfinite(cost):
            said.append(f"HD95 of a miss {cost:.2f}")
    return [*said, f"both sides empty: {', '.join(both)}"] if both else said
