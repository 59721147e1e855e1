"""Reads the conventions of well-known tools for the headline metrics: the choices that `conventions.toml` lists.

A convention changes the headline metrics only. The row of each case is the same under all of them, so a run can be
summarised under another one later.
"""

import hashlib
import json
import math
import tomllib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from segmeter.metrics.distances import SurfaceKind

Figure = Literal["iou", "dice", "hd95", "assd", "nsd"]
Aggregation = Literal["dataset", "pooled", "cases", "classes", "pooled_cases", "pairs"]

ALL = "all"  # Set as the convention, it means ours, and the headline metrics under every other one.
LEFT_OUT = math.nan


@dataclass(frozen=True, kw_only=True)
class Convention:
    """The choices behind a tool's metrics. NaN as the value for empty masks leaves the case out of the mean.

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
        scored, then averaged over cases. "pairs": one mean over all pairs of case and class. Distances are per case.
        They are averaged as in "classes" with that aggregation, else as in "cases".
    weighted
        Whether the mean over classes is weighted by their shares of the target's pixels.
    background
        Whether class 0 counts for IoU and Dice; None leaves it to ``metrics.background``. For multilabel it always
        counts.
    surface_background
        The same for distances; None takes every class that was measured.
    groups
        Whether groups of classes, where there are any, replace the classes (regions).
    iou_both_empty, dice_both_empty
        The score of a class that neither mask contains.
    overlap_target_empty
        Both scores of a class that only the prediction contains. They are always 0 for a class that only the target
        contains.
    surface
        What a surface is: see `segmeter.metrics.surfaces`.
    hd95
        "max" of the two directed percentiles, or the percentile of both directions "pooled".
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
        The distance where neither mask contains the class. Surface Dice is 0 where one mask contains it, and left out
        where none does.
    ignore
        Whether the tool leaves out pixels that the target marks as ignored ("target"), or can't ("none"). Here they are
        always left out.
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
        """The first 16 digits of the choices' sha256."""
        text = json.dumps({name: repr(value) for name, value in asdict(self).items()}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


CONVENTIONS: dict[str, Convention] = {}
for _name, _table in tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")).items():
    _choices: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in _table.items()
    }
    _choices = {key: None if value == "ours" else value for key, value in _choices.items()}  # left to our settings
    CONVENTIONS[_name] = Convention(name=_name, **_choices)
OURS = CONVENTIONS["segmeter"]

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
    phrases = [_PHRASES["aggregation"].get(convention.aggregation)]
    both_empty: list[str] = []
    if convention.background is not background:
        phrases.append("with background" if convention.background else "without background")
    if convention.weighted:
        phrases.append("classes weighted by their pixels")
    if groups and convention.groups:
        phrases.append("groups in place of classes")
    if surfaces and not _SURFACES.isdisjoint(convention.figures):
        phrases += [_PHRASES[choice].get(getattr(convention, choice)) for choice in _SURFACE_CHOICES]
    if math.isnan(convention.overlap_target_empty):
        phrases.append("without classes that only the prediction contains")
    for figure, value in (("IoU", convention.iou_both_empty), ("Dice", convention.dice_both_empty)):
        if figure.lower() in convention.figures and not math.isnan(value):
            both_empty.append(f"{figure} {value:g}")
    if surfaces and "hd95" in convention.figures:
        if not math.isnan(convention.distance_both_empty):
            both_empty.append(f"distance {convention.distance_both_empty:g}")
        cost = convention.hd95_one_empty or 0.0
        if math.isnan(cost):
            phrases.append("HD95 without misses")
        elif math.isfinite(cost):
            phrases.append(f"HD95 of a miss {cost:.2f}")
    if both_empty:
        phrases.append(f"both sides empty: {', '.join(both_empty)}")
    return [phrase for phrase in phrases if phrase]
