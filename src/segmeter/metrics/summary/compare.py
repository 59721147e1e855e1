"""Compares runs on the same cases pair by pair: differences (new minus base), tests, and a ranking of all runs.

Axis letters: N cases, C columns that are added up, R sums (one per resample), B resamples, D scores of the data set, V
means over cases.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np

from segmeter.checks import expected, require_kind, shown
from segmeter.classes import ClassSpec
from segmeter.errors import ConfigError, InputError
from segmeter.metrics.arrays import FloatArray, IntArray, json_number, json_number_or_inf, minus
from segmeter.metrics.cases.run_columns import RunColumns, check_same_cases, check_same_spacing, lay_out_run
from segmeter.metrics.cases.table import CaseRow, order_rows
from segmeter.metrics.config.metrics import DEFAULT, MetricsConfig
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

SCHEMA = 2  # version of compare.json; in version 1, differences were first minus second
_GATE_RESAMPLES = 1000  # with fewer resamples, an interval's ends and so the verdict depend on chance
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
        Background, groups, slices, bootstrap (at least 1), interval, cluster and seed. If ``config.measures`` has the
        measures that the runs were measured with, their scores of the whole data set, such as PQ, are compared too.
    require
        Requirements for the new one of two runs, such as "mean_iou >= base - 0.005".

    Returns
    -------
    dict
        ``{"n_cases", "runs", "metrics": {metric: entry}, "not_shared"}``, plain values. Metrics are mean_iou, mean_dice
        and pixel_accuracy; iou, dice, precision and recall of each class and group, as "iou/car"; and
        "<metric>/<class>" or "<metric>/mean" for each of the measures that all runs have. ``not_shared`` lists the
        columns that only some runs have.

        An entry has ``per_case`` (mean over cases, by run) and ``dataset`` (by run), where the metric has such scores,
        ``pairs``, ``better`` ("higher", "lower", or None if that is not known) and ``ranking`` (None without
        ``better``). Runs are ranked by ``ranked_by``: "dataset", or "per_case" if there is no such score. A mean over
        cases is infinite if any case is. Such means are ordered by their share of infinite cases: the one with the
        larger share is larger by infinity. If the shares are equal, the mean of the other cases decides.
        ``n_infinite`` of a pair, and ``infinite`` of the entry by run, count these cases.

        A pair has ``base`` and ``new``, the names of its runs. ``dataset_difference`` is new minus base.
        ``dataset_change`` is "better", "worse", "equal", or None without ``better``. ``dataset_p`` is the level at
        which the interval of the difference reaches 0. ``per_case_difference`` and ``per_case_change`` compare the
        means over cases. The other tests compare the values per case; all tests are two-sided. ``*_holm`` is adjusted
        over all pairs and all metrics of one kind: those of all classes together, and those of single classes and
        groups. With ``config.cluster``, the tests take the mean of each cluster, as its cases are not independent.
        Cases in which one value is undefined are left out of a pair's tests and per-case difference, and counted.
        Infinity is the text "inf". If differences are infinite, there is no sign-flip test, which compares means, and
        they have the highest ranks in Wilcoxon's.

        With ``config.slice_by`` there are ``slices``, an entry per pair ``base, new, by`` (see `compare_slices`),
        ``slice_table``, the table of the facts or None, and ``slice_hashes`` (see `hash_labels`). With `require` there
        is ``gate`` (see `decide`).

    Raises
    ------
    InputError
        There are fewer than two runs, their cases or references differ, or lengths were measured by another spacing.
        A case has no slice.
    ConfigError
        A requirement can't be read, or names no score of both runs. There are more than two runs, or fewer than 1000
        resamples, to decide requirements by.

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
    """The columns of the runs to compare. The rows are no longer needed.

    Parameters
    ----------
    boards
        Name of a run to its scores.
    not_shared
        Columns that only some runs have.
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
    required = parse_requirements(require)
    problems = []
    if required and len(runs) != 2:
        problems.append(expected("compare", "runs", "to be [BASE,NEW] where `require` is given", f"{len(runs)} runs"))
    if required and config.bootstrap < _GATE_RESAMPLES:
        rule, remedy = f"to be {_GATE_RESAMPLES} or more where `require` is given", "Fewer make intervals too narrow."
        problems.append(expected("compare", "metrics.bootstrap", rule, config.bootstrap, remedy))
    if problems:
        raise ConfigError(problems)
    columns = dict[str, RunColumns]()
    for name in runs:  # one run after the other, so that the rows of two are never in memory together
        run = lay_out_run(order_rows("compare", runs[name], spec), spec, config.groups)
        first = next(iter(columns.values()), run)
        columns[name] = replace(run, case_ids=first.case_ids) if run.case_ids == first.case_ids else run
    check_same_cases(columns)
    boards, not_shared = build_scoreboards(columns, spec, config)
    board = next(iter(boards.values()))
    facts = {name: find_facts(name) for name in board.names}
    spaced = [name for name, fact in facts.items() if fact is None or fact.spaced]  # unknown scores may be lengths too
    check_same_spacing(columns, spaced)
    labels = slice_labels(board)
    required = expand_requirements(required, board, {by: order_labels(names) for by, names in labels.items()})
    return LaidOut(boards=boards, not_shared=not_shared, labels=labels, required=required)


