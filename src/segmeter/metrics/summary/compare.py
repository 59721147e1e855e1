"""Runs on the same cases are compared pair by pair: differences (new minus base), tests, and a ranking of all."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np

from segmeter.checks import expected, known_kind, shown
from segmeter.classes import ClassSpec
from segmeter.errors import ConfigError, InputError
from segmeter.metrics.arrays import FloatArray
from segmeter.metrics.cases.table import CaseRow, order_rows
from segmeter.metrics.cases.typed import RunColumns, class_regions, lay_out_run
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.config.requirements import Requirement, parse_requirements
from segmeter.metrics.statistics.bootstrap import Resampled, bootstrap_columns
from segmeter.metrics.statistics.clusters import cluster_labels
from segmeter.metrics.statistics.describe import minus, plain, say
from segmeter.metrics.statistics.lazy_columns import Columns, join_columns
from segmeter.metrics.statistics.paired_tests import holm, sign_flips, wilcoxon
from segmeter.metrics.summary.comparable import check_same_cases, check_same_spacing
from segmeter.metrics.summary.directions import find_direction, minus_means, name_change, split_means
from segmeter.metrics.summary.gates import decide, expand_requirements
from segmeter.metrics.summary.ranking import Drawn, Ranking, draw_scores
from segmeter.metrics.summary.scoreboard import Scoreboard, build_scoreboards, is_overall, paired_units
from segmeter.metrics.summary.slice_labels import hash_labels, order_labels, slice_labels
from segmeter.metrics.summary.slices import compare_slices, headlines
from segmeter.metrics.summary.summary import DEFAULT

SCHEMA = 2  # of compare.json; in schema 1 differences were first minus second
_GATE_RESAMPLES = 1000  # fewer leave the ends of an interval, and so a verdict, to chance
_TESTS = ("dataset_p", "wilcoxon_p", "sign_flip_p")


def compare_runs(
    runs: Mapping[str, Sequence[CaseRow]],
    spec: ClassSpec,
    config: MetricsConfig = DEFAULT,
    *,
    require: Sequence[str] = (),
) -> dict[str, Any]:
    """Compare runs on the same cases: each pair's difference with its interval and tests, and the ranking of all.

    Every difference is new minus base. Of each pair, the run that is given first is the base.

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
        What the new one of two runs must reach, such as "mean_iou >= base - 0.005".

    Returns
    -------
    dict
        ``{"n_cases", "runs", "metrics": {metric: entry}, "not_shared"}``, plain values. Metrics are mean_iou, mean_dice
        and pixel_accuracy; iou, dice, precision and recall of each class and group, as "iou/car"; and
        "<metric>/<class>" or "<metric>/mean" for each of the measures that all runs have; ``not_shared`` names the
        columns of some runs only. An entry has ``per_case`` (mean over cases, by run) and ``dataset`` (by run), where
        the metric has such scores, ``pairs``, ``better`` ("higher", "lower", or None where that is not known) and
        ``ranking`` (None without ``better``), which is by ``ranked_by``: "dataset", or "per_case" where there is no
        such score. A mean over cases is infinite as soon as one case is. Such means are ordered by the share of cases
        that are, and by the mean of the others where it is the same: the one with the larger share is larger by
        infinity. ``n_infinite`` of a pair, and ``infinite`` of the entry by run, count these cases.
        A pair has ``base`` and ``new``, the names of its runs. ``dataset_difference`` is new minus base,
        ``dataset_change`` names it ("better", "worse", "equal", or None without ``better``), and ``dataset_p`` says at
        which level its interval reaches 0. ``per_case_difference`` and ``per_case_change`` are of the means over cases.
        The other tests are of the per-case values; all are two-sided. ``*_holm`` is adjusted over all pairs
        and all metrics of one kind: those of all classes together, and those of single classes and groups. With
        ``config.cluster`` tests are of each cluster's mean, as its cases are not independent. Cases in which one value
        is undefined are left out of a pair's tests and per-case difference, and counted. Infinity is the text "inf";
        infinite differences leave out the sign-flip test, which compares means, and are the largest ones of Wilcoxon's.
        With ``config.slice_by`` there is ``slices``, an entry per pair ``base, new, by`` (see `compare_slices`),
        and ``slice_table``, where the facts are from, or None, and ``slice_hashes`` (see `hash_labels`);
        with `require` there is ``gate`` (see `decide`).

    Raises
    ------
    InputError
        Fewer than two runs, other cases, references that differ, or lengths by another spacing: such scores can't be
        compared. A case has no slice.
    ConfigError
        What is required can't be read, is about no score of both runs, or there are more than two, or fewer than 1000
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
    """What is compared of runs, as columns: once it is there, their rows are needed no more.

    Parameters
    ----------
    columns
        Name of a run to its cases.
    boards
        Name of a run to its scores.
    not_shared
        Columns of some runs only.
    labels
        The slice of each case, by each of ``config.slice_by``.
    required
        What the new one of two runs must reach.
    spec, config
        As for `compare_runs`.
    """

    columns: dict[str, RunColumns]
    boards: dict[str, Scoreboard]
    not_shared: list[str]
    labels: dict[str, list[str]]
    required: list[Requirement]
    spec: ClassSpec
    config: MetricsConfig


