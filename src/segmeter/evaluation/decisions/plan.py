"""Plans the number of cases from finished runs: one pilot, or the paired differences of two. No torch."""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from segmeter.checks import expected, nearest
from segmeter.data.files.refusals import known_place
from segmeter.errors import InputError
from segmeter.evaluation.compare import read_runs
from segmeter.metrics.arrays import FloatArray, divide, json_number
from segmeter.metrics.cases.stored import open_cases
from segmeter.metrics.cases.table import order_rows
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.config.scores import MEAN, is_overall
from segmeter.metrics.statistics.clusters import sum_by
from segmeter.metrics.statistics.columns import Columns, join_means, minus_means
from segmeter.metrics.statistics.planning import Pilot, measure_pilot, resample_smaller
from segmeter.metrics.summary.compare import lay_out
from segmeter.metrics.summary.needed_cases import Aims, PlanRow, make_plan, plan_row
from segmeter.metrics.summary.scoreboard import Key, Scoreboard, side_by_side
from segmeter.metrics.summary.slice_labels import order_labels

# Smaller data sets are drawn from the pilot: this many sizes, and this many data sets of each
_POINTS, _DRAWS = 4, 60
_MOST_DRAWN = 400  # The largest of them has at most this many units


def plan_runs(
    folders: Sequence[Path], config: MetricsConfig, aims: Aims, *, scores: Sequence[str] = ()
) -> dict[str, Any]:
    """Find how many cases each score needs, from one finished run or the paired differences of two.

    Parameters
    ----------
    folders
        One run folder of `eval` or `score`, or two on the same cases, the base first.
    config
        Bootstrap, interval, clusters, seed and slices, as for `compare`.
    aims
        The width, or the difference to detect.
    scores
        Names as in `compare`; "hd95" is short for "hd95/mean". By default the headline, and its metric for each class.

    Returns
    -------
    dict
        A `Plan`: one row for each slice, score and kind of score.

    Raises
    ------
    InputError
        The runs can't be compared, have no such score, or are more than two.
    DataError
        A folder is not a finished evaluation.
    """
    if len(folders) > 2:
        raise InputError(expected("plan", "runs", "to be one run, or [BASE,NEW]", f"{len(folders)} runs"))
    named, spec, config = read_runs(folders, config, least=1)
    tables = {name: order_rows("plan", open_cases([folder]), spec) for name, folder in named.items()}
    laid_out = lay_out(tables, spec, config, least=1)
    boards = [*laid_out.boards.values()]
    names = _choose(boards[0], scores)
    rows = _plan_slice(boards, names, aims, None)
    for by, labels in laid_out.labels.items():
        for value in order_labels(labels):
            members = [i for i, label in enumerate(labels) if label == value]
            slice_tables = {name: table.take(members) for name, table in tables.items()}
            part = lay_out(slice_tables, spec, config.replace(slice_by=()), least=1)
            rows += _plan_slice([*part.boards.values()], names, aims, {"by": by, "value": value})
    paths = {name: known_place(folder) for name, folder in named.items()}
    return make_plan(rows, paths, config.cluster, aims)


def _choose(board: Scoreboard, scores: Sequence[str]) -> list[str]:
    """Return the names of the scores to plan for."""
    if not scores:
        headline = board.headline
        metric = {"mean_iou": "iou", "mean_dice": "dice"}.get(headline, headline.partition("/")[0])
        return [headline, *(name for name in board.names if name.startswith(f"{metric}/") and not is_overall(name))]
    full_names = {name: name if name in board.names else f"{name}/{MEAN}" for name in scores}
    unknown = [name for name, full_name in full_names.items() if full_name not in board.names]
    if unknown:
        rule = "to name scores of the runs"
        raise InputError([expected("plan", "scores", rule, repr(name), nearest(name, board.names)) for name in unknown])
    return list(full_names.values())


