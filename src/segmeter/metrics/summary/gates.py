"""two runs on the same cases, and what is required of the second -> pass, regression, or that it can't be told."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from segmeter.checks import expected, nearest
from segmeter.errors import ConfigError
from segmeter.metrics.arrays import FloatArray
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.config.requirements import Requirement
from segmeter.metrics.statistics.bootstrap import Resampled, bootstrap_columns
from segmeter.metrics.statistics.clusters import cluster_labels
from segmeter.metrics.statistics.describe import say
from segmeter.metrics.statistics.lazy_columns import Columns, join_columns
from segmeter.metrics.statistics.paired_tests import holm
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


@dataclass(frozen=True, kw_only=True)
class _Data:
    """Columns of both runs side by side, for all cases and for the cases of each slice (N, B, 2 W), and the scores."""

    columns: Columns
    blocks: list[tuple[str, str] | None]
    board: Scoreboard

    def scores(self, sums: FloatArray) -> FloatArray:
        """Sums (R, B, 2 W) -> scores of base and new run (R, B, 2, S)."""
        count, blocks, width = sums.shape
        flat = np.ascontiguousarray(sums.reshape(count * blocks * 2, width // 2))
        return self.board.all_scores(flat).reshape(count, blocks, 2, -1)


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
        None), ``margin, margin_ci95, p_holm, outcome, n_units, n_units_needed, reason``. ``margin`` is the distance to the bound, > 0 where it is met.
        ``n_units_needed`` is how many cases (or clusters) like these would tell, if the margin stays as it is; None
        where none would, or where it is told. A mean over cases has ``n_used``, the cases in which both runs have the
        score, of which alone it is, and ``n_undefined``, the others; ``n_units`` are those used.
    """
    base, new = runs
    data = _gather(base, new, requirements, slices)
    clusters = cluster_labels(base.case_ids, config.cluster)
    found = bootstrap_columns(
        data.columns,
        lambda sums: _margins(data, requirements, sums),
        resamples=config.bootstrap,
        seed=config.seed,
        interval=config.interval,
        clusters=clusters,
        test=True,
    )
    scores = data.scores(_sums(data.columns)[None])[0]
    with np.errstate(invalid="ignore"):  # two infinite scores have no difference
        changed = scores[:, 1] - scores[:, 0]
    violated = np.where(found.estimate < 0, found.p_of_zero, 1.0)
    adjusted = holm(np.nan_to_num(violated, nan=1.0).tolist())
    entries = []
    for i, one in enumerate(requirements):
        block, place = data.blocks.index(one.slice), base.place(one.metric, per_case=one.per_case)
        used = _used(one, base, new, _members(one, slices, data.columns.count))
        places = np.flatnonzero(used.cases)
        units = len({clusters[i] for i in places} if clusters else places)
        entries.append(
            {
                "require": str(one),
                "metric": one.metric,
                "slice": None if one.slice is None else dict(zip(("by", "value"), one.slice, strict=True)),
                "base": say(scores[block, 0, place]),
                "new": say(scores[block, 1, place]),
                "difference": say(changed[block, place]),
                "change": name_change(one.metric, changed[block, place]),
                **_verdict(found, i, float(adjusted[i]), units, lost=used.lost),
                **used.numbers,
            }
        )
    outcomes = {entry["outcome"] for entry in entries}
    outcome = next(each for each in WORST_FIRST if each in outcomes)
    return {"outcome": outcome, "requirements": entries}


def _gather(
    base: Scoreboard, new: Scoreboard, requirements: Sequence[Requirement], slices: Mapping[str, Sequence[str]]
) -> _Data:
    """A mean over cases is of those that are defined in both runs, as in a comparison."""
    both = join_columns([base.all_columns(new), new.all_columns(base)])
    blocks = {one.slice: _members(one, slices, both.count) for one in requirements}
    members = list(blocks.values())

    def make(place: int) -> FloatArray:
        block, column = divmod(place, both.width)
        found: FloatArray = both.make(column) * members[block]
        return found

    columns = Columns(count=both.count, shape=(len(blocks), both.width), dtype=both.dtype, make=make)
    return _Data(columns=columns, blocks=list(blocks), board=base)


def _sums(columns: Columns) -> FloatArray:
    """Sums of the columns, each in the order of the cases; no more than one column is there at a time."""
    return np.array([np.add.accumulate(column)[-1] for column in columns]).reshape(columns.shape)


def _members(one: Requirement, slices: Mapping[str, Sequence[str]], cases: int) -> NDArray[np.bool_]:
    if one.slice is None:
        return np.ones(cases, bool)
    by, value = one.slice
    return np.array([label == value for label in slices[by]])


@dataclass(frozen=True, kw_only=True)
class _Used:
    """The cases (N,) that decide a requirement, how many only the new run lacks, and what its entry says of them."""

    cases: NDArray[np.bool_]
    lost: int
    numbers: Mapping[str, int]


def _used(one: Requirement, base: Scoreboard, new: Scoreboard, members: NDArray[np.bool_]) -> _Used:
    """A mean over cases is of those in which both runs have the score; one of the data set is of all."""
    if one.metric in base.whole and not one.per_case:
        return _Used(cases=members, lost=0, numbers={})
    had, has = (~np.isnan(board.values[one.metric]) & members for board in (base, new))
    both = int((had & has).sum())
    numbers = {"n_used": both, "n_undefined": int(members.sum()) - both}
    return _Used(cases=had & has, lost=int((had & ~has).sum()), numbers=numbers)


def _margins(data: _Data, requirements: Sequence[Requirement], sums: FloatArray) -> FloatArray:
    """Distance of each score to its bound, > 0 where it is met: (R, number of requirements)."""
    scores = data.scores(sums)
    margins = []
    for one in requirements:
        block, place = data.blocks.index(one.slice), data.board.place(one.metric, per_case=one.per_case)
        base, new = scores[:, block, 0, place], scores[:, block, 1, place]
        with np.errstate(invalid="ignore"):  # two infinite scores have no difference
            bound = one.factor * base + one.offset if one.factor else np.full_like(base, one.offset)
            margins.append(new - bound if one.at_least else bound - new)
    return np.stack(margins, axis=1)


def _verdict(found: Resampled, i: int, p_holm: float, units: int, *, lost: int) -> dict[str, Any]:
    margin, low, high = float(found.estimate[i]), float(found.low[i]), float(found.high[i])
    needed, reason = None, ""
    outcome: Outcome = "unknown"
    if math.isnan(margin):
        reason = "the score is undefined in one of the runs"
    elif math.isnan(low) or math.isnan(high):
        reason = "fewer than 5 units decide it, so that it has no interval"
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
        "p_holm": p_holm,
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
    return math.ceil(units * (reach / margin) ** 2)
