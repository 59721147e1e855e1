"""Decides whether the new one of two runs on the same cases is good enough, is not, or can't be judged by these cases.

Each bound is decided by an interval of its own. A mean over cases with infinite values has two bounds: the share of
infinite cases, and the mean of the finite ones. Axis letters: N cases, R sums (one per resample), B bounds, C columns.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

import numpy as np

from segmeter.checks import expected, nearest
from segmeter.errors import ConfigError
from segmeter.metrics.arrays import BoolArray, FloatArray, divide, json_number_or_inf, minus
from segmeter.metrics.config.scores import MEAN, Requirement, find_facts, name_change
from segmeter.metrics.pixels.overlap import ClassTotals
from segmeter.metrics.statistics.bootstrap import Resampled
from segmeter.metrics.statistics.columns import Columns
from segmeter.metrics.statistics.paired_tests import holm
from segmeter.metrics.summary.scoreboard import PER_REGION, Chosen, Scoreboard, side_by_side

Outcome = Literal["pass", "regression", "unknown"]

ALL = "*"  # each class and group, or each slice
_NO_SLICES = "Set metrics.slice_by."
WORST_FIRST: tuple[Outcome, ...] = ("regression", "unknown", "pass")


def expand_requirements(
    requirements: Sequence[Requirement], board: Scoreboard, slices: Mapping[str, Sequence[str]]
) -> list[Requirement]:
    """Find the score that each requirement names. "pq" is "pq/mean", "*" is each of the scores, and doubles are
    dropped.

    Parameters
    ----------
    requirements
        From `parse_requirements`.
    board
        Of one of the runs: the scores that all have.
    slices
        Columns by which cases are sliced, with their values.

    Raises
    ------
    ConfigError
        With a line for each that names no score or slice, runs against its score's direction, or is out of its range.
    """
    found, problems = dict[Requirement, None](), list[str]()

    def refuse(rule: str, given: str, remedy: str = "") -> None:
        problems.append(expected("compare", "require", rule, repr(given), remedy))

    for one in requirements:
        names, parts = board.per_case if one.per_case else board.names, [one.slice]
        metrics = [one.metric] if one.metric in names else [name for name in names if name == f"{one.metric}/{MEAN}"]
        if one.metric.endswith(f"/{ALL}") and one.metric not in names:
            metrics = [name for name in names if name.startswith(one.metric[:-1]) and name.partition("/")[2] != MEAN]
        if not metrics:
            rule = "to name a score of all runs" + (" that has values per case" if one.per_case else "")
            refuse(rule, one.metric, nearest(one.metric, [name.removesuffix(f"/{MEAN}") for name in names]))
        if one.slice is not None:
            by, value = one.slice
            labels = slices.get(by, ())
            parts = [(by, label) for label in labels if value in (ALL, label)]
            if by not in slices:
                refuse("to name a column of metrics.slice_by", by, nearest(by, slices) if slices else _NO_SLICES)
            elif value not in (ALL, *labels):
                refuse(f"to name a value of {by}", value, nearest(value, labels))
        for metric in metrics:
            if rule := _misfit(one, metric):
                refuse(rule, str(one))
            found |= dict.fromkeys(replace(one, slice=part, metric=metric) for part in parts)
    if problems:
        raise ConfigError(list(dict.fromkeys(problems)))
    return list(found)


def _misfit(one: Requirement, metric: str) -> str:
    """Return the rule that a bound breaks: on the wrong side, where every regression passes, or out of reach."""
    facts = find_facts(metric)
    if facts is None:
        return ""
    if facts.better != ("higher" if one.at_least else "lower"):
        return f"to be {metric} {'>=' if facts.better == 'higher' else '<='} ..., as {facts.better} is better"
    if not one.factor and not 0 <= one.offset <= facts.highest:
        return f"to bound {metric} by {'0 or more' if np.isinf(facts.highest) else f'0 to {facts.highest:g}'}"
    return ""


def decide(
    base: Scoreboard, new: Scoreboard, requirements: Sequence[Requirement], slices: Mapping[str, Sequence[str]]
) -> dict[str, Any]:
    """Decide each requirement by the 95 % interval of the distance to its bound; the worst one decides the whole.

    A requirement is met if the whole interval lies on the good side or at the bound, and violated if all of it lies on
    the other side. Otherwise these cases can't tell. A mean over cases doesn't pass either if the new run has no value
    in a case in which the base has one. Each requirement is decided alone, so adding one never improves the outcome;
    ``p_holm``, adjusted over all of them by Holm's method, is for information only.

    Infinite values are never subtracted. Where a mean over cases has any, its requirement is decided by two bounds, and
    has an entry for each: "infinite(hd95/car) <= base" compares the shares of cases that are infinite (0 for a fixed
    bound), and "hd95/car <= base + 1" is decided by those that are finite.

    Parameters
    ----------
    base, new
        Scores of both runs on the same cases, from `build_scoreboards`.
    requirements
        From `expand_requirements`.
    slices
        Column to the label of each case.

    Returns
    -------
    dict
        ``outcome``, the worst of all ("regression", then "unknown", then "pass"), and ``requirements``, an entry each:
        ``require, metric, slice, base, new, difference`` (new minus base), ``change`` ("better", "worse", "equal" or
        None), ``margin, margin_ci95, p_holm, outcome, n_units, n_units_needed, reason``. ``margin`` is the distance to
        the bound, > 0 where it is met. ``n_units_needed`` is the number of cases (or clusters) like these that would
        decide at the same margin; None if it is decided already, or no number would. A mean over cases has ``n_used``,
        the cases that it is taken over: those with a finite value in both runs (for a fixed bound, in the new run). It
        has ``n_infinite`` if there are any, the ``cases`` that are infinite in ``base`` and ``new``, and
        ``n_undefined``, the others. ``n_units`` counts those used.
    """
    bounds: dict[Requirement, _Bound] = {}  # several requirements may ask for the same share of infinite values
    for one in requirements:
        members = np.ones(len(base.run.case_ids), bool)
        if one.slice is not None:
            members = np.array([label == one.slice[1] for label in slices[one.slice[0]]])
        bounds |= {bound.requirement: bound for bound in _find_bounds(one, base, new, members)}
    columns, score_sides = side_by_side(*(side for bound in bounds.values() for side in bound.sides))

    def score(sums: FloatArray) -> FloatArray:
        """Turn sums (R, C) into the scores of both runs for each bound, (B, 2, R)."""
        return np.stack(score_sides(sums)).reshape(len(bounds), 2, -1)

    found = base.resample(columns, lambda sums: _margins(score(sums), list(bounds)), test=True)
    scores = score(columns.sums()[None])[..., 0]
    violated = np.where(found.estimate < 0, found.p_of_zero, 1.0)
    adjusted = holm(np.nan_to_num(violated, nan=1.0).tolist())
    entries = []
    for i, (one, bound) in enumerate(bounds.items()):
        difference = float(minus(scores[i, 1], scores[i, 0]))
        entry: dict[str, Any] = {
            "require": str(one),
            "metric": one.metric,
            "slice": None if one.slice is None else dict(zip(("by", "value"), one.slice, strict=True)),
            "base": json_number_or_inf(scores[i, 0]),
            "new": json_number_or_inf(scores[i, 1]),
            "difference": json_number_or_inf(difference),
            "change": name_change(one.metric, difference),
            "p_holm": float(adjusted[i]),
        }
        units = len(np.unique(base.units[bound.deciding]))
        entries.append({**entry, **bound.numbers, **_verdict(found, i, units, lost=bound.lost)})
    outcomes = {entry["outcome"] for entry in entries}
    return {"outcome": next(each for each in WORST_FIRST if each in outcomes), "requirements": entries}


@dataclass(frozen=True, kw_only=True)
class _Bound:
    """A bound with an interval of its own: a requirement, or its part about infinite values.

    Parameters
    ----------
    requirement
        Its ``infinite`` is true for the share of cases whose value is infinite.
    sides
        Columns of the base and of the new run, each with the function from their sums to the score.
    deciding
        The cases (N,) that decide it.
    lost
        How many cases had a value in the base alone.
    numbers
        The entry's numbers of cases.
    """

    requirement: Requirement
    sides: Sequence[Chosen]
    deciding: BoolArray
    lost: int = 0
    numbers: Mapping[str, Any] = field(default_factory=dict)


def _find_bounds(one: Requirement, base: Scoreboard, new: Scoreboard, members: BoolArray) -> list[_Bound]:
    """Split a requirement of a mean over cases with infinite values, which are counted while the others are averaged.

    Infinite values, such as the distance of a missed object, can't be subtracted. The first bound allows no more of
    them than in the base. The second is for the mean of the cases that are finite in both runs, or for a fixed bound in
    the new run.
    """
    if one.metric in base.whole and not one.per_case:
        sides = [_whole(one.metric, board, members) for board in (base, new)]
        return [_Bound(requirement=one, sides=sides, deciding=members)]
    had, has = (np.where(members, board.values(one.metric), np.nan) for board in (base, new))
    infinite, known = (np.isinf(had), np.isinf(has)), (np.isfinite(had), np.isfinite(has))
    used = known[0] & known[1] if one.factor else known[1]
    numbers: dict[str, Any] = {"n_used": int(used.sum())}
    numbers["n_undefined"] = int((members & ~used & ~infinite[0] & ~infinite[1]).sum())
    if infinite[0].any() or infinite[1].any():
        base_count, new_count = (int(each.sum()) for each in infinite)
        numbers["n_infinite"] = {"base": base_count, "new": new_count, "cases": int(members.sum())}
    lost = int((known[0] & np.isnan(has)).sum())
    failing = infinite[1].any() or (infinite[0].any() and one.factor != 0)
    found = []
    if used.any() or not failing:
        sides = [_mean(one, base, used & known[0]), _mean(one, new, used)]
        found.append(_Bound(requirement=one, sides=sides, deciding=used, lost=lost, numbers=numbers))
    if failing:
        share = replace(one, infinite=True, factor=1.0 if one.factor else 0.0, offset=0.0)
        numbers = numbers | {"n_used": int(members.sum()), "n_undefined": 0}
        sides = [_mean(share, board, members) for board in (base, new)]
        found.append(_Bound(requirement=share, sides=sides, deciding=members, numbers=numbers))
    return found


def _whole(name: str, board: Scoreboard, members: BoolArray) -> Chosen:
    """Return columns of some cases, and the function from their sums to a score of the data set.

    A score of one class or group needs its own margins alone.
    """
    metric, _, region = name.partition("/")
    if metric not in PER_REGION or region not in board.run.regions:
        return board.columns.of_cases(members), partial(board.score, names=[name])
    place = board.run.regions.index(region)
    own = replace(board.columns, shape=(4,), make=lambda k: board.run.margins[k][:, place])
    return own.of_cases(members), lambda sums: ClassTotals(*np.split(sums, 4, axis=-1)).ratio(metric)


def _mean(one: Requirement, board: Scoreboard, counted: BoolArray) -> Chosen:
    """Return columns, and the function from their sums to the mean over the counted cases of their values, or of
    whether these are infinite.
    """

    def make(place: int) -> FloatArray:
        if place:
            return counted.astype(np.float64)
        values = board.values(one.metric)
        return np.where(counted, np.isinf(values) if one.infinite else values, 0.0)

    columns = Columns(count=len(counted), shape=(2,), dtype=np.dtype(np.float64), make=make)
    return columns, lambda sums: divide(sums[:, :1], sums[:, 1:])


def _margins(scores: FloatArray, requirements: Sequence[Requirement]) -> FloatArray:
    """Return the distance (R, B) of the scores (B, 2, R) to their bounds, > 0 if it is met."""
    margins = []
    for one, (base, new) in zip(requirements, scores, strict=True):
        with np.errstate(invalid="ignore"):  # two infinite scores of the data set have no difference
            limit = one.factor * base + one.offset if one.factor else np.full_like(base, one.offset)
            margins.append(new - limit if one.at_least else limit - new)
    return np.stack(margins, axis=1)


def _verdict(found: Resampled, i: int, units: int, *, lost: int) -> dict[str, Any]:
    margin, low, high = float(found.estimate[i]), float(found.low[i]), float(found.high[i])
    needed, reason = None, ""
    outcome: Outcome = "unknown"
    if math.isnan(margin):
        reason = "the score is undefined in one of the runs, or infinite in both"
    elif math.isnan(low) or math.isnan(high):
        reason = "fewer than 5 units have the score, or it is undefined without one of them: it has no interval"
    elif low >= 0 and lost:
        reason = f"the score became undefined in {lost} {'case' if lost == 1 else 'cases'} of the new run"
    elif low >= 0:
        outcome = "pass"
    elif high < 0:
        outcome = "regression"
    else:
        # intervals shrink with the square root of the number of units, until this one ends at the bound
        reach = abs((low if margin > 0 else high) - margin)
        if margin and math.isfinite(reach):
            wanted = math.ceil(units * (reach / margin) ** 2)
            needed = wanted if wanted > units else None  # where the interval ends just at the bound
        reason = "the interval contains the bound"
    return {
        "margin": json_number_or_inf(margin),
        "margin_ci95": found.ends(i),
        "outcome": outcome,
        "n_units": units,
        "n_units_needed": needed,
        "reason": reason,
    }
