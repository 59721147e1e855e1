"""metric -> whether higher or lower is better, for rankings."""

from typing import Literal

from segmeter.metrics.surfaces.options import SUFFIXES

Direction = Literal["higher", "lower"]

_OVERLAPS = ("mean_iou", "mean_dice", "pixel_accuracy", "nsd", "nsd_mean", "boundary_iou", "cldice")
_OBJECTS = ("pq", "sq", "rq", "object_dice", "ap", "aji", "object_recall", "object_f1")
_DISTANCES = ("hd", "hd95", "hd95_pooled", "assd", "masd", "object_masd")
_REGIONS = ("iou", "iiou", "dice", "precision", "recall")
_ERRORS = ("boundary_errors", "extent_errors", "segment_errors")
_GAINS = ("boundary_gain", "extent_gain", "segment_gain")  # what mending the errors would bring: 0 is the best
_EVENTS = tuple(f"objects_{name}" for name in ("missed", "spurious", "split", "part", "merged", "merging"))
_NUMBERS = ("fp", "fn", "object_fp", "object_fn")  # of objects
_LESIONS: dict[str, Direction] = {
    **dict.fromkeys(("brats_dice", "brats_f1", "brats_tp", "picai_f1", "picai_tp", "cc_dice"), "higher"),
    **dict.fromkeys(("brats_hd95", "brats_fp", "brats_fn", "picai_fp", "picai_fn"), "lower"),
    **dict.fromkeys(("autopet_fp_volume", "autopet_fn_volume"), "lower"),
}
_PARTITION = ("voi", "voi_split", "voi_merge", "are")
_TOPOLOGY = ("betti0_error", "betti1_error", "betti2_error", "euler_error")
_KNOWN: dict[str, Direction] = {
    **dict.fromkeys(_OVERLAPS + _OBJECTS + _REGIONS, "higher"),
    **dict.fromkeys(("tp", "objects_matched"), "higher"),
    **dict.fromkeys(_PARTITION + _TOPOLOGY, "lower"),
    **_LESIONS,
    **dict.fromkeys(_DISTANCES + _ERRORS + _GAINS + _NUMBERS + _EVENTS, "lower"),
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