def lay_out(
    runs: Mapping[str, Sequence[CaseRow]], spec: ClassSpec, config: MetricsConfig, *, require: Sequence[str] = ()
) -> LaidOut:
    """Check that runs may be compared, and lay out what is; parameters and errors are those of `compare_runs`."""
    known_kind("compare", "config", config, MetricsConfig)
    known_kind("compare", "spec", spec, ClassSpec)
    if not isinstance(runs, Mapping) or not all(isinstance(name, str) for name in runs):
        raise InputError(expected("compare", "runs", "to map names to the rows of runs", shown(runs)))
    if len(runs) < 2 or config.bootstrap < 1:
        rule, given = "to be two or more, with a bootstrap", f"{len(runs)} runs, bootstrap {config.bootstrap}"
        raise InputError(expected("compare", "runs", rule, given))
    required = parse_requirements(require)
    if required:
        _check_gate(len(runs), config)
    columns = _columns(runs, spec, config)
    check_same_cases(columns)
    boards, not_shared = build_scoreboards(columns, spec, config)
    first = next(iter(boards.values()))
    check_same_spacing(columns, first.names)
    cluster_labels(first.case_ids, config.cluster)
    labels: dict[str, list[str]] = {}
    if config.slice_by:
        labels = slice_labels(order_rows("compare", next(iter(runs.values())), spec), spec, config)
    required = expand_requirements(required, first, {by: order_labels(each) for by, each in labels.items()})
    return LaidOut(
        columns=columns,
        boards=boards,
        not_shared=not_shared,
        labels=labels,
        required=required,
        spec=spec,
        config=config,
    )


def _columns(runs: Mapping[str, Sequence[CaseRow]], spec: ClassSpec, config: MetricsConfig) -> dict[str, RunColumns]:
    """The cases of each run as columns. Rows are read once, one run after the other, so that no two are there."""
    regions, found = class_regions(spec, config.groups), dict[str, RunColumns]()
    for name in runs:
        one = lay_out_run(order_rows("compare", runs[name], spec), spec, regions)
        first = next(iter(found.values()), one)
        found[name] = replace(one, case_ids=first.case_ids) if one.case_ids == first.case_ids else one
    return found


def compare_laid_out(given: LaidOut) -> dict[str, Any]:
    """Do the statistics of `compare_runs`, and return what it returns."""
    boards, labels, config = given.boards, given.labels, given.config
    first = next(iter(boards.values()))
    options = {
        "resamples": config.bootstrap,
        "seed": config.seed,
        "clusters": cluster_labels(first.case_ids, config.cluster),
    }
    metrics = first.names
    pairs = [_compare_pair(boards, *pair, config, options) for pair in combinations(boards, 2)]
    for overall in (True, False):
        _adjust([pair[metric] for pair in pairs for metric in metrics if is_overall(metric) == overall])
    drawn = draw_scores(list(boards.values()), **options)
    return {
        "n_cases": len(first.case_ids),
        "runs": list(boards),
        "metrics": {metric: _entry(boards, metric, pairs, drawn) for metric in metrics},
        "not_shared": given.not_shared,
        **(_slices(boards, given.spec, config, labels) if labels else {}),
        **({"gate": decide(list(boards.values()), given.required, labels, config)} if given.required else {}),
    }


def _check_gate(runs: int, config: MetricsConfig) -> None:
    """Refuse to decide about another number of runs than two, or by intervals whose ends are hardly drawn."""
    problems = []
    if runs != 2:
        problems.append(expected("compare", "runs", "to be [BASE,NEW] where `require` is given", f"{runs} runs"))
    if config.bootstrap < _GATE_RESAMPLES:
        rule, remedy = f"to be {_GATE_RESAMPLES} or more where `require` is given", "Fewer make intervals too narrow."
        problems.append(expected("compare", "metrics.bootstrap", rule, config.bootstrap, remedy))
    if problems:
        raise ConfigError(problems)


def _slices(
    boards: Mapping[str, Scoreboard], spec: ClassSpec, config: MetricsConfig, labels: Mapping[str, list[str]]
) -> dict[str, Any]:
    """Differences of each pair of runs in each slice, and which cases these are."""
    names, case_ids = headlines(next(iter(boards.values())), spec), next(iter(boards.values())).case_ids
    clusters = cluster_labels(case_ids, config.cluster)
    pairs = [
        {"base": one, "new": two, "by": compare_slices(boards[one], boards[two], names, labels, config, clusters)}
        for one, two in combinations(boards, 2)
    ]
    hashes = {by: hash_labels(case_ids, each) for by, each in labels.items()}
    return {"slices": pairs, "slice_table": config.slices, "slice_hashes": hashes}


