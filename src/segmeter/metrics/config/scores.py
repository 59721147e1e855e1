"""Knows facts about each score by its name, and parses the bounds that a gate sets on it.

Rankings, gates, comparisons, sweeps and pages ask here which way is better, so that they all agree.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from segmeter.checks import expected, shown
from segmeter.errors import ConfigError
from segmeter.schema import Config, Given, rule

Direction = Literal["higher", "lower"]
Change = Literal["better", "worse", "equal"]

MEAN = "mean"  # Stands in place of a class for the mean over classes.
NUMBERS = ("tp", "fp", "fn")  # These metrics of a data set are numbers of objects.
OF_A_CLASS = ("object_size", "touches_border")
BRIGHTNESS = ("brightness", "image")  # metric and region
CONTENT = (*OF_A_CLASS, BRIGHTNESS[0])  # These describe the reference and the image, so they are equal in all runs.
# A metric's name ends with this, depending on the kind of surface.
SUFFIXES: dict[Literal["border_pixels", "marching_cubes"], str] = {
    "border_pixels": "",
    "marching_cubes": "_marching_cubes",
}


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
        Whether a value may be infinite, for example if only one mask contains the class.
    unit
        "length" in the unit of the spacing, "volume" in its square or cube, "objects", "bits", or "" for none.
    spaced
        Whether the metric depends on the spacing of the pixels.
    """

    better: Direction
    highest: float = 1.0
    infinite: bool = False
    unit: Literal["", "length", "volume", "objects", "bits"] = ""
    spaced: bool = False


_SHARE, _ERROR = Facts(better="higher"), Facts(better="lower")
_FAILED = Facts(better="lower", highest=np.inf, unit="objects")
_GROUPS = {
    "iou iiou dice precision recall mean_iou mean_dice pixel_accuracy boundary_iou cldice": _SHARE,
    "pq sq rq object_dice ap aji object_recall object_f1 picai_f1 cc_dice": _SHARE,
    "nsd nsd_mean brats_dice brats_f1": Facts(better="higher", spaced=True),
    "hd hd95 hd95_pooled assd masd object_masd": Facts(
        better="lower", highest=np.inf, infinite=True, unit="length", spaced=True
    ),
    "brats_hd95": Facts(better="lower", highest=np.inf, spaced=True),  # its penalty is in mm, whatever the unit
    "boundary_errors extent_errors segment_errors are": _ERROR,
    "boundary_gain extent_gain segment_gain": _ERROR,  # the gain from mending the errors: 0 is best
    "tp objects_matched picai_tp": Facts(better="higher", highest=np.inf, unit="objects"),
    "fp fn object_fp object_fn picai_fp picai_fn": _FAILED,
    "objects_missed objects_spurious objects_split objects_part objects_merged objects_merging": _FAILED,
    "brats_tp": Facts(better="higher", highest=np.inf, unit="objects", spaced=True),
    "brats_fp brats_fn": Facts(better="lower", highest=np.inf, unit="objects", spaced=True),
    "autopet_fp_volume autopet_fn_volume": Facts(better="lower", highest=np.inf, unit="volume", spaced=True),
    "voi voi_split voi_merge": Facts(better="lower", highest=np.inf, infinite=True, unit="bits"),
    "betti0_error betti1_error betti2_error euler_error": Facts(better="lower", highest=np.inf, infinite=True),
}
_KNOWN = {name: facts for names, facts in _GROUPS.items() for name in names.split()}


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
    """Tell whether a score is for all classes together, instead of for one of them.

    Examples
    --------
    >>> [is_overall(score) for score in ("mean_iou", "pq/mean", "pq/car")]
    [True, True, False]
    """
    return "/" not in score or score.partition("/")[2] == MEAN


def is_number(metric: str) -> bool:
    """Tell whether a metric of the data set is a number of objects, which has no mean over classes.

    Examples
    --------
    >>> is_number("tp"), is_number("object_fp@small"), is_number("objects_split"), is_number("object_recall@small")
    (True, True, True, False)
    """
    name = metric.partition("@")[0]
    return name.rpartition("_")[2] in NUMBERS or name.startswith("objects_")


RULE = "to be METRIC >= BOUND or METRIC <= BOUND, with a bound such as 0.8, base, base - 0.01 or base * 0.98"

