"""rows of several runs on the same cases -> paired differences, tests, ranking. Pure statistics."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segmeter.checks import expected
from segmeter.classes import ClassSpec
from segmeter.errors import InputError
from segmeter.metrics.arrays import FloatArray
from segmeter.metrics.cases.table import CaseRow, order_rows, stack_totals
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.measures.protocol import build_measures
from segmeter.metrics.pixels.overlap import ClassTotals, score_totals
from segmeter.metrics.statistics.bootstrap import (
    Resampled,
    Statistic,
    bootstrap,
    mean_columns,
    mean_of_columns,
    sum_clusters,
)
from segmeter.metrics.statistics.clusters import cluster_labels
from segmeter.metrics.statistics.describe import plain, say
from segmeter.metrics.statistics.intervals import Interval
from segmeter.metrics.statistics.paired_tests import holm, sign_flip, wilcoxon
from segmeter.metrics.summary.directions import find_direction
from segmeter.metrics.summary.measures import WholeScores, gather_columns
from segmeter.metrics.summary.ranking import Ranking, rank_values
from segmeter.metrics.summary.summary import DEFAULT, PER_CASE, mean_classes

_LISTED = 8  # cases named in one message
_TESTS = ("wilcoxon_p", "sign_flip_p")


def compare_runs(
    runs: Mapping[str, Sequence[CaseRow]], spec: ClassSpec, config: MetricsConfig = DEFAULT
) -> dict[str, Any]:
    """Compare runs on the same cases: each pair's difference with its interval and tests, and the ranking of all.

    Parameters
    ----------
    runs
        Name of a run to its rows; two or more.
    spec
        The classes of all runs.
    config
        Background, bootstrap (at least 1), interval, cluster and seed. With ``config.measures``, as the runs were
        measured by, scores of the whole data set that measures give, such as PQ, are compared too.

    Returns
    -------
    dict
        ``{"n_cases", "runs", "metrics": {metric: entry}, "not_shared"}``, plain values. Metrics are mean_iou, mean_dice
        and pixel_accuracy, and "<metric>/<class>" or "<metric>/mean" for each measure's column that all runs have;
        ``not_shared`` names the columns of some runs only. An entry has ``per_case`` (mean over cases, by run),
        ``dataset`` (by run, where the metric has such a score), ``pairs``, ``better`` ("higher", "lower", or None where
        that is not known) and ``ranking`` (None without ``better``), which is by ``ranked_by``: "dataset", or
        "per_case" where there is no such score.
        ``pairs[i]["dataset_difference"]`` is first minus second. Tests are of the per-case values, two-sided, and
        ``*_holm`` is adjusted for all pairs of that metric. With ``config.cluster`` they are of each cluster's mean, as
        its cases are not independent. Cases in which one value is undefined are left out of a pair's tests and
        per-case difference, and counted. Infinity is the text "inf"; infinite differences leave out the sign-flip test,
        which compares means, and are the largest ones of Wilcoxon's.

    Raises
    ------
    InputError
        Fewer than two runs, other cases, or references that differ: such scores can't be compared.

    Examples
    --------
    >>> spec = ClassSpec(task="binary", names=("ground", "cell"), colours=((0, 0, 0), (255, 255, 255)))
    >>> def run(*missed):  # pixels of a cell of 9 that each case misses
    ...     counts = [np.array([[90, 1], [m, 9 - m]]) for m in missed]
    ...     return [CaseRow(case_id=str(i), height=10, width=10, counts=table) for i, table in enumerate(counts)]
    >>> found = compare_runs({"new": run(0, 1, 2), "old": run(2, 2, 3)}, spec, MetricsConfig(bootstrap=500))
    >>> found["metrics"]["mean_iou"]["pairs"][0]["dataset_difference"] > 0
    True
    """
    if len(runs) < 2 or config.bootstrap < 1:
        rule, given = "to be two or more, with a bootstrap", f"{len(runs)} runs, bootstrap {config.bootstrap}"
        raise InputError(expected("compare", "runs", rule, given))
    ordered = {name: order_rows("compare", rows, spec) for name, rows in runs.items()}
    margins = {name: stack_totals(rows, spec) for name, rows in ordered.items()}
    _check_same(ordered, margins)
    case_ids = [row.case_id for row in next(iter(ordered.values()))]
    table = _tabulate(ordered, margins, spec, config)
    options = {
        "resamples": config.bootstrap,
        "seed": config.seed,
        "clusters": cluster_labels(case_ids, config.cluster),
    }
    pairs = [_compare_pair(table, *pair, config, options) for pair in combinations(range(len(runs)), 2)]
    for metric in table.metrics:
        _adjust([pair[metric] for pair in pairs])
    drawn = _resample(table, options)
    return {
        "n_cases": len(case_ids),
        "runs": list(runs),
        "metrics": {metric: _entry(table, metric, pairs, drawn) for metric in table.metrics},
        "not_shared": table.not_shared,
    }


def paired_bootstrap(
    first: NDArray[Any], second: NDArray[Any], statistic: Statistic, *, interval: Interval = "expanded", **options: Any
) -> Resampled:
    """Find the interval of ``statistic(first) - statistic(second)``, both on the same resampled cases.

    Parameters
    ----------
    first, second : (N, M)
        Columns of two models, row by row of the same case.
    statistic
        As for `bootstrap`.
    interval, options
        Passed to `bootstrap`: resamples, seed, level, clusters.

    Raises
    ------
    InputError
        The shapes differ, or `bootstrap` refuses.
    """
    if first.shape != second.shape:
        raise InputError(expected("paired_bootstrap", "second", f"to have the shape {first.shape}", second.shape))
    width = first.shape[1]

    def difference(sums: NDArray[Any]) -> FloatArray:
        one, other = (statistic(np.ascontiguousarray(part)) for part in (sums[:, :width], sums[:, width:]))
        with np.errstate(invalid="ignore"):  # two infinite scores have no difference
            return one - other

    return bootstrap(np.concatenate([first, second], axis=1), difference, interval=interval, **options)


@dataclass(frozen=True, kw_only=True)
class _Table:
    """The compared values of M runs on N cases: V metrics with values per case, of which D have dataset scores.

    Parameters
    ----------
    runs
        Names.
    metrics
        Of the columns of `values`.
    values
        Per run (N, V).
    columns
        Per run (N, C), whose sums give the dataset scores.
    whole
        Metrics that have a dataset score.
    score
        Sums (R, C) -> dataset scores (R, D).
    not_shared
        Columns that only some runs have.
    """

    runs: list[str]
    metrics: list[str]
    values: list[FloatArray]
    columns: list[NDArray[Any]]
    whole: list[str]
    score: Statistic
    not_shared: list[str]


def _tabulate(
    ordered: Mapping[str, Sequence[CaseRow]], margins: Mapping[str, ClassTotals], spec: ClassSpec, config: MetricsConfig
) -> _Table:
    classes, width = mean_classes(config, spec), 4 * spec.num_classes
    measured = [gather_columns(rows, spec, config) for rows in ordered.values()]
    shared = [name for name in measured[0].values if all(name in one.values for one in measured)]
    sums = [name for name in measured[0].sums if all(name in one.sums for one in measured)]
    every = dict.fromkeys(name for one in measured for name in one.values)
    whole = WholeScores(build_measures(config, spec), tuple(sums), [spec.names[k] for k in classes])
    names = [name for name in whole.score(np.zeros((1, len(sums)))) if name in shared]

    def score(totals: NDArray[Any]) -> FloatArray:
        scores = score_totals(ClassTotals.from_columns(totals[:, :width]), task=spec.task, classes=classes)
        further = whole.score(np.asarray(totals[:, width:], np.float64))
        parts = [getattr(scores, name) for name in PER_CASE] + [further[name] for name in names]
        return np.stack(parts, axis=1)

    values, columns = [], []
    for part, one in zip(margins.values(), measured, strict=True):
        scores = score_totals(part, task=spec.task, classes=classes)
        own = [getattr(scores, name) for name in PER_CASE] + [one.values[name] for name in shared]
        values.append(np.stack(own, axis=1))
        added = np.stack([one.sums[name] for name in sums], axis=1) if sums else np.empty((len(own[0]), 0))
        columns.append(np.concatenate([part.columns(), added], axis=1))
    return _Table(
        runs=list(ordered),
        metrics=[*PER_CASE, *map("/".join, shared)],
        values=values,
        columns=columns,
        whole=[*PER_CASE, *map("/".join, names)],
        score=score,
        not_shared=["/".join(name) for name in every if name not in shared],
    )


def _compare_pair(
    table: _Table, first: int, second: int, config: MetricsConfig, options: dict[str, Any]
) -> dict[str, dict[str, Any]]:
    """By metric: the differences of two runs, with intervals and tests."""
    one, other = table.values[first], table.values[second]
    undefined = np.isnan(one) | np.isnan(other)
    ours, theirs = (mean_columns(np.where(undefined, np.nan, part)) for part in (one, other))
    means = paired_bootstrap(ours, theirs, mean_of_columns, interval=config.interval, **options)
    whole = paired_bootstrap(
        table.columns[first], table.columns[second], table.score, interval=config.interval, **options
    )
    units = [mean_of_columns(sum_clusters(part, options["clusters"])) for part in (ours, theirs)]
    found = {}
    for i, metric in enumerate(table.metrics):
        entry = {"first": table.runs[first], "second": table.runs[second]}
        if metric in table.whole:
            entry |= _difference("dataset", whole, table.whole.index(metric))
        entry |= _difference("per_case", means, i) | _test(units[0][:, i], units[1][:, i], config)
        lost = int(undefined[:, i].sum())
        found[metric] = entry | {"n_used": len(undefined) - lost, "n_undefined": lost}
    return found


def _test(one: FloatArray, other: FloatArray, config: MetricsConfig) -> dict[str, Any]:
    endless = np.isinf(one) != np.isinf(other)
    flipped = None
    if not endless.any():
        flipped = sign_flip(one, other, resamples=config.bootstrap, seed=config.seed).p_value
    return {"wilcoxon_p": wilcoxon(one, other).p_value, "sign_flip_p": flipped}


def _difference(name: str, resampled: Resampled, i: int) -> dict[str, Any]:
    ends = [say(resampled.low[i]), say(resampled.high[i])]
    return {f"{name}_difference": say(resampled.estimate[i]), f"{name}_ci95": ends}


def _adjust(pairs: Sequence[dict[str, Any]]) -> None:
    """Add the p-values adjusted over the pairs in which there is one."""
    for test in _TESTS:
        tested = [pair for pair in pairs if pair[test] is not None]
        for pair, adjusted in zip(tested, holm([pair[test] for pair in tested]), strict=True):
            pair[f"{test}_holm"] = float(adjusted)
        for pair in pairs:
            pair.setdefault(f"{test}_holm", None)


@dataclass(frozen=True, kw_only=True)
class _Resamples:
    """Per run, its dataset scores (D) and means over cases (V), all from the same resamples."""

    dataset: list[Resampled]
    per_case: list[Resampled]


def _resample(table: _Table, options: dict[str, Any]) -> _Resamples:
    return _Resamples(
        dataset=[bootstrap(columns, table.score, **options) for columns in table.columns],
        per_case=[bootstrap(mean_columns(values), mean_of_columns, **options) for values in table.values],
    )


def _entry(table: _Table, metric: str, pairs: Sequence[dict[str, dict[str, Any]]], drawn: _Resamples) -> dict[str, Any]:
    i, better, whole = table.metrics.index(metric), find_direction(metric), metric in table.whole
    entry: dict[str, Any] = {}
    if whole:
        d = table.whole.index(metric)
        entry["dataset"] = {run: say(one.estimate[d]) for run, one in zip(table.runs, drawn.dataset, strict=True)}
    entry["per_case"] = {run: say(one.estimate[i]) for run, one in zip(table.runs, drawn.per_case, strict=True)}
    entry |= {"pairs": [pair[metric] for pair in pairs], "better": better, "ranking": None}
    if better:
        parts, column = (drawn.dataset, table.whole.index(metric)) if whole else (drawn.per_case, i)
        sign = 1 if better == "higher" else -1
        values = np.array([sign * part.estimate[column] for part in parts])
        replicates = np.stack([sign * part.replicates[:, column] for part in parts], axis=1)
        entry["ranking"] = _describe_ranking(table.runs, rank_values(values, replicates))
        entry["ranked_by"] = "dataset" if whole else "per_case"
    return entry


def _describe_ranking(names: Sequence[str], ranking: Ranking) -> dict[str, Any]:
    return {
        "order": [names[m] for m in ranking.order],
        "ranks": {name: float(rank) for name, rank in zip(names, ranking.ranks, strict=True)},
        "rank_shares": {name: share.tolist() for name, share in zip(names, ranking.rank_shares, strict=True)},
        "stability": plain(ranking.stability),
    }


def _check_same(ordered: Mapping[str, Sequence[CaseRow]], margins: Mapping[str, ClassTotals]) -> None:
    """Refuse runs with different cases or references."""
    ids = {name: [row.case_id for row in rows] for name, rows in ordered.items()}
    every = sorted(set().union(*ids.values()))
    missing = {name: sorted(set(every) - set(mine)) for name, mine in ids.items()}
    problems = [
        expected("compare", "runs", "to have the same cases", f"{len(cases)} missing from {name!r}: {_list(cases)}")
        for name, cases in missing.items()
        if cases
    ]
    if not every:
        problems.append(expected("compare", "runs", "to hold a case", "none"))
    if problems:
        raise InputError(problems)
    first = next(iter(margins.values())).target
    for name, other in margins.items():
        differing = [every[i] for i in np.flatnonzero((other.target != first).any(axis=1))]
        if differing:
            given = f"{len(differing)} cases of {name!r} with another target: {_list(differing)}"
            problems.append(expected("compare", "runs", "to have the same references", given))
    if problems:
        raise InputError(problems)


def _list(cases: Sequence[str]) -> str:
    return ", ".join(cases[:_LISTED]) + (" ..." if len(cases) > _LISTED else "")
