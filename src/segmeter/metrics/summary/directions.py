"""metric -> whether higher or lower is better, for rankings."""

from typing import Literal

from segmeter.metrics.surfaces.options import SUFFIXES

Direction = Literal["higher", "lower"]

_OVERLAPS = ("mean_iou", "mean_dice", "pixel_accuracy", "nsd", "nsd_mean", "boundary_iou", "cldice")
_OBJECTS = ("pq", "sq", "rq", "object_dice", "ap", "aji", "object_recall", "object_f1")
_DISTANCES = ("hd", "hd95", "hd95_pooled", "assd", "masd", "object_masd")
_ERRORS = ("boundary_errors", "extent_errors", "segment_errors")
_KNOWN: dict[str, Direction] = {
    **dict.fromkeys(_OVERLAPS + _OBJECTS, "higher"),
    **dict.fromkeys(_DISTANCES + _ERRORS, "lower"),
}


def find_direction(metric: str) -> Direction | None:
    """Whether "higher" or "lower" values of a metric are better; None for one that is not ours.

    Examples
    --------
    >>> [find_direction(metric) for metric in ("pq/cell", "hd95_marching_cubes/mean", "nsd@2/cell", "area/cell")]
    ['higher', 'lower', 'higher', None]
    """
    name = metric.partition("/")[0].partition("@")[0]
    return _KNOWN.get(name) or _KNOWN.get(name.removesuffix(SUFFIXES["marching_cubes"]))
