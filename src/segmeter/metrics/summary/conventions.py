"""Computes the headline metrics of a run under one convention, or under all of them side by side.

Axis letters: N cases, R regions (classes or groups of classes).
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segmeter.checks import expected, require_name
from segmeter.errors import InputError
from segmeter.metrics.arrays import FloatArray, divide, json_number_or_inf, mean_defined
from segmeter.metrics.config.conventions import ALL, CONVENTIONS, OURS, Convention, Figure, differences
from segmeter.metrics.config.measures import SurfaceConfig
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.config.scores import SUFFIXES
from segmeter.metrics.measures.protocol import CaseMaps, build_measures
from segmeter.metrics.measures.row import make_row
from segmeter.metrics.pixels.overlap import ClassTotals
from segmeter.metrics.summary.scoreboard import Scoreboard, build_scoreboard


def score_maps_under(
    convention: str,
    cases: Iterable[CaseMaps],
    *,
    tolerances: Sequence[float] = (1.0,),
    groups: dict[str, tuple[str, ...]] | None = None,
) -> dict[str, float]:
    """Compute the headline metrics that a tool would print for some cases, from their counts and both kinds of surface.

    Parameters
    ----------
    convention
        The name of one of `CONVENTIONS`.
    cases
        One or more, with the same classes.
    tolerances
        Tolerances of the surface Dice, in the unit of the spacing.
    groups
        Name of a region to the names of its classes.

    Returns
    -------
    dict
        "mean_iou", "mean_dice", "hd95", "assd" and "nsd@<tolerance>", as far as the tool has them. NaN is undefined.

    Raises
    ------
    InputError
        The convention is unknown, there is no case, cases differ in their classes, or an option is out of range.
    """
    require_name("score_maps_under", "convention", convention, tuple(CONVENTIONS))
    cases = list(cases)
    if len({maps.spec for maps in cases}) != 1:
        rule = "to be one or more with the same classes"
        raise InputError(expected("score_maps_under", "cases", rule, f"{len(cases)} cases"))
    spec = cases[0].spec
    measure = SurfaceConfig(tolerances=tuple(tolerances), surface="both")
    config = MetricsConfig(measures=(measure,), groups=dict(groups or {}))
    measures = build_measures(config, spec)
    board = build_scoreboard([make_row(maps, measures) for maps in cases], spec, config)
    return figures_under(CONVENTIONS[convention], board)[0]


def compare_conventions(board: Scoreboard) -> dict[str, Any]:
    """Make the conventions' part of metrics.json: ours and the configured one, or all.

    Returns
    -------
    dict
        ``convention`` and ``convention_hash``. If another one than ours is configured, also ``headline`` and
        ``conventions``, a list of entries ``name, version, hash, tool, figures, differs, left_out, refused``.
    """
    configured = board.config.convention
    chosen = OURS if configured == ALL else CONVENTIONS[configured]
    facts: dict[str, Any] = {"convention": chosen.name, "convention_hash": chosen.hash}
    if configured == OURS.name:
        return facts
    entries = dict[str, dict[str, Any]]()
    groups = bool(board.config.groups)
    background = board.config.background
    for convention in CONVENTIONS.values() if configured == ALL else [OURS, chosen]:
        figures, left_out = figures_under(convention, board)
        surfaces = any(not name.startswith("mean_") for name in figures)
        entries[convention.name] = {
            "name": convention.name,
            "version": convention.version,
            "hash": convention.hash,
            "tool": convention.tool,
            "figures": {name: json_number_or_inf(value) for name, value in figures.items()},
            "differs": differences(convention, surfaces=surfaces, groups=groups, background=background),
            "left_out": {name: count for name, count in left_out.items() if count},
            "refused": list(convention.refused),
        }
    return facts | {"headline": entries[chosen.name]["figures"], "conventions": list(entries.values())}


def figures_under(convention: Convention, board: Scoreboard) -> tuple[dict[str, float], dict[str, int]]:
    """Compute the headline metrics under a convention, and how many values each mean leaves out.

    Pairs of case and class with exactly one empty mask can be left out. Metrics that the tool lacks are missing.
    """
    run = board.run
    values, left_out = dict[str, float](), dict[str, int]()
    background = board.config.background if convention.background is None else convention.background
    cases = run.totals(_regions(convention, board, background=background))
    for figure in ("iou", "dice"):
        if figure in convention.figures:
            scores = _overlap(convention, figure, cases)
            values[f"mean_{figure}"] = _aggregate(convention, figure, cases, scores)
            left_out[f"mean_{figure}"] = int((_one_empty(cases) & np.isnan(scores)).sum())
    background = True if convention.surface_background is None else convention.surface_background
    regions = _regions(convention, board, background=background)
    for name, figure, metric in _surface_columns(convention, board):
        measured = [region for region in regions if (metric, region, False) in run.measured]
        totals = run.totals(measured)
        distances = np.empty((len(run.case_ids), len(measured)))
        for r, region in enumerate(measured):
            distances[:, r] = run.measured[metric, region, False]
        if figure != "nsd":
            cost = convention.hd95_one_empty if figure == "hd95" else convention.assd_one_empty
            if cost is not None:
                distances[_one_empty(totals)] = cost
            distances[(totals.target == 0) & (totals.predicted == 0)] = convention.distance_both_empty
        values[name] = _mean_of_cases(convention, distances)
        left_out[name] = int((_one_empty(totals) & np.isnan(distances)).sum())
    return values, left_out


def _regions(convention: Convention, board: Scoreboard, *, background: bool) -> list[str]:
    """Return the regions that the means run over."""
    spec, groups = board.spec, board.config.groups
    if convention.groups and groups and not spec.is_multilabel:
        return list(groups)
    return list(spec.names if background or spec.is_multilabel else spec.names[1:])


def _overlap(convention: Convention, figure: Figure, totals: ClassTotals) -> FloatArray:
    """Compute IoU or Dice of every entry, with the convention's values for empty masks."""
    scores = totals.ratio(figure)
    both_empty = convention.iou_both_empty if figure == "iou" else convention.dice_both_empty
    scores[(totals.target == 0) & (totals.predicted == 0)] = both_empty
    scores[(totals.target == 0) & (totals.predicted > 0)] = convention.overlap_target_empty
    return scores