def bootstrap_difference(
    base: Columns, new: Columns, subtract: Callable[[FloatArray, FloatArray], FloatArray], **options: Any
) -> Resampled:
    """Find the intervals of differences, new minus base, both on the same resampled cases.

    Parameters
    ----------
    base, new : (N, M)
        Columns of two runs, row by row of the same case.
    subtract
        Sums (R, M) of the new run's columns, and of the base's, to differences (R, S).
    options
        As for `bootstrap`.
    """
    width = base.width

    def difference(sums: FloatArray) -> FloatArray:
        return subtract(np.ascontiguousarray(sums[:, width:]), np.ascontiguousarray(sums[:, :width]))

    return bootstrap_columns(join_columns([base, new]), difference, **options)


def _compare_pair(
    boards: Mapping[str, Scoreboard], base: str, new: str, config: MetricsConfig, options: dict[str, Any]
) -> dict[str, dict[str, Any]]:
    """By metric: the differences of two runs, with intervals and tests."""
    old, now = boards[base], boards[new]
    flips = sign_flips(paired_units(old, now, options["clusters"]), resamples=config.bootstrap, seed=config.seed)
    ranked = [wilcoxon(*pair).p_value for pair in paired_units(old, now, options["clusters"])]
    drawn = {"interval": config.interval, **options}
    means = bootstrap_difference(
        old.means(now),
        now.means(old),
        lambda ours, theirs: minus_means(split_means(ours), split_means(theirs)),
        **drawn,
    )
    whole = bootstrap_difference(
        old.columns, now.columns, lambda ours, theirs: minus(old.score(ours), old.score(theirs)), test=True, **drawn
    )
    count = len(old.case_ids)
    found: dict[str, dict[str, Any]] = {name: {"base": base, "new": new} for name in old.names}
    for d, metric in enumerate(old.whole):
        found[metric] |= _difference("dataset", metric, whole, d) | {"dataset_p": plain(whole.p_of_zero[d])}
    for i, metric in enumerate(old.values):
        lost = int((np.isnan(old.values[metric]) | np.isnan(now.values[metric])).sum())
        found[metric] |= _difference("per_case", metric, means, i)
        found[metric] |= {"wilcoxon_p": ranked[i], "sign_flip_p": plain(flips[i])}
        found[metric] |= {"n_used": count - lost, "n_undefined": lost}
        infinite = {"base": int(np.isinf(old.values[metric]).sum()), "new": int(np.isinf(now.values[metric]).sum())}
        found[metric] |= {"n_infinite": infinite} if any(infinite.values()) else {}
    return found


def _difference(name: str, metric: str, resampled: Resampled, i: int) -> dict[str, Any]:
    value = resampled.estimate[i]
    return {
        f"{name}_difference": say(value),
        f"{name}_ci95": [say(resampled.low[i]), say(resampled.high[i])],
        f"{name}_change": name_change(metric, value),
    }


def _adjust(pairs: Sequence[dict[str, Any]]) -> None:
    """Add the p-values adjusted over all pairs that have one."""
    for test in _TESTS:
        tested = [pair for pair in pairs if pair.get(test) is not None]
        for pair, adjusted in zip(tested, holm([pair[test] for pair in tested]), strict=True):
            pair[f"{test}_holm"] = float(adjusted)
        for pair in pairs:
            if test in pair:
                pair.setdefault(f"{test}_holm", None)


def _entry(
    boards: Mapping[str, Scoreboard], metric: str, pairs: Sequence[dict[str, dict[str, Any]]], drawn: Drawn
) -> dict[str, Any]:
    """One metric's part of the result."""
    entry: dict[str, Any] = {}
    for kind, scores in (("per_case", drawn.per_case), ("dataset", drawn.dataset)):
        if metric in scores.names:
            values = scores.values(metric)[:, 0]
            entry[kind] = {run: say(value) for run, value in zip(boards, values, strict=True)}
    if metric in drawn.failing.names:
        entry["infinite"] = {run: int(np.isinf(board.values[metric]).sum()) for run, board in boards.items()}
    better = find_direction(metric)
    entry |= {"pairs": [pair[metric] for pair in pairs], "better": better, "ranking": None}
    if better:
        entry["ranking"] = _describe_ranking(list(boards), drawn.rank(metric, better))
        entry["ranked_by"] = "dataset" if "dataset" in entry else "per_case"
    return entry


def _describe_ranking(names: Sequence[str], ranking: Ranking) -> dict[str, Any]:
    return {
        "order": [names[m] for m in ranking.order],
        "ranks": {name: float(rank) for name, rank in zip(names, ranking.ranks, strict=True)},
        "rank_shares": {name: share.tolist() for name, share in zip(names, ranking.rank_shares, strict=True)},
        "stability": plain(ranking.stability),
    }
