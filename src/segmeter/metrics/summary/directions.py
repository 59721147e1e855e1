"""Which way each metric is better, and how means compare of which some are infinite.

Rankings, gates, comparisons, sweeps and pages ask here, so that they all agree.
"""

from typing import Literal

import numpy as np

from segmeter.metrics.arrays import FloatArray
from segmeter.metrics.pixels.overlap import divide
from segmeter.metrics.statistics.describe import minus
from segmeter.metrics.surfaces.options import SUFFIXES

Direction = Literal["higher", "lower"]
Change = Literal["better", "worse", "equal"]

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


def name_change(metric: str, difference: float) -> Change | None:
    """Name the change of a metric by its difference, new minus base; None where there is no difference or direction.

    Examples
    --------
    >>> name_change("pq/cell", 0.1), name_change("hd95/cell", 0.1), name_change("hd95/cell", float("-inf"))
    ('better', 'worse', 'better')
    >>> name_change("pq/cell", 0.0), name_change("area/cell", 0.1), name_change("pq/cell", float("nan"))
    ('equal', None, None)
    """
    direction = find_direction(metric)
    if direction is None or difference != difference:
        return None
    if difference == 0:
        return "equal"
    return "better" if (difference > 0) == (direction == "higher") else "worse"


def split_means(sums: FloatArray) -> FloatArray:
    """Sums (R, 3 V) of `mean_columns` to shares of values that are infinite, and means of the others: (2, R, V).

    A mean over cases is infinite as soon as one case is, as where an object was missed. These two order such means.
    """
    finite, defined, infinite = np.split(sums, 3, axis=1)
    return np.stack([divide(infinite, defined), divide(finite, defined - infinite)])


def join_means(parts: FloatArray) -> FloatArray:
    """The means themselves, of what `split_means` gives: infinite as soon as one value is."""
    return np.where(parts[0] > 0, np.inf, parts[1])


def minus_means(new: FloatArray, base: FloatArray) -> FloatArray:
    """Subtract what `split_means` gives, new minus base.

    The one with the larger share of infinite values is larger, by inf. With equal shares the other values decide.
    """
    apart = new[0] - base[0]
    finite = np.where((new[0] == 1) & (base[0] == 1), 0.0, minus(new[1], base[1]))
    return np.where(np.abs(apart) > 0, np.copysign(np.inf, apart), finite)