def compare_laid_out(laid_out: LaidOut) -> dict[str, Any]:
    """Compute the statistics and the result of `compare_runs`."""
    boards, labels = laid_out.boards, laid_out.labels
    first = next(iter(boards.values()))
    pairs = list[dict[str, dict[str, Any]]]()
    run_scores = dict[str, FloatArray]()
    for base, new in combinations(boards, 2):
        differences, scores = _compare_pair(boards[base], boards[new], (base, new))
        pairs.append(differences)
        run_scores |= scores  # a run's scores are the same in each of its pairs
    for overall in (True, False):
        tested = [pair[metric] for pair in pairs for metric in first.names if is_overall(metric) == overall]
        for test in _TESTS:
            add_adjusted(tested, test)
    content = {
        "n_cases": len(first.run.case_ids),
        "runs": list(boards),
        "metrics": {metric: _entry(boards, metric, pairs, run_scores) for metric in first.names},
        "not_shared": laid_out.not_shared,
    }
    if labels:
        content["slices"] = [
            {"base": base, "new": new, "by": compare_slices(boards[base], boards[new], labels)}
            for base, new in combinations(boards, 2)
        ]
        content["slice_table"] = first.config.slices
        content["slice_hashes"] = {by: hash_labels(first.run.case_ids, names) for by, names in labels.items()}
    if laid_out.required:
        _, new_board = boards.values()
        content["gate"] = decide(first, new_board, laid_out.required, labels)
    return content


def _compare_pair(
    base: Scoreboard, new: Scoreboard, names: tuple[str, str]
) -> tuple[dict[str, dict[str, Any]], dict[str, FloatArray]]:
    """Find the differences of two runs by metric, with intervals and tests, all from one set of resamples.

    Returns
    -------
    dict
        Metric to its differences.
    dict
        Run to its scores (1 + B, D + 2 V) of all cases, then of the resamples: those of the data set, means over cases
        without infinite values, and the shares of infinite values.
    """
    keys, n_dataset = base.keys, len(base.dataset_names)
    means = keys[n_dataset:]
    shared = base.choose(keys, new), new.choose(keys, base)
    columns, score_choices = side_by_side(*shared, base.choose(means), new.choose(means))

    def score(sums: FloatArray) -> FloatArray:
        """Turn sums (R, C) into differences (D + V), then the base's scores and the new run's, (D + 2 V) each."""
        base_shared, new_shared, base_means, new_means = score_choices(sums)
        parts = [minus_means(new_shared, base_shared)]
        for shared_scores, own_means in ((base_shared, base_means), (new_shared, new_means)):
            parts += [shared_scores[1, :, :n_dataset], own_means[1], own_means[0]]
        return np.concatenate(parts, axis=1)

    resampled = base.resample(columns, score, test=True)
    pairs: dict[str, dict[str, Any]] = {name: {"base": names[0], "new": names[1]} for name in base.names}
    for d, metric in enumerate(base.dataset_names):
        pairs[metric] |= _difference("dataset", metric, resampled, d) | {
            "dataset_p": json_number(resampled.p_of_zero[d])
        }
    for v, metric in enumerate(base.names_per_case):
        both = base.values(metric), new.values(metric)
        undefined = np.isnan(both[0]) | np.isnan(both[1])
        tested = [values_of_units(np.where(undefined, np.nan, values), base.clusters) for values in both]
        facts = find_facts(metric)
        infinite = [int(np.isinf(values).sum()) for values in both] if facts is None or facts.infinite else []
        pair = pairs[metric]
        pair |= _difference("per_case", metric, resampled, n_dataset + v)
        pair |= {"wilcoxon_p": wilcoxon(*tested).p_value, "sign_flip_p": None}
        if not np.isinf(minus(*tested)).any():  # the sign-flip test compares means
            config = base.config
            pair["sign_flip_p"] = sign_flip(*tested, resamples=config.bootstrap, seed=config.seed).p_value
        pair |= {"n_used": int((~undefined).sum()), "n_undefined": int(undefined.sum())}
        pair |= {"n_infinite": dict(zip(("base", "new"), infinite, strict=True))} if any(infinite) else {}
    scores = np.concatenate([resampled.estimate[None], resampled.replicates])[:, len(keys) :]
    return pairs, dict(zip(names, np.split(scores, 2, axis=1), strict=True))