_NUMBER = r"(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_REQUIREMENT = re.compile(
    rf"""
    (?: per_case\( \s* (?P<mean>[^<>]+?) \s* \) | (?P<metric>[^<>]+?) ) \s*
    (?: \[ \s* (?P<by>[^\[\]=<>]+?) \s* = \s* (?P<value>[^\[\]<>]*?) \s* \] \s* )?
    (?P<sign> >= | <= ) \s*
    (?: (?P<base>base) (?: \s* \* \s* (?P<factor>{_NUMBER}) )? (?: \s* (?P<shift>[+-]\s*{_NUMBER}) )?
      | (?P<fixed>[+-]?\s*{_NUMBER}) )
    """,
    re.VERBOSE,
)


@dataclass(frozen=True, kw_only=True)
class Requirement:
    """One bound of one score: score >= factor * base + offset, or <=.

    Parameters
    ----------
    metric
        Name of a score; "iou/*" stands for every class and group.
    slice
        Column and value of the slice of cases, or None for all cases; the value "*" stands for each.
    per_case
        Whether the mean over cases is meant, where the data set has a score too.
    at_least
        True for >=, False for <=.
    factor
        The base's score is multiplied by this; 0 for a fixed bound.
    offset
        Added to the product.
    infinite
        Whether the bound is on the share of cases whose value is infinite, instead of on the values.
    """

    metric: str
    slice: tuple[str, str] | None
    per_case: bool
    at_least: bool
    factor: float
    offset: float
    infinite: bool = False

    def __str__(self) -> str:
        name = f"per_case({self.metric})" if self.per_case else self.metric
        name = f"infinite({self.metric})" if self.infinite else name
        score = name if self.slice is None else f"{name}[{self.slice[0]}={self.slice[1]}]"
        scaled = f"base * {self.factor:g}" if self.factor != 1 else "base"
        shift = f" {'-' if self.offset < 0 else '+'} {abs(self.offset):g}" if self.offset else ""
        bound = f"{scaled}{shift}" if self.factor else f"{self.offset:g}"
        return f"{score} {'>=' if self.at_least else '<='} {bound}"


def parse_requirements(texts: str | Iterable[str]) -> list[Requirement]:
    """Read one requirement or several; ";" separates several in one text.

    Raises
    ------
    ConfigError
        Has a line for each requirement that can't be read.

    Examples
    --------
    >>> parsed = parse_requirements(["mean_iou >= base-.005; hd95/car[scanner=A] <= base * 1.1"])
    >>> [str(requirement) for requirement in parsed]
    ['mean_iou >= base - 0.005', 'hd95/car[scanner=A] <= base * 1.1']
    """
    given = [texts] if isinstance(texts, str) else list(texts) if isinstance(texts, Iterable) else [texts]
    if not all(isinstance(text, str) for text in given):
        raise ConfigError(expected("compare", "require", RULE, shown(texts)))
    single = [text.strip() for joined in given for text in joined.split(";")]
    matches = [(text, _REQUIREMENT.fullmatch(text)) for text in single]
    problems = [expected("compare", "require", RULE, repr(text)) for text, match in matches if match is None]
    if problems:
        raise ConfigError(problems)
    return [
        Requirement(
            metric=groups["mean"] or groups["metric"],
            slice=None if groups["by"] is None else (groups["by"], groups["value"]),
            per_case=groups["mean"] is not None,
            at_least=groups["sign"] == ">=",
            factor=float(groups["factor"] or 1) if groups["base"] else 0.0,
            offset=float("".join((groups["shift"] or groups["fixed"] or "0").split())),
        )
        for groups in (match.groupdict() for _, match in matches if match)
    ]


class RequireConfig(Config):
    """Setting of the commands that can decide whether a run is good enough."""

    require: str | tuple[str, ...] = ()
    """Requirements that the new run of runs=[BASE,NEW] must meet, decided by intervals: "mean_iou >= base - 0.005".
    "iou/* >= base - 0.02" is for each class, "mean_iou[scanner=A] >= 0.7" for a slice. Separate several with ";". The
    exit code is 0 if all are met, 4 if one is violated, and 5 if these cases can't tell.
    """

    @rule("require")
    def _readable(cls, require: str | tuple[str, ...], given: Given) -> None:
        parse_requirements(require)
