"""Facts about each score by its name: which way is better, its unit and range, and whether it may be infinite.

Rankings, gates, comparisons, sweeps and pages ask here, so that they all agree.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

Direction = Literal["higher", "lower"]
Change = Literal["better", "worse", "equal"]

MEAN = "mean"  # in place of a class: the mean over classes
NUMBERS = ("tp", "fp", "fn")  # metrics of a data set that are numbers of objects
SUFFIXES = {"border_pixels": "", "marching_cubes": "_marching_cubes"}  # by kind of surface, of a metric's name


@dataclass(frozen=True, kw_only=True)
class Facts:
    """The facts about a metric.

    Parameters
    ----------
    better
        Whether higher or lower values are better.
    highest
        The largest value that is not infinite; the smallest is 0.
    infinite
        Whether a value may be infinite, as where one mask contains the class and the other one does not.
    unit
        "length" in the unit of the spacing, "volume" in its square or cube, "objects" for a number of them, "bits", or
        "" where there is none.
    spaced
        Whether it depends on the spacing of the pixels.
    """

    better: Direction
    highest: float = 1.0
    infinite: bool = False
    unit: Literal["", "length", "volume", "objects", "bits"] = ""
    spaced: bool = False


def _facts() -> dict[str, Facts]:
    share, error = Facts(better="higher"), Facts(better="lower")
    near = Facts(better="higher", spaced=True)
    length = Facts(better="lower", highest=np.inf, infinite=True, unit="length", spaced=True)
    volume = Facts(better="lower", highest=np.inf, unit="volume", spaced=True)
    found = Facts(better="higher", highest=np.inf, unit="objects")
    failed = Facts(better="lower", highest=np.inf, unit="objects")
    betti = Facts(better="lower", highest=np.inf, infinite=True)
    groups = {
        "iou iiou dice precision recall mean_iou mean_dice pixel_accuracy boundary_iou cldice": share,
        "pq sq rq object_dice ap aji object_recall object_f1 picai_f1 cc_dice": share,
        "nsd nsd_mean brats_dice brats_f1": near,
        "hd hd95 hd95_pooled assd masd object_masd": length,
        "brats_hd95": Facts(better="lower", highest=np.inf, spaced=True),  # its penalty is in mm, whatever the unit
        "boundary_errors extent_errors segment_errors are": error,
        "boundary_gain extent_gain segment_gain": error,  # what mending the errors would bring: 0 is the best
        "tp objects_matched picai_tp": found,
        "fp fn object_fp object_fn picai_fp picai_fn": failed,
        "objects_missed objects_spurious objects_split objects_part objects_merged objects_merging": failed,
        "brats_tp": Facts(better="higher", highest=np.inf, unit="objects", spaced=True),
        "brats_fp brats_fn": Facts(better="lower", highest=np.inf, unit="objects", spaced=True),
        "autopet_fp_volume autopet_fn_volume": volume,
        "voi voi_split voi_merge": Facts(better="lower", highest=np.inf, infinite=True, unit="bits"),
        "betti0_error betti1_error betti2_error euler_error": betti,
    }
    return {name: facts for names, facts in groups.items() for name in names.split()}


_KNOWN = _facts()


def find_facts(score: str) -> Facts | None:
    """Look a score up by its name, such as "hd95/car" or "nsd@2/mean"; None for one that is not ours."""
    name = score.partition("/")[0].partition("@")[0]
    return _KNOWN.get(name) or _KNOWN.get(name.removesuffix(SUFFIXES["marching_cubes"]))


def find_direction(score: str) -> Direction | None:
    """Tell whether "higher" or "lower" values of a score are better; None for one that is not ours.

    Examples
    --------
    >>> [find_direction(score) for score in ("pq/cell", "hd95_marching_cubes/mean", "nsd@2/cell", "area/cell")]
    ['higher', 'lower', 'higher', None]
    """
    facts = find_facts(score)
    return None if facts is None else facts.better


def may_be_infinite(score: str) -> bool:
    """Whether a score of a case may be infinite; nothing is known of one that is not ours."""
    facts = find_facts(score)
    return facts is None or facts.infinite


def name_change(score: str, difference: float) -> Change | None:
    """Name the change of a score by its difference, new minus base; None where there is no difference or direction.

    Examples
    --------
    >>> name_change("pq/cell", 0.1), name_change("hd95/cell", 0.1), name_change("hd95/cell", float("-inf"))
    ('better', 'worse', 'better')
    >>> name_change("pq/cell", 0.0), name_change("area/cell", 0.1), name_change("pq/cell", float("nan"))
    ('equal', None, None)
    """
    direction = find_direction(score)
    if direction is None or difference != difference:
        return None
    if difference == 0:
        return "equal"
    return "better" if (difference > 0) == (direction == "higher") else "worse"


def is_overall(score: str) -> bool:
    """Whether a score is of all classes together, and not of one of them.

    Examples
    --------
    >>> [is_overall(score) for score in ("mean_iou", "pq/mean", "pq/car")]
    [True, True, False]
    """
    return "/" not in score or score.partition("/")[2] == MEAN


def is_number(metric: str) -> bool:
    """Whether a metric of the data set is a number of objects, which has no mean over classes.

    Examples
    --------
    >>> is_number("tp"), is_number("object_fp@small"), is_number("objects_split"), is_number("object_recall@small")
    (True, True, True, False)
    """
    name = metric.partition("@")[0]
    return name.rpartition("_")[2] in NUMBERS or name.startswith("objects_")