def values_of_units(values: FloatArray, clusters: IntArray | None) -> FloatArray:
    """Return the value of each independent unit: per case (N,), or the mean over the cases of each cluster."""
    if clusters is None:
        return values
    count = int(clusters.max()) + 1
    columns = mean_columns(values[:, None]).T
    return mean_of_columns(np.stack([sum_by(clusters, count, column) for column in columns], axis=1))[:, 0]


def _difference(kind: str, metric: str, resampled: Resampled, index: int) -> dict[str, Any]:
    value = resampled.estimate[index]
    return {
        f"{kind}_difference": json_number_or_inf(value),
        f"{kind}_ci95": resampled.ends(index),
        f"{kind}_change": name_change(metric, value),
    }


def _entry(
    boards: Mapping[str, Scoreboard],
    metric: str,
    pairs: Sequence[dict[str, dict[str, Any]]],
    run_scores: Mapping[str, FloatArray],
) -> dict[str, Any]:
    """Make the part of the result for one metric. `run_scores` has the scores of each run, from `_compare_pair`."""
    first = next(iter(boards.values()))
    n_dataset, n_means = len(first.dataset_names), len(first.names_per_case)
    entry = dict[str, Any]()
    if metric in first.names_per_case:
        column = n_dataset + first.names_per_case.index(metric)
        scores = np.stack([run_scores[run][:, [n_means + column, column]] for run in boards], axis=1)
        means = join_means(scores[0].T)
        entry["per_case"] = {run: json_number_or_inf(mean) for run, mean in zip(boards, means, strict=True)}
        if np.isinf(means).any():
            entry["infinite"] = {run: int(np.isinf(board.values(metric)).sum()) for run, board in boards.items()}
    if metric in first.dataset_names:
        scores = np.stack([run_scores[run][:, [first.dataset_names.index(metric)]] for run in boards], axis=1)
        entry["dataset"] = {run: json_number_or_inf(score) for run, score in zip(boards, scores[0, :, 0], strict=True)}
    better = find_direction(metric)
    entry |= {"pairs": [pair[metric] for pair in pairs], "better": better, "ranking": None}
    if better:
        sign = 1 if better == "higher" else -1
        names = list(boards)
        ranking = rank_values(sign * scores[0], sign * scores[1:])
        entry["ranking"] = {
            "order": [names[m] for m in ranking.order],
            "ranks": dict(zip(names, ranking.ranks.tolist(), strict=True)),
            "rank_shares": dict(zip(names, ranking.rank_shares.tolist(), strict=True)),
            "stability": json_number(ranking.stability),
        }
        entry["ranked_by"] = "dataset" if "dataset" in entry else "per_case"
    return entry
