"""A gate decides whether the new one of two runs on the same cases is good enough, or that it can't be told."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from segmeter.checks import expected, nearest
from segmeter.errors import ConfigError
from segmeter.metrics.arrays import BoolArray, FloatArray
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.config.requirements import Requirement
from segmeter.metrics.statistics.bootstrap import Resampled, bootstrap_columns
from segmeter.metrics.statistics.clusters import cluster_labels
from segmeter.metrics.statistics.describe import minus, say
from segmeter.metrics.statistics.lazy_columns import Columns
from segmeter.metrics.statistics.paired_tests import holm
from segmeter.metrics.summary.bounds import Bound, BoundColumns, find_bounds
from segmeter.metrics.summary.directions import find_direction, name_change
from segmeter.metrics.summary.measures import MEAN
from segmeter.metrics.summary.scoreboard import Scoreboard

Outcome = Literal["pass", "regression", "unknown"]

ALL = "*"  # each class and group, or each slice
WORST_FIRST: tuple[Outcome, ...] = ("regression", "unknown", "pass")


def expand_requirements(
    requirements: Sequence[Requirement], board: Scoreboard, slices: Mapping[str, Sequence[str]]
) -> list[Requirement]:
    """Find the score that each requirement is about: once each, "pq" for "pq/mean", and each of a "*".

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
        With a line for each that is about no score, about no slice, or against its score's direction.
    """
    found: dict[Requirement, None] = {}
    problems: list[str] = []
    for one in requirements:
        names = list(board.values) if one.per_case else board.names
        metrics = _metrics(one.metric, names)
        if not metrics:
            known = "to name a score of all runs" + (" that has values per case" if one.per_case else "")
            problems.append(expected("compare", "require", known, repr(one.metric), nearest(one.metric, names)))
        wanted = [replace(one, slice=part) for part in _slices(one, slices, problems)]
        for metric in metrics:
            problems += _direction_problem(one, metric)
            found |= dict.fromkeys(replace(each, metric=metric) for each in wanted)
    if problems:
        raise ConfigError(list(dict.fromkeys(problems)))
    return list(found)


def _metrics(metric: str, names: Sequence[str]) -> list[str]:
    if metric in names:
        return [metric]
    if metric.endswith(f"/{ALL}"):
        return [name for name in names if name.startswith(metric[:-1]) and name.partition("/")[2] != MEAN]
    return [name for name in names if name == f"{metric}/{MEAN}"]


def _slices(one: Requirement, slices: Mapping[str, Sequence[str]], problems: list[str]) -> list[tuple[str, str] | None]:
    if one.slice is None:
        return [None]
    by, value = one.slice
    if by not in slices:
        known = nearest(by, slices) if slices else "Set metrics.slice_by."
        problems.append(expected("compare", "require", "to name a column of metrics.slice_by", repr(by), known))
        return []
    if value != ALL and value not in slices[by]:
        problems.append(
            expected("compare", "require", f"to name a value of {by}", repr(value), nearest(value, slices[by]))
        )
        return []
    return [(by, label) for label in (slices[by] if value == ALL else [value])]


def _direction_problem(one: Requirement, metric: str) -> list[str]:
    """A bound on the wrong side lets every regression pass."""
    better = find_direction(metric)
    if better in (None, "higher" if one.at_least else "lower"):
        return []
    sign = ">=" if better == "higher" else "<="
    return [expected("compare", "require", f"to be {metric} {sign} ..., as {better} is better", repr(str(one)))]


def decide(
    runs: Sequence[Scoreboard],
    requirements: Sequence[Requirement],
    slices: Mapping[str, Sequence[str]],
    config: MetricsConfig,
) -> dict[str, Any]:
    """Decide each requirement by the 95 % interval of the distance to its bound, and the whole by the worst of them.

    A requirement is met where the interval lies on the good side, the bound included, and violated where all of it lies
    on the other side. Otherwise these cases can't tell. Nor does a mean over cases pass that has no value in a case of
    the new run in which the base has one. No requirement has a say in the verdict on another, so that one more never
    makes the whole better; ``p_holm``, adjusted over all of them by Holm's method, is information only.

    Infinite values are never subtracted. Where a mean over cases has any, its requirement is decided by two bounds, and
    has an entry for each: "infinite(hd95/car) <= base" compares the shares of cases that are infinite (0 for a fixed
    bound), and "hd95/car <= base + 1" is decided by those that are finite.

    Parameters
    ----------
    runs
        Scores of the base and of the new run on the same cases, from `build_scoreboards`.
    requirements
        From `expand_requirements`.
    slices
        Column to the label of each case.
    config
        Bootstrap, interval, cluster and seed.

    Returns
    -------
    dict
        ``outcome``, the worst of all ("regression", then "unknown", then "pass"), and ``requirements``, an entry each:
        ``require, metric, slice, base, new, difference`` (new minus base), ``change`` ("better", "worse", "equal" or
        None), ``margin, margin_ci95, p_holm, outcome, n_units, n_units_needed, reason``. ``margin`` is the distance to
        the bound, > 0 where it is met.
        ``n_units_needed`` is how many cases (or clusters) like these would tell, if the margin stays as it is; None
        where none would, or where it is told. A mean over cases has ``n_used``, the cases in which both runs have a
        finite value (for a fixed bound, the new run), of which alone it is; ``n_infinite``, how many of its ``cases``
        are infinite in ``base`` and ``new``, where there are any; and ``n_undefined``, the others. ``n_units`` counts
        those used.
    """
    base, new = runs
    groups = [(one, _members(one, slices, len(base.case_ids))) for one in requirements]
    every = [bound for one, members in groups for bound in find_bounds(one, base, new, members)]
    bounds = list({bound.requirement: bound for bound in every}.values())  # several may ask for the same share
    blocks = {bound.requirement.slice: bound.members for bound in bounds if bound.counted is None}
    data = BoundColumns(boards=(base, new), bounds=bounds, blocks=blocks)
    columns, clusters = data.columns(), cluster_labels(base.case_ids, config.cluster)
    found = bootstrap_columns(
        columns,
        lambda sums: _margins(bounds, data.scores(sums)),
        resamples=config.bootstrap,
        seed=config.seed,
        interval=config.interval,
        clusters=clusters,
        test=True,
    )
    scores = data.scores(_sums(columns)[None])[0]
    violated = np.where(found.estimate < 0, found.p_of_zero, 1.0)
    adjusted = holm(np.nan_to_num(violated, nan=1.0).tolist())
    entries = []
    for i, bound in enumerate(bounds):
        verdict = _verdict(found, i, _units(bound, clusters), lost=bound.lost)
        entries.append(_entry(bound, scores[:, i]) | {"p_holm": float(adjusted[i])} | verdict)
    outcomes = {entry["outcome"] for entry in entries}
    outcome = next(each for each in WORST_FIRST if each in outcomes)
    return {"outcome": outcome, "requirements": entries}


def _entry(bound: Bound, scores: FloatArray) -> dict[str, Any]:
    one, difference = bound.requirement, float(minus(scores[1], scores[0]))
    return {
        "require": str(one),
        "metric": one.metric,
        "slice": None if one.slice is None else dict(zip(("by", "value"), one.slice, strict=True)),
        "base": say(scores[0]),
        "new": say(scores[1]),
        "difference": say(difference),
        "change": name_change(one.metric, difference),
        **bound.numbers,
    }


def _units(bound: Bound, clusters: Sequence[str] | None) -> int:
    """How many cases, or clusters, decide a bound."""
    places = np.flatnonzero(bound.members if bound.counted is None else bound.counted[1]).tolist()
    return len({clusters[i] for i in places} if clusters else places)


def _sums(columns: Columns) -> FloatArray:
    """Sums of the columns, each in the order of the cases; no more than one column is there at a time."""
    return np.array([np.add.accumulate(column)[-1] for column in columns])


def _members(one: Requirement, slices: Mapping[str, Sequence[str]], cases: int) -> BoolArray:
    if one.slice is None:
        return np.ones(cases, bool)
    by, value = one.slice
    return np.array([label == value for label in slices[by]])


def _margins(bounds: Sequence[Bound], scores: FloatArray) -> FloatArray:
    """Distance of each score to its bound, > 0 where it is met: (R, number of bounds), from scores (R, 2, the same)."""
    margins = []
    for i, bound in enumerate(bounds):
        one, base, new = bound.requirement, scores[:, 0, i], scores[:, 1, i]
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
        needed = _units_needed(units, margin, low if margin > 0 else high)
        reason = "the interval holds the bound"
    return {
        "margin": say(margin),
        "margin_ci95": [say(low), say(high)],
        "outcome": outcome,
        "n_units": units,
        "n_units_needed": needed,
        "reason": reason,
    }


def _units_needed(units: int, margin: float, end: float) -> int | None:
    """Intervals shrink with the square root of the number of units, until this one ends at the bound."""
    reach = abs(end - margin)
    if margin == 0 or not math.isfinite(reach):
        return None
    needed = math.ceil(units * (reach / margin) ** 2)
    return needed if needed > units else None  # where the interval ends just at the bound