def _aggregate(convention: Convention, figure: Figure, cases: ClassTotals, scores: FloatArray) -> float:
    weights = cases.target.sum(axis=0) if convention.weighted else None
    if convention.aggregation == "pairs":
        return float(mean_defined(scores.reshape(-1)))
    if convention.aggregation in ("cases", "classes"):
        return _mean_of_cases(convention, scores, weights)
    all_axes: dict[str, int | tuple[int, int]] = {"dataset": 0, "pooled": (0, 1), "pooled_cases": 1}
    axes = all_axes[convention.aggregation]
    sums = cases.map(lambda part: np.atleast_1d(part.sum(axis=axes)))
    return _mean(_overlap(convention, figure, sums), weights)


def _mean_of_cases(convention: Convention, scores: FloatArray, weights: NDArray[Any] | None = None) -> float:
    """Average the defined values (N, R): over classes first, or over cases first, then over classes with weights."""
    by_class = convention.aggregation == "classes"
    return _mean(mean_defined(scores.T if by_class else scores), weights if by_class else None)


def _mean(scores: FloatArray, weights: NDArray[Any] | None) -> float:
    if weights is None:
        return float(mean_defined(scores))
    return float(divide((np.nan_to_num(scores) * weights).sum(), weights[~np.isnan(scores)].sum()))


def _surface_columns(convention: Convention, board: Scoreboard) -> list[tuple[str, Figure, str]]:
    """List name and kind of each headline metric of surfaces, with the measured metric that it is computed from."""
    suffix = SUFFIXES[convention.surface]
    hd95 = "hd95_pooled" if convention.hd95 == "pooled" else "hd95"
    assd = "masd" if convention.assd == "mean" else "assd"
    nsd = "nsd_mean" if convention.nsd == "mean" else "nsd"
    columns: list[tuple[str, Figure, str]] = [("hd95", "hd95", f"{hd95}{suffix}"), ("assd", "assd", f"{assd}{suffix}")]
    measured = dict.fromkeys(metric for metric, _, summed in board.run.measured if not summed)
    split_names = [metric.partition("@") for metric in measured]
    columns += [(f"nsd@{t}", "nsd", f"{name}@{t}") for name, at, t in split_names if at and name == f"{nsd}{suffix}"]
    return [column for column in columns if column[1] in convention.figures and column[2] in measured]


def _one_empty(totals: ClassTotals) -> NDArray[np.bool_]:
    """Tell where exactly one mask contains the region."""
    return np.asarray((totals.target == 0) != (totals.predicted == 0))
