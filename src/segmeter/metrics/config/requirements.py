"""text such as "mean_iou >= base - 0.005" -> what a gate requires of a run. Nothing in the text is ever run."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from segmeter.checks import expected, shown
from segmeter.errors import ConfigError
from segmeter.schema import Config, Given, RuleError, rule

RULE = "to be METRIC >= BOUND or METRIC <= BOUND, with a bound such as 0.8, base, base - 0.01 or base * 0.98"

_NUMBER = r"(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_COMPARED = re.compile(r"(?P<left>[^<>]+?)\s*(?P<sign>>=|<=)\s*(?P<right>[^<>=]+)")
_OF_BASE = re.compile(rf"base(?:\s*\*\s*(?P<factor>{_NUMBER}))?(?:\s*(?P<sign>[+-])\s*(?P<offset>{_NUMBER}))?")
_FIXED = re.compile(rf"(?P<sign>[+-]?)\s*(?P<offset>{_NUMBER})")
_SLICE = re.compile(r"(?P<score>.+?)\s*\[\s*(?P<by>[^\[\]=]+?)\s*=\s*(?P<value>[^\[\]]*?)\s*\]")
_PER_CASE = re.compile(r"per_case\(\s*(?P<score>.+?)\s*\)")


@dataclass(frozen=True, kw_only=True)
class Requirement:
    """One bound of one score: score >= factor * base + offset, or <=.

    Parameters
    ----------
    metric
        Name of a score; "iou/*" stands for every class and group.
    slice
        Column and value of the slice of cases that it is about, or None for all of them; the value "*" stands for each.
    per_case
        Whether the mean over cases is meant, where the data set has a score too.
    at_least
        True for >=, False for <=.
    factor
        Of the base's score; 0 for a fixed bound.
    offset
        Added to it.
    infinite
        Whether the share of cases whose value is infinite is meant, instead of the values.
    """

    metric: str
    slice: tuple[str, str] | None
    per_case: bool
    at_least: bool
    factor: float
    offset: float
    infinite: bool = False

    @property
    def score(self) -> str:
        """The score, as it is written."""
        name = f"per_case({self.metric})" if self.per_case else self.metric
        name = f"infinite({self.metric})" if self.infinite else name
        return name if self.slice is None else f"{name}[{self.slice[0]}={self.slice[1]}]"

    def __str__(self) -> str:
        scaled = f"base * {self.factor:g}" if self.factor != 1 else "base"
        shift = f" {'-' if self.offset < 0 else '+'} {abs(self.offset):g}" if self.offset else ""
        bound = f"{scaled}{shift}" if self.factor else f"{self.offset:g}"
        return f"{self.score} {'>=' if self.at_least else '<='} {bound}"


def parse_requirements(texts: str | Iterable[str]) -> list[Requirement]:
    """Read requirements, or a single one; several stand in one text with ";" between them.

    Raises
    ------
    ConfigError
        With a line for each that can't be read.

    Examples
    --------
    >>> [str(one) for one in parse_requirements(["mean_iou >= base-.005; hd95/car[scanner=A] <= base * 1.1"])]
    ['mean_iou >= base - 0.005', 'hd95/car[scanner=A] <= base * 1.1']
    """
    given = [texts] if isinstance(texts, str) else list(texts) if isinstance(texts, Iterable) else [texts]
    if not all(isinstance(text, str) for text in given):
        raise ConfigError(expected("compare", "require", RULE, shown(texts)))
    found, problems = [], []
    for text in (part.strip() for one in given for part in one.split(";")):
        try:
            found.append(_parse(text))
        except RuleError as error:
            problems.append(expected("compare", "require", error.rule, repr(text), error.remedy))
    if problems:
        raise ConfigError(problems)
    return found


def _parse(text: str) -> Requirement:
    compared = _COMPARED.fullmatch(text)
    if compared is None:
        raise RuleError(RULE, _remedy(text))
    left, right = compared["left"].strip(), compared["right"].strip()
    sliced = _SLICE.fullmatch(left)
    score = sliced["score"] if sliced else left
    per_case = _PER_CASE.fullmatch(score)
    bound = _OF_BASE.fullmatch(right) or _FIXED.fullmatch(right)
    if bound is None:
        raise RuleError(RULE, _remedy(right))
    parts = bound.groupdict()
    offset = float(parts["offset"] or 0) * (-1 if parts["sign"] == "-" else 1)
    return Requirement(
        metric=per_case["score"] if per_case else score,
        slice=(sliced["by"], sliced["value"]) if sliced else None,
        per_case=per_case is not None,
        at_least=compared["sign"] == ">=",
        factor=float(parts["factor"] or 1) if "factor" in parts else 0.0,
        offset=offset,
    )


def _remedy(text: str) -> str:
    """Suggest what is most likely meant."""
    if "%" in text:
        return "Write base * 0.98 for 2 % of the base, or base - 0.02 for 2 points."
    signs = re.findall(r"[<>=!]+", text)
    if len(signs) > 1:
        return "Write one bound each, with ';' between them."
    if signs and signs[0] in ("<", ">", "=", "==", "!=", "=>", "=<"):
        return f"Write {'<=' if '<' in signs[0] else '>='} instead of {signs[0]}."
    return ""


class RequireConfig(Config):
    """What a command takes that can decide whether a run is good enough."""

    require: str | tuple[str, ...] = ()
    """What the new one of runs=[BASE,NEW] must reach, decided by intervals: "mean_iou >= base - 0.005";
    "iou/* >= base - 0.02" for each class, "mean_iou[scanner=A] >= 0.7" for a slice. Several with ";" between
    them. The exit code is 0 where all are met, 4 where one is violated, and 5 where these cases can't tell."""

    @property
    def requirements(self) -> tuple[str, ...]:
        """One or several."""
        return (self.require,) if isinstance(self.require, str) else self.require

    @rule("require")
    @classmethod
    def _readable(cls, require: str | tuple[str, ...], given: Given) -> None:
        for text in (require,) if isinstance(require, str) else require:
            for part in text.split(";"):
                _parse(part.strip())
