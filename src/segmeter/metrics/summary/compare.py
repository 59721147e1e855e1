"""Compares runs on the same cases pair by pair: differences (new minus base), tests, and a ranking of all runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np

from segmeter.checks import expected, require_kind, shown
from segmeter.classes import ClassSpec
from segmeter.errors import ConfigError, InputError
from segmeter.metrics.arrays import FloatArray, IntArray, minus, plain, say
from segmeter.metrics.cases.table import CaseRow, order_rows
from segmeter.metrics.cases.typed import RunColumns, check_same_cases, check_same_spacing, lay_out_run
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.config.scores import (
    Requirement,
    find_direction,
    find_facts,
    is_overall,
    name_change,
    parse_requirements,
)
from segmeter.metrics.statistics.bootstrap import Resampled
from segmeter.metrics.statistics.clusters import sum_by
from segmeter.metrics.statistics.columns import join_means, mean_columns, mean_of_columns, minus_means
from segmeter.metrics.statistics.paired_tests import add_adjusted, rank_values, sign_flip, wilcoxon
from segmeter.metrics.summary.gates import decide, expand_requirements
from segmeter.metrics.summary.scoreboard import Scoreboard, build_scoreboards, side_by_side
from segmeter.metrics.summary.slice_labels import hash_labels, order_labels, slice_labels
from segmeter.metrics.summary.slices import compare_slices
from segmeter.metrics.summary.summarise import DEFAULT

SCHEMA = 2  # of compare.json; in schema 1 differences were first minus second
_GATE_RESAMPLES = 1000  # fewer leave an interval's ends, and so the verdict, to chance
_TESTS = ("dataset_p", "wilcoxon_p", "sign_flip_p")


def compare_runs(
    runs: Mapping[str, Sequence[CaseRow]],
    spec: ClassSpec,
    config: MetricsConfig = DEFAULT,
    *,
    require: Sequence[str] = (),
) -> dict[str, Any]:
    """Compare runs on the same cases: each pair's difference with its interval and tests, and the ranking of all.

    Every difference is new minus base. The first run of each pair is the base.

    Parameters
    ----------
    runs
        Name of a run to its rows; two or more, the base first.
    spec
        The classes of all runs.
    config
        Background, groups, slices, bootstrap (at least 1), interval, cluster and seed. With ``config.measures``, as the
        runs were measured by, scores of the whole data set that measures give, such as PQ, are compared too.
    require
        Requirements for the new one of two runs, such as "mean_iou >= base - 0.005".

    Returns
    -------
    dict
        ``{"n_cases", "runs", "metrics": {metric: entry}, "not_shared"}``, plain values. Metrics are mean_iou, mean_dice
        and pixel_accuracy; iou, dice, precision and recall of each class and group, as "iou/car"; and
        "<metric>/<class>" or "<metric>/mean" for each of the measures that all runs have; ``not_shared`` names the
        columns of some runs only. An entry has ``per_case`` (mean over cases, by run) and ``dataset`` (by run), where
        the metric has such scores, ``pairs``, ``better`` ("higher", "lower", or None where that is not known) and
        ``ranking`` (None without ``better``), which is by ``ranked_by``: "dataset", or "per_case" where there is no
        such score. A mean over cases is infinite if any case is. Such means are ordered by their share of infinite
        cases: the one with the larger share is larger by infinity. If the shares are equal, the mean of the other cases
        decides. ``n_infinite`` of a pair, and ``infinite`` of the entry by run, count these cases. A pair has ``base``
        and ``new``, the names of its runs. ``dataset_difference`` is new minus base, ``dataset_change`` names it
        ("better", "worse", "equal", or None without ``better``), and ``dataset_p`` says at which level its interval
        reaches 0. ``per_case_difference`` and ``per_case_change`` are of the means over cases. The other tests are of
        the per-case values; all are two-sided. ``*_holm`` is adjusted over all pairs and all metrics of one kind: those
        of all classes together, and those of single classes and groups. With ``config.cluster`` tests are of each
        cluster's mean, as its cases are not independent. Cases in which one value is undefined are left out of a pair's
        tests and per-case difference, and counted. Infinity is the text "inf"; infinite differences leave out the
        sign-flip test, which compares means, and are the largest ones of Wilcoxon's. With ``config.slice_by`` there is
        ``slices``, an entry per pair ``base, new, by`` (see `compare_slices`), and ``slice_table``, where the facts are
        from, or None, and ``slice_hashes`` (see `hash_labels`); with `require` there is ``gate`` (see `decide`).

    Raises
    ------
    InputError
        Fewer than two runs, other cases, references that differ, or lengths by another spacing: such scores can't be
        compared. A case has no slice.
    ConfigError
        A requirement can't be read or is about no score of both runs, there are more than two runs, or fewer than 1000
        resamples to decide by.

    Examples
    --------
    >>> spec = ClassSpec(task="binary", names=("ground", "cell"), colours=((0, 0, 0), (255, 255, 255)))
    >>> def run(*missed):  # pixels of a cell of 9 that each case misses
    ...     counts = [np.array([[90, 1], [m, 9 - m]]) for m in missed]
    ...     return [CaseRow(case_id=str(i), height=10, width=10, counts=table) for i, table in enumerate(counts)]
    >>> found = compare_runs({"old": run(2, 2, 3), "new": run(0, 1, 2)}, spec, MetricsConfig(bootstrap=500))
    >>> pair = found["metrics"]["mean_iou"]["pairs"][0]
    >>> pair["dataset_difference"] > 0, pair["dataset_change"]
    (True, 'better')
    """
    return compare_laid_out(lay_out(runs, spec, config, require=require))


@dataclass(frozen=True, kw_only=True)
class LaidOut:
    """The columns of the runs to compare, after which the rows can be released.

    Parameters
    ----------
    boards
        Name of a run to its scores.
    not_shared
        Columns of some runs only.
    labels
        The slice of each case, by each of ``config.slice_by``.
    required
        Requirements for the new one of two runs.
    """

    boards: dict[str, Scoreboard]
    not_shared: list[str]
    labels: dict[str, list[str]]
    required: list[Requirement]


def lay_out(
    runs: Mapping[str, Sequence[CaseRow]],
    spec: ClassSpec,
    config: MetricsConfig,
    *,
    require: Sequence[str] = (),
    least: int = 2,
) -> LaidOut:
    """Check that `least` runs or more can be compared, and lay out their columns; otherwise as `compare_runs`."""
    require_kind("compare", "config", config, MetricsConfig)
    require_kind("compare", "spec", spec, ClassSpec)
    if not isinstance(runs, Mapping) or not all(isinstance(name, str) for name in runs):
        raise InputError(expected("compare", "runs", "to map names to the rows of runs", shown(runs)))
    if len(runs) < least or config.bootstrap < 1:
        rule, given = "to be two or more, with a bootstrap", f"{len(runs)} runs, bootstrap {config.bootstrap}"
        raise InputError(expected("compare", "runs", rule, given))
    required, problems = parse_requirements(require), []
    if required and len(runs) != 2:
        problems.append(expected("compare", "runs", "to be [BASE,NEW] where `require` is given", f"{len(runs)} runs"))
    if required and config.bootstrap < _GATE_RESAMPLES:
        rule, remedy = f"to be {_GATE_RESAMPLES} or more where `require` is given", "Fewer make intervals too narrow."
        problems.append(expected("compare", "metrics.bootstrap", rule, config.bootstrap, remedy))
    if problems:
        raise ConfigError(problems)
    columns = dict[str, RunColumns]()
    for name in runs:  # one run after the other, so that the rows of two are never in memory together
        one = lay_out_run(order_rows("compare", runs[name], spec), spec, config.groups)
        first = next(iter(columns.values()), one)
        columns[name] = replace(one, case_ids=first.case_ids) if one.case_ids == first.case_ids else one
    check_same_cases(columns)
    boards, not_shared = build_scoreboards(columns, spec, config)
    board = next(iter(boards.values()))
    facts = {name: find_facts(name) for name in board.names}
    check_same_spacing(columns, [name for name, known in facts.items() if known is None or known.spaced])  # or may be
    labels = slice_labels(board)
    required = expand_requirements(required, board, {by: order_labels(each) for by, each in labels.items()})
    return LaidOut(boards=boards, not_shared=not_shared, labels=labels, required=required)


def compare_laid_out(given: LaidOut) -> dict[str, Any]:
    """Compute the statistics and the result of `compare_runs`."""
    boards, labels = given.boards, given.labels
    first = next(iter(boards.values()))
    pairs, drawn = list[dict[str, dict[str, Any]]](), dict[str, FloatArray]()
    for base, new in combinations(boards, 2):
        compared, scores = _compare_pair(boards[base], boards[new], (base, new))
        pairs.append(compared)
        drawn |= scores  # the same in every pair
    for overall in (True, False):
        tested = [pair[metric] for pair in pairs for metric in first.names if is_overall(metric) == overall]
        for test in _TESTS:
            add_adjusted(tested, test)
    found = {
        "n_cases": len(first.run.case_ids),
        "runs": list(boards),
        "metrics": {metric: _entry(boards, metric, pairs, drawn) for metric in first.names},
        "not_shared": given.not_shared,
    }
    if labels:
        found["slices"] = [
            {"base": base, "new": new, "by": compare_slices(boards[base], boards[new], labels)}
            for base, new in combinations(boards, 2)
        ]
        found["slice_table"] = first.config.slices
        found["slice_hashes"] = {by: hash_labels(first.run.case_ids, each) for by, each in labels.items()}
    if given.required:
        _, new_board = boards.values()
        found["gate"] = decide(first, new_board, given.required, labels)
    return found


def _compare_pair(
    old: Scoreboard, now: Scoreboard, names: tuple[str, str]
) -> tuple[dict[str, dict[str, Any]], dict[str, FloatArray]]:
    """Find the differences of two runs by metric, with intervals and tests, all from one set of resamples.

    Returns
    -------
    dict
        Metric to its differences.
    dict
        Run to its scores (1 + B, D + 2 V) of all cases, then of the resamples: those of the data set, means over cases
        without infinite values, and the shares of these.
    """
    keys, n_whole = old.keys, len(old.whole)
    means = keys[n_whole:]
    paired = old.choose(keys, now), now.choose(keys, old)
    columns, scores = side_by_side(*paired, old.choose(means), now.choose(means))

    def score(sums: FloatArray) -> FloatArray:
        """Turn sums (R, C) into differences (D + V), then the base's scores and the new run's, (D + 2 V) each."""
        *compared, base_means, new_means = scores(sums)
        parts = [minus_means(compared[1], compared[0])]
        for both, own in zip(compared, (base_means, new_means), strict=True):
            parts += [both[1, :, :n_whole], own[1], own[0]]
        return np.concatenate(parts, axis=1)

    drawn = old.resample(columns, score, test=True)
    found: dict[str, dict[str, Any]] = {name: {"base": names[0], "new": names[1]} for name in old.names}
    for d, metric in enumerate(old.whole):
        found[metric] |= _difference("dataset", metric, drawn, d) | {"dataset_p": plain(drawn.p_of_zero[d])}
    for i, metric in enumerate(old.per_case):
        values = old.values(metric), now.values(metric)
        undefined = np.isnan(values[0]) | np.isnan(values[1])
        pair = [values_of_units(np.where(undefined, np.nan, each), old.clusters) for each in values]
        facts = find_facts(metric)
        infinite = [int(np.isinf(each).sum()) for each in values] if facts is None or facts.infinite else []
        found[metric] |= _difference("per_case", metric, drawn, n_whole + i)
        found[metric] |= {"wilcoxon_p": wilcoxon(*pair).p_value, "sign_flip_p": None}
        if not np.isinf(minus(*pair)).any():  # it compares means
            config = old.config
            found[metric]["sign_flip_p"] = sign_flip(*pair, resamples=config.bootstrap, seed=config.seed).p_value
        found[metric] |= {"n_used": int((~undefined).sum()), "n_undefined": int(undefined.sum())}
        found[metric] |= {"n_infinite": dict(zip(("base", "new"), infinite, strict=True))} if any(infinite) else {}
    every = np.concatenate([drawn.estimate[None], drawn.replicates])[:, len(keys) :]
    return found, dict(zip(names, np.split(every, 2, axis=1), strict=True))


def values_of_units(values: FloatArray, clusters: IntArray | None) -> FloatArray:
    """Return the value of each independent unit: per case (N,), or the mean over the cases of each cluster."""
    if clusters is None:
        return values
    count, columns = int(clusters.max()) + 1, mean_columns(values[:, None]).T
    return mean_of_columns(np.stack([sum_by(clusters, count, one) for one in columns], axis=1))[:, 0]


def _difference(name: str, metric: str, resampled: Resampled, place: int) -> dict[str, Any]:
    value = resampled.estimate[place]
    return {
        f"{name}_difference": say(value),
        f"{name}_ci95": resampled.ends(place),
        f"{name}_change": name_change(metric, value),
    }


def _entry(
    boards: Mapping[str, Scoreboard],
    metric: str,
    pairs: Sequence[dict[str, dict[str, Any]]],
    drawn: Mapping[str, FloatArray],
) -> dict[str, Any]:
    """Make the part of the result for one metric."""
    board, entry = next(iter(boards.values())), dict[str, Any]()
    n_whole, n_means = len(board.whole), len(board.per_case)
    if metric in board.per_case:
        mean = n_whole + board.per_case.index(metric)
        scores = np.stack([drawn[run][:, [n_means + mean, mean]] for run in boards], axis=1)
        means = join_means(scores[0].T)
        entry["per_case"] = {run: say(mean) for run, mean in zip(boards, means, strict=True)}
        if np.isinf(means).any():
            entry["infinite"] = {run: int(np.isinf(each.values(metric)).sum()) for run, each in boards.items()}
    if metric in board.whole:
        scores = np.stack([drawn[run][:, [board.whole.index(metric)]] for run in boards], axis=1)
        entry["dataset"] = {run: say(score) for run, score in zip(boards, scores[0, :, 0], strict=True)}
    better = find_direction(metric)
    entry |= {"pairs": [pair[metric] for pair in pairs], "better": better, "ranking": None}
    if better:
        sign, names = 1 if better == "higher" else -1, list(boards)
        ranking = rank_values(sign * scores[0], sign * scores[1:])
        entry["ranking"] = {
            "order": [names[m] for m in ranking.order],
            "ranks": dict(zip(names, ranking.ranks.tolist(), strict=True)),
            "rank_shares": dict(zip(names, ranking.rank_shares.tolist(), strict=True)),
            "stability": plain(ranking.stability),
        }
        entry["ranked_by"] = "dataset" if "dataset" in entry else "per_case"
    return entry