def _plan_slice(
    boards: Sequence[Scoreboard], names: Sequence[str], aims: Aims, part: dict[str, str] | None
) -> list[PlanRow]:
    """Plan for every score of some cases, of one run or of the difference of two."""
    first = boards[0]
    whole = [name for name in dict.fromkeys(names) if name in first.dataset_names]
    means = [name for name in dict.fromkeys(names) if name in first.names_per_case]
    columns, statistic = _scores(boards, whole, means)
    count, n_units = len(first.run.case_ids), first.n_units
    sizes = [sum_by(first.units, n_units, _sizes(boards, name)) for name in whole]
    config = first.config
    effects = np.full(len(whole) + len(means), np.nan)
    with np.errstate(invalid="ignore"):
        pilots, drawn = measure_pilot(
            columns,
            statistic,
            [*sizes, *[None] * len(means)],
            resamples=config.bootstrap,
            clusters=first.clusters,
            seed=config.seed,
            interval=config.interval,
        )
        if first.clusters is not None:  # the design effect: the variance relative to that of independent cases
            independent = first.resample(columns, statistic, units=True)
            effects = divide(drawn.replicates.var(axis=0), independent.replicates.var(axis=0))
        units = np.stack([sum_by(first.units, n_units, column) for column in columns], axis=1).astype(np.float64)
        smaller = sorted({max(5, min(n_units, _MOST_DRAWN) * (i + 1) // _POINTS) for i in range(_POINTS)})
        ends = resample_smaller(units, statistic, smaller, draws=_DRAWS, seed=config.seed, interval=config.interval)
    rows = []
    for s, (kind, name) in enumerate([*(("dataset", name) for name in whole), *(("per_case", name) for name in means)]):
        points = _drawn_points(pilots[s], smaller, (ends[0][:, :, s], ends[1][:, :, s]), aims)
        row = plan_row(
            pilots[s],
            aims,
            points,
            score=name,
            kind=kind,
            n_cases=count,
            slice=part,
            design_effect=None if first.clusters is None else json_number(effects[s]),
        )
        rows.append(row)
    return sorted(rows, key=lambda row: names.index(row.score))


def _scores(
    boards: Sequence[Scoreboard], whole: Sequence[str], means: Sequence[str]
) -> tuple[Columns, Callable[[FloatArray], FloatArray]]:
    """Return columns of one run or two, and a function from their sums (R, C) to the scores or differences (R, S)."""
    keys: list[Key] = [*(("dataset", name) for name in whole), *(("per_case", name) for name in means)]
    if len(boards) == 1:
        columns, parts = boards[0].choose(keys)
        return columns, lambda sums: join_means(parts(sums))
    base, new = boards
    columns, scores = side_by_side(base.choose(keys, new), new.choose(keys, base))

    def difference(sums: FloatArray) -> FloatArray:
        before, after = scores(sums)
        return minus_means(after, before)

    return columns, difference


def _sizes(boards: Sequence[Scoreboard], name: str) -> FloatArray:
    """Return the weight (N,) of each case in a score of sums: its mean share of the sums in the score's denominator.

    These are the pixels of the class, or of each class if the score is a mean over classes; for a measure, each of its
    sums.
    """
    metric, _, region = name.partition("/")
    shares = list[FloatArray]()
    for board in boards:
        regions = board.mean_classes if region in ("", MEAN) else [region]
        sums = [column for (other, place), column in board.sums.items() if place in regions and other != metric]
        if name in board.measure_scores and sums:
            columns = [np.abs(column) for column in sums]
        elif metric == "pixel_accuracy":
            columns = [board.run.totals(board.run.regions[0]).total]
        else:
            totals = [board.run.totals(counted) for counted in regions]
            columns = [total.target + total.predicted - total.tp for total in totals]
        shares += [divide(column, np.full(len(column), column.sum())) for column in columns if column.sum() > 0]
    return np.mean(shares, axis=0) if shares else np.zeros(len(boards[0].run.case_ids))


def _drawn_points(
    pilot: Pilot, sizes: Sequence[int], ends: tuple[FloatArray, FloatArray], aims: Aims
) -> dict[int, tuple[float | None, float | None]]:
    """Compute median width and power of data sets that are drawn from the pilot, by their number of units."""
    points: dict[int, tuple[float | None, float | None]] = {}
    for size, low, high in zip(sizes, *ends, strict=True):
        finite = np.isfinite(low) & np.isfinite(high)
        if not finite.any() or not math.isfinite(pilot.estimate):
            continue
        power = None
        if aims.detect is not None:  # the pilot's difference is taken as true, and moved to the requested one
            zero = pilot.estimate - math.copysign(aims.detect, pilot.estimate)
            power = float(((low > zero) | (high < zero))[finite].mean())
        points[size] = (float(np.median((high - low)[finite])), power)
    return points


def points_table(plan: Mapping[str, Any]) -> pa.Table:
    """List the points of every curve, one row each."""
    points = []
    for row in plan["rows"]:
        part = row["slice"] or {"by": None, "value": None}
        key = {"score": row["score"], "kind": row["kind"], "slice_by": part["by"], "slice": part["value"]}
        points += [key | point for point in row["curve"]]
    return pa.Table.from_pylist(points)
