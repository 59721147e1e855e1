"""Decides whether a new run is good enough compared with a base run on the same cases, or whether these can't tell.

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
from segmeter.metrics.summary.scoreboard import PER_REGION, Scoreboard, ScoreColumns, side_by_side

Verdict = Literal["pass", "regression", "unknown"]

ALL = "*"  # stands for each class and group, or for each slice
_NO_SLICES = "Set metrics.slice_by."
WORST_FIRST: tuple[Verdict, ...] = ("regression", "unknown", "pass")


def expand_requirements(
    requirements: Sequence[Requirement], board: Scoreboard, slices: Mapping[str, Sequence[str]]
) -> list[Requirement]:
    """Find the scores that each requirement names: "pq" is "pq/mean", and "*" is each of the scores.

    Duplicates are dropped.

    Parameters
    ----------
    requirements
        From `parse_requirements`.
    board
        The scores of one of the runs; the others have the same.
    slices
        Columns by which cases are sliced, with their values.

    Raises
    ------
    ConfigError
        Each line is about one requirement: it names no score or slice, runs against its score's direction, or is out
        of the score's range.
    """
    expanded = dict[Requirement, None]()
    problems = list[str]()

    def refuse(rule: str, given: str, remedy: str = "") -> None:
        problems.append(expected("compare", "require", rule, repr(given), remedy))

    for requirement in requirements:
        asked = requirement.metric
        parts = [requirement.slice]
        names = board.names_per_case if requirement.per_case else board.names
        metrics = [asked] if asked in names else [name for name in names if name == f"{asked}/{MEAN}"]
        if asked.endswith(f"/{ALL}") and asked not in names:
            metrics = [name for name in names if name.startswith(asked[:-1]) and name.partition("/")[2] != MEAN]
        if not metrics:
            rule = "to name a score of all runs" + (" that has values per case" if requirement.per_case else "")
            refuse(rule, asked, nearest(asked, [name.removesuffix(f"/{MEAN}") for name in names]))
        if requirement.slice is not None:
            by, value = requirement.slice
            labels = slices.get(by, ())
            parts = [(by, label) for label in labels if value in (ALL, label)]
            if by not in slices:
                refuse("to name a column of metrics.slice_by", by, nearest(by, slices) if slices else _NO_SLICES)
            elif value not in (ALL, *labels):
                refuse(f"to name a value of {by}", value, nearest(value, labels))
        for metric in metrics:
            if rule := _broken_rule(requirement, metric):
                refuse(rule, str(requirement))
            expanded |= dict.fromkeys(replace(requirement, slice=part, metric=metric) for part in parts)
    if problems:
        raise ConfigError(list(dict.fromkeys(problems)))
    return list(expanded)


def _broken_rule(requirement: Requirement, metric: str) -> str:
    """Return the rule that a bound breaks: it is on the wrong side, where every regression passes, or out of reach."""
    facts = find_facts(metric)
    if facts is None:
        return ""
    if facts.better != ("higher" if requirement.at_least else "lower"):
        return f"to be {metric} {'>=' if facts.better == 'higher' else '<='} ..., as {facts.better} is better"
    if not requirement.factor and not 0 <= requirement.offset <= facts.highest:
        return f"to bound {metric} by {'0 or more' if np.isinf(facts.highest) else f'0 to {facts.highest:g}'}"
    return ""


def decide(
    base: Scoreboard, new: Scoreboard, requirements: Sequence[Requirement], slices: Mapping[str, Sequence[str]]
) -> dict[str, Any]:
    """Decide each requirement by the 95 % interval of the distance to its bound. The worst verdict is the outcome.

    A requirement is met if the whole interval lies on the good side or at the bound, and violated if all of it lies on
    the other side. Otherwise these cases can't tell. A mean over cases doesn't pass either if the new run has no value
    in a case in which the base has one. Each requirement is decided alone, so adding one never improves the outcome;
    ``p_holm``, adjusted over all of them by Holm's method, is for information only.

    Infinite values are never subtracted. Where a mean over cases has any, its requirement is decided by two bounds, and
    has an entry for each. "infinite(hd95/car) <= base" compares the shares of infinite cases; for a fixed bound, the
    limit is 0. "hd95/car <= base + 1" is decided by the finite cases.

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
        the cases that it is taken over: those with a finite value in both runs (for a fixed bound, in the new run).
        ``n_undefined`` counts the cases that are neither used nor infinite. If any are infinite, ``n_infinite`` has
        their number in ``base`` and ``new``, and that of all ``cases``. ``n_units`` counts the units used.
    """
    bounds: dict[Requirement, _Bound] = {}  # several requirements may ask for the same share of infinite values
    for requirement in requirements:
        members = np.ones(len(base.run.case_ids), bool)
        if requirement.slice is not None:
            by, value = requirement.slice
            members = np.array([label == value for label in slices[by]])
        bounds |= {bound.requirement: bound for bound in _find_bounds(requirement, base, new, members)}
    columns, score_sides = side_by_side(*(side for bound in bounds.values() for side in bound.sides))

    def score(sums: FloatArray) -> FloatArray:
        """Turn sums (R, C) into the scores of both runs for each bound, (B, 2, R)."""
        return np.stack(score_sides(sums)).reshape(len(bounds), 2, -1)

    margins = base.resample(columns, lambda sums: _margins(score(sums), list(bounds)), test=True)
    scores = score(columns.sums()[None])[..., 0]
    p_values = np.where(margins.estimate < 0, margins.p_of_zero, 1.0)
    adjusted = holm(np.nan_to_num(p_values, nan=1.0).tolist())
    entries = []
    for i, (requirement, bound) in enumerate(bounds.items()):
        difference = float(minus(scores[i, 1], scores[i, 0]))
        part = requirement.slice
        entry: dict[str, Any] = {
            "require": str(requirement),
            "metric": requirement.metric,
            "slice": None if part is None else dict(zip(("by", "value"), part, strict=True)),
            "base": json_number_or_inf(scores[i, 0]),
            "new": json_number_or_inf(scores[i, 1]),
            "difference": json_number_or_inf(difference),
            "change": name_change(requirement.metric, difference),
            "p_holm": float(adjusted[i]),
        }
        units = len(np.unique(base.units[bound.deciding]))
        entries.append({**entry, **bound.numbers, **_decide_bound(margins, i, units, lost=bound.lost)})
    verdicts = {entry["outcome"] for entry in entries}
    return {"outcome": next(verdict for verdict in WORST_FIRST if verdict in verdicts), "requirements": entries}


@dataclass(frozen=True, kw_only=True)
class _Bound:
    """A bound with an interval of its own: a requirement, or its part about infinite values.

    Parameters
    ----------
    requirement
        Its ``infinite`` is true if the bound is for the share of cases whose value is infinite.
    sides
        Columns of the base and of the new run, whose sums give a score (R, 1).
    deciding
        The cases (N,) that decide it.
    lost
        The number of cases with a value in the base alone.
    numbers
        The numbers of cases in the entry.
    """

    requirement: Requirement
    sides: Sequence[ScoreColumns]
    deciding: BoolArray
    lost: int = 0
    numbers: Mapping[str, Any] = field(default_factory=dict)


def _find_bounds(requirement: Requirement, base: Scoreboard, new: Scoreboard, members: BoolArray) -> list[_Bound]:
    """Return the bounds of a requirement: two for a mean over cases with infinite values, otherwise one.

    Infinite values, such as the distance of a missed object, can't be subtracted. One bound allows no larger share of
    them than in the base. The other one is for the mean over the cases that are finite in both runs (for a fixed bound,
    in the new run).
    """
    metric = requirement.metric
    if metric in base.dataset_names and not requirement.per_case:
        sides = [_score_of_dataset(metric, board, members) for board in (base, new)]
        return [_Bound(requirement=requirement, sides=sides, deciding=members)]
    base_values, new_values = (np.where(members, board.values(metric), np.nan) for board in (base, new))
    base_infinite, new_infinite = np.isinf(base_values), np.isinf(new_values)
    base_finite, new_finite = np.isfinite(base_values), np.isfinite(new_values)
    used = base_finite & new_finite if requirement.factor else new_finite
    numbers: dict[str, Any] = {"n_used": int(used.sum())}
    numbers["n_undefined"] = int((members & ~used & ~base_infinite & ~new_infinite).sum())
    if base_infinite.any() or new_infinite.any():
        base_count, new_count = int(base_infinite.sum()), int(new_infinite.sum())
        numbers["n_infinite"] = {"base": base_count, "new": new_count, "cases": int(members.sum())}
    lost = int((base_finite & np.isnan(new_values)).sum())
    failing = new_infinite.any() or (base_infinite.any() and requirement.factor != 0)
    bounds = []
    if used.any() or not failing:
        sides = [_mean_over(requirement, base, used & base_finite), _mean_over(requirement, new, used)]
        bounds.append(_Bound(requirement=requirement, sides=sides, deciding=used, lost=lost, numbers=numbers))
    if failing:
        share = replace(requirement, infinite=True, factor=1.0 if requirement.factor else 0.0, offset=0.0)
        numbers = numbers | {"n_used": int(members.sum()), "n_undefined": 0}
        sides = [_mean_over(share, board, members) for board in (base, new)]
        bounds.append(_Bound(requirement=share, sides=sides, deciding=members, numbers=numbers))
    return bounds


def _score_of_dataset(name: str, board: Scoreboard, members: BoolArray) -> ScoreColumns:
    """Return the columns of some cases for a score of the data set.

    A score of one class or group needs only the totals of that region.
    """
    metric, _, region = name.partition("/")
    if metric not in PER_REGION or region not in board.run.regions:
        return ScoreColumns(board.columns.of_cases(members), partial(board.score, names=[name]))
    index = board.run.regions.index(region)
    columns = replace(board.columns, shape=(4,), make=lambda k: board.run.region_totals[k][:, index]).of_cases(members)
    return ScoreColumns(columns, lambda sums: ClassTotals(*np.split(sums, 4, axis=-1)).ratio(metric))


def _mean_over(requirement: Requirement, board: Scoreboard, cases: BoolArray) -> ScoreColumns:
    """Return the columns for the mean of a score over some cases, or for their share of infinite values."""

    def make(column: int) -> FloatArray:
        if column:
            return cases.astype(np.float64)
        values = board.values(requirement.metric)
        return np.where(cases, np.isinf(values) if requirement.infinite else values, 0.0)

    columns = Columns(count=len(cases), shape=(2,), dtype=np.dtype(np.float64), make=make)
    return ScoreColumns(columns, lambda sums: divide(sums[:, :1], sums[:, 1:]))


def _margins(scores: FloatArray, requirements: Sequence[Requirement]) -> FloatArray:
    """Return the distances (R, B) of the scores (B, 2, R) to their bounds, > 0 where a bound is met."""
    margins = []
    for requirement, (base, new) in zip(requirements, scores, strict=True):
        factor, offset = requirement.factor, requirement.offset
        with np.errstate(invalid="ignore"):  # two infinite scores of the data set have no difference
            limit = factor * base + offset if factor else np.full_like(base, offset)
            margins.append(new - limit if requirement.at_least else limit - new)
    return np.stack(margins, axis=1)


def _decide_bound(margins: Resampled, i: int, units: int, *, lost: int) -> dict[str, Any]:
    margin, low, high = float(margins.estimate[i]), float(margins.low[i]), float(margins.high[i])
    needed, reason = None, ""
    verdict: Verdict = "unknown"
    if math.isnan(margin):
        reason = "the score is undefined in one of the runs, or infinite in both"
    elif math.isnan(low) or math.isnan(high):
        reason = "fewer than 5 units have the score, or it is undefined without one of them: it has no interval"
    elif low >= 0 and lost:
        reason = f"the score became undefined in {lost} {'case' if lost == 1 else 'cases'} of the new run"
    elif low >= 0:
        verdict = "pass"
    elif high < 0:
        verdict = "regression"
    else:
        # intervals shrink with the square root of the number of units, until this one ends at the bound
        reach = abs((low if margin > 0 else high) - margin)
        if margin and math.isfinite(reach):
            shrunk = math.ceil(units * (reach / margin) ** 2)
            needed = shrunk if shrunk > units else None  # not more if the interval ends just at the bound
        reason = "the interval contains the bound"
    return {
        "margin": json_number_or_inf(margin),
        "margin_ci95": margins.ends(i),
        "outcome": verdict,
        "n_units": units,
        "n_units_needed": needed,
        "reason": reason,
    }
