"""rows of several runs on the same cases -> paired differences, tests, ranking. Pure statistics."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from segmeter.checks import expected
from segmeter.errors import InputError
from segmeter.metrics.bootstrap import (
    Resampled,
    Statistic,
    bootstrap,
    mean_columns,
    mean_of_columns,
    sum_clusters,
)
from segmeter.metrics.config import MetricsConfig
from segmeter.metrics.describe import plain
from segmeter.metrics.intervals import Interval
from segmeter.metrics.overlap import FloatArray, Margins, score_margins
from segmeter.metrics.rows import CaseRow, order_rows, stack_margins
from segmeter.metrics.significance import holm, sign_flip, wilcoxon
from segmeter.metrics.summary import DEFAULT, PER_CASE, mean_classes
from segmeter.metrics.units import cluster_labels
from segmeter.vocabulary import ClassSpec

_LISTED = 8  # cases named in one message


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """Models ordered by a statistic where more is better, and how firm that order is.

    Parameters
    ----------
    order : (M,)
        Indices of the models, best first.
    ranks : (M,)
        1 is best; equals share the mean of their ranks.
    rank_shares : (M, M)
        ``[m, r]`` is the share of the resamples in which model m came r-th (0 is best); ties are shared out.
    stability
        Mean Kendall tau-b between the ranking and those of the resamples; 1 is never another order. NaN when undefined.
    """

    order: NDArray[np.int64]
    ranks: FloatArray
    rank_shares: FloatArray
    stability: float


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
        Background, bootstrap (at least 1), interval, cluster and seed.

    Returns
    -------
    dict
        ``{"n_cases", "runs", "metrics": {metric: {"dataset", "per_case", "pairs", "ranking"}}}``, plain values.
        ``pairs[i]["dataset_difference"]`` is first minus second. Tests are of the per-case values, two-sided, and
        ``*_holm`` is adjusted for all pairs of that metric. With ``config.cluster`` they are of each cluster's mean, as
        its cases do not speak for themselves. Cases in which one value is undefined are left out of a pair's tests and
        per-case difference, and counted.

    Raises
    ------
    InputError
        Fewer than two runs, other cases, or references that differ: such figures can't be compared.

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
    margins = {name: stack_margins(rows, spec) for name, rows in ordered.items()}
    _check_same(ordered, margins)
    options = {
        "resamples": config.bootstrap,
        "seed": config.seed,
        "clusters": cluster_labels([row.case_id for row in next(iter(ordered.values()))], config.cluster),
    }
    metrics = {metric: _compare_metric(metric, margins, spec, config, options) for metric in PER_CASE}
    return {"n_cases": len(next(iter(ordered.values()))), "runs": list(runs), "metrics": metrics}


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

    def difference(sums: FloatArray) -> FloatArray:
        return statistic(np.ascontiguousarray(sums[:, :width])) - statistic(np.ascontiguousarray(sums[:, width:]))

    return bootstrap(np.concatenate([first, second], axis=1), difference, interval=interval, **options)


def rank_models(columns: Sequence[NDArray[Any]], statistic: Statistic, **options: Any) -> Ranking:
    """Rank models by a statistic where more is better, and resample the cases to see how firm the order is.

    Parameters
    ----------
    columns : M arrays (N, C)
        One per model, row by row of the same case.
    statistic
        Column sums (R, C) to one value each (R, 1); an undefined one ranks last.
    options
        Passed to `bootstrap`: resamples, seed, clusters.

    Raises
    ------
    InputError
        Fewer than two models, or shapes that differ.
    """
    shapes = {part.shape for part in columns}
    if len(columns) < 2 or len(shapes) > 1:
        raise InputError(expected("rank_models", "columns", "to be two or more arrays of one shape", sorted(shapes)))

    def values(sums: FloatArray) -> FloatArray:
        parts = np.split(sums, len(columns), axis=1)
        return np.concatenate([statistic(np.ascontiguousarray(part)) for part in parts], axis=1)

    resampled = bootstrap(np.concatenate(list(columns), axis=1), values, interval="percentile", **options)
    ranks = _ranks(resampled.estimate[None])[0]
    drawn = _ranks(resampled.replicates)
    return Ranking(
        order=np.argsort(ranks, kind="stable"),
        ranks=ranks,
        rank_shares=_rank_shares(drawn),
        stability=_mean_tau(ranks, drawn),
    )


def _check_same(ordered: Mapping[str, Sequence[CaseRow]], margins: Mapping[str, Margins]) -> None:
    """Refuse runs that saw other cases or other references."""
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


def _compare_metric(
    metric: str, margins: Mapping[str, Margins], spec: ClassSpec, config: MetricsConfig, options: dict[str, Any]
) -> dict[str, Any]:
    classes = mean_classes(config, spec)

    def score(part: Margins) -> FloatArray:
        values: FloatArray = getattr(score_margins(part, task=spec.task, classes=classes), metric)
        return values

    def statistic(sums: FloatArray) -> FloatArray:
        return score(Margins.from_columns(sums))[:, None]

    columns = {name: part.columns() for name, part in margins.items()}
    values = {name: score(part) for name, part in margins.items()}
    pairs = []
    for first, second in combinations(margins, 2):
        dataset = paired_bootstrap(columns[first], columns[second], statistic, interval=config.interval, **options)
        tests = _test_pair(values[first], values[second], config, options)
        pairs.append({"first": first, "second": second} | _difference("dataset", dataset) | tests)
    for test in ("wilcoxon_p", "sign_flip_p"):
        for pair, adjusted in zip(pairs, holm([pair[test] for pair in pairs]), strict=True):
            pair[f"{test}_holm"] = float(adjusted)
    return {
        "dataset": {name: plain(statistic(part.sum(axis=0)[None])[0, 0]) for name, part in columns.items()},
        "per_case": {
            name: plain(mean_of_columns(mean_columns(v[:, None]).sum(axis=0)[None])[0, 0]) for name, v in values.items()
        },
        "pairs": pairs,
        "ranking": _describe_ranking(list(margins), rank_models(list(columns.values()), statistic, **options)),
    }


def _test_pair(first: FloatArray, second: FloatArray, config: MetricsConfig, options: dict[str, Any]) -> dict[str, Any]:
    undefined = np.isnan(first) | np.isnan(second)
    ours, theirs = (mean_columns(np.where(undefined, np.nan, part)[:, None]) for part in (first, second))
    mean = paired_bootstrap(ours, theirs, mean_of_columns, interval=config.interval, **options)
    one, other = (mean_of_columns(sum_clusters(part, options["clusters"]))[:, 0] for part in (ours, theirs))
    return _difference("per_case", mean) | {
        "wilcoxon_p": wilcoxon(one, other).p_value,
        "sign_flip_p": sign_flip(one, other, resamples=config.bootstrap, seed=config.seed).p_value,
        "n_used": int((~undefined).sum()),
        "n_undefined": int(undefined.sum()),
    }


def _difference(name: str, resampled: Resampled) -> dict[str, Any]:
    ends = [plain(resampled.low[0]), plain(resampled.high[0])]
    return {f"{name}_difference": plain(resampled.estimate[0]), f"{name}_ci95": ends}


def _describe_ranking(names: list[str], ranking: Ranking) -> dict[str, Any]:
    return {
        "order": [names[m] for m in ranking.order],
        "ranks": {name: float(rank) for name, rank in zip(names, ranking.ranks, strict=True)},
        "rank_shares": {name: share.tolist() for name, share in zip(names, ranking.rank_shares, strict=True)},
        "stability": plain(ranking.stability),
    }


def _ranks(values: FloatArray) -> FloatArray:
    """Ranks (R, M), 1 is the largest; equals share their mean rank, NaN ranks last."""
    ranks: FloatArray = stats.rankdata(-np.nan_to_num(values, nan=-np.inf, posinf=np.inf, neginf=-np.inf), axis=1)
    return ranks


def _rank_shares(ranks: FloatArray) -> FloatArray:
    """A mean rank of t equals covers t places; each place gets 1 / t."""
    models = ranks.shape[1]
    ties = (ranks[:, :, None] == ranks[:, None, :]).sum(axis=2)
    places = np.arange(1, models + 1)
    covers = np.abs(places - ranks[:, :, None]) <= (ties[:, :, None] - 1) / 2
    shares: FloatArray = (covers / ties[:, :, None]).mean(axis=0)
    return shares


def _mean_tau(ranks: FloatArray, drawn: FloatArray) -> float:
    """Kendall's tau-b of each resampled ranking with `ranks`, averaged where it is defined."""
    pairs = np.array(list(combinations(range(len(ranks)), 2)))
    fixed = np.sign(ranks[pairs[:, 0]] - ranks[pairs[:, 1]])
    moved = np.sign(drawn[:, pairs[:, 0]] - drawn[:, pairs[:, 1]])
    scale = np.sqrt((fixed != 0).sum() * (moved != 0).sum(axis=1))
    if not scale.any():
        return float("nan")
    return float((moved @ fixed)[scale > 0].dot(1 / scale[scale > 0]) / (scale > 0).sum())
