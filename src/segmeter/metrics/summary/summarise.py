"""Summarises the cases of a run as metrics.json (schema 1)."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from segmeter.checks import expected
from segmeter.classes import ClassSpec
from segmeter.errors import InputError
from segmeter.metrics.arrays import FloatArray, IntArray, json_number, json_number_or_inf
from segmeter.metrics.cases.run_columns import RunColumns, divide_terms
from segmeter.metrics.cases.table import CaseRow, order_rows
from segmeter.metrics.config.metrics import DEFAULT, MetricsConfig, check_metrics
from segmeter.metrics.config.scores import MEAN, find_facts
from segmeter.metrics.pixels.overlap import AGGREGATES, RATIOS
from segmeter.metrics.statistics.clusters import effective_units, sum_by, warn_of_few
from segmeter.metrics.statistics.columns import count_pools, join_means
from segmeter.metrics.summary.conventions import compare_conventions
from segmeter.metrics.summary.scoreboard import PER_CASE, Key, Scoreboard, build_scoreboard
from segmeter.metrics.summary.slices import summarise_slices

SCHEMA = 1

_RESAMPLED = ("iou", "dice")  # the scores of a class or group that get intervals


def summarise(rows: Sequence[CaseRow], spec: ClassSpec, config: MetricsConfig = DEFAULT) -> dict[str, Any]:
    """Summarise the rows of a run; every value is plain, and undefined is None, never 0.

    Means over classes run over all classes, background included, unless ``config.background`` is false; a binary task
    has two classes too, and its object is the second of ``per_class``. ``mean_classes`` names them in the result.
    ``dataset`` sums the counts of all cases, scores them, and takes the mean over classes. ``per_case`` scores each
    case, takes its mean over the classes defined in it, and then the mean over cases. ``invalid``, if it is counted,
    has the pixels of each target class whose prediction is no class. ``std`` divides by n - 1, and ``std_population``
    by n. Every ``ci95`` comes from the same resamples of the cases.

    ``measures`` is there if measures were requested: ``{metric: {class: entry}}``, with an entry per class and group.
    The entry named "mean" takes, in each case, the mean over the classes of ``mean_classes`` that are defined in it. An
    entry holds ``mean, median, std, std_population`` over the ``n_used`` cases with a value, ``n_undefined`` cases
    without one, and ``n_penalised``: the cases in which exactly one mask contains the class, whatever the penalty is. A
    metric of the whole data set, from sums over cases, is the entry's ``dataset``. Its "mean" is over the classes'
    values, and numbers of objects (tp, fp, fn) have none. Infinity is the text "inf", as JSON has no such
    number. ``measure_settings`` has the settings of the measures, and ``units`` the unit of each metric that is a
    length. ``headline_score`` names the score that the run is judged by. ``slices`` is there with ``config.slice_by``,
    see `summarise_slices`.

    Parameters
    ----------
    rows
        One per case, in any order: the result does not depend on it.
    spec
        The classes.
    config
        Background, groups of classes, intervals.

    Returns
    -------
    dict
        metrics.json, schema 1.

    Raises
    ------
    InputError
        No rows, a case twice, counts that do not fit `spec`, or a case id that ``config.cluster`` does not match.
    ConfigError
        ``config.groups`` names a class that `spec` does not have.
    """
    check_metrics(config, spec)
    rows = order_rows("summarise", rows, spec)
    if not rows:
        raise InputError(expected("summarise", "rows", "to hold a case", "none"))
    board = build_scoreboard(rows, spec, config)
    run, effective = board.run, count_effective(board)
    averaged = [*PER_CASE, *(f"{name}/{region}" for name in _RESAMPLED for region in run.regions)]
    of_dataset = [*AGGREGATES, *(f"{name}/{region}" for name in RATIOS for region in run.regions)]
    keys: list[Key] = [("dataset", name) for name in of_dataset if name.partition("/")[0] in (*AGGREGATES, *_RESAMPLED)]
    measure_scores, measured = (board.measure_scores, [*map("/".join, board.measured)]) if config.measures else ([], [])
    keys += [*(("dataset", name) for name in measure_scores), *(("per_case", name) for name in (*averaged, *measured))]
    of_dataset += measure_scores
    ends: dict[Key, list[float | str | None]] = {}
    if config.bootstrap:
        columns, score = board.choose(keys)
        resampled = board.resample(columns, lambda sums: join_means(score(sums)))
        ends = {key: resampled.ends(index) for index, key in enumerate(keys)}
    dataset = dict(zip(of_dataset, board.score(board.columns.sums()[None], of_dataset)[0], strict=True))
    undefined = int(sum(np.isnan(dataset[f"iou/{region}"]) for region in board.mean_classes))
    means = {name: _describe(board.values(name)) | {"ci95": ends.get(("per_case", name))} for name in averaged}
    regions = {
        region: {
            **{name: json_number(dataset[f"{name}/{region}"]) for name in RATIOS},
            "support": int(target.sum(dtype=np.int64)),
            "n_effective": effective[region],
            "ci95": {name: ends.get(("dataset", f"{name}/{region}")) for name in _RESAMPLED},
            "per_case": {name: means[f"{name}/{region}"] for name in _RESAMPLED},
        }
        for region, target in zip(run.regions, run.region_totals.target.T, strict=True)
    }
    return {
        "schema": SCHEMA,
        **compare_conventions(board),
        "headline_score": board.headline,
        **spec.meaning,
        "n_cases": len(rows),
        "mean_classes": board.mean_classes,
        "confusion_matrix": None if spec.is_multilabel else run.counts[:, : spec.num_classes].tolist(),
        **({"invalid": dict(zip(spec.names, run.counts[:, -1].tolist(), strict=True))} if spec.count_invalid else {}),
        **({"confusion_matrices": run.counts.tolist()} if spec.is_multilabel else {}),
        "dataset": {name: json_number(dataset[name]) for name in AGGREGATES} | {"n_classes_undefined": undefined},
        "dataset_ci95": {name: ends.get(("dataset", name)) for name in AGGREGATES},
        "per_class": {name: regions[name] for name in spec.names},
        "per_group": {name: {"classes": list(classes)} | regions[name] for name, classes in config.groups.items()},
        "per_case": {name: means[name] for name in PER_CASE},
        **(_measured(board, dataset, ends) if config.measures else {}),
        **({"slices": summarise_slices(board)} if config.slice_by else {}),
        "loss": _describe_loss(run),
        "bootstrap": note_resampling(board, effective),
    }


def _describe(values: FloatArray) -> dict[str, Any]:
    """Return mean, standard deviations and number of the defined values; infinite ones have no spread."""
    used = values[~np.isnan(values)]
    finite = bool(np.isfinite(used).all())
    return {
        "mean": json_number_or_inf(used.mean()) if used.size else None,
        "std": json_number_or_inf(used.std(ddof=1)) if used.size > 1 and finite else None,
        "std_population": json_number_or_inf(used.std()) if used.size and finite else None,
        "n_used": int(used.size),
        "n_undefined": int(values.size - used.size),
    }


def _measured(board: Scoreboard, dataset: Mapping[str, float], ends: Mapping[Key, list[Any]]) -> dict[str, Any]:
    """Return the results of the measures, with the settings that a comparison of runs needs."""
    one_empty = (board.run.region_totals.target > 0) != (board.run.region_totals.predicted > 0)
    penalised = dict(zip(board.run.regions, one_empty.T, strict=True))
    by_class = [penalised[region] for region in {region for _, region in board.measured} & set(board.mean_classes)]
    penalised[MEAN] = np.any(by_class, axis=0) if by_class else np.zeros(len(board.run.case_ids), bool)
    measures: dict[str, dict[str, dict[str, Any]]] = {}
    for (metric, region), values in board.measured.items():
        used = values[~np.isnan(values)]
        entry = _describe(values) | {"median": json_number_or_inf(np.median(used)) if used.size else None}
        entry["n_penalised"] = int(penalised.get(region, np.isinf(values)).sum())
        entry["ci95"] = ends.get(("per_case", f"{metric}/{region}"))
        measures.setdefault(metric, {})[region] = entry
    for name in board.measure_scores:
        metric, _, region = name.partition("/")
        entry = measures.setdefault(metric, {}).setdefault(region, {})
        entry |= {"dataset": json_number_or_inf(dataset[name]), "dataset_ci95": ends.get(("dataset", name))}
    settings = [
        {key: list(value) if isinstance(value, tuple) else value for key, value in vars(measure).items()}
        for measure in board.config.measures
    ]
    return {"measures": measures, "units": length_units(board), "measure_settings": settings}


def length_units(board: Scoreboard) -> dict[str, str | None]:
    """Find the unit of each metric that is a length: that of the spacing, "pixels" without one, None if unknown.

    Raises
    ------
    InputError
        The cases' units differ, so lengths can't be averaged over them.
    """
    run = board.run
    measured = dict.fromkeys(metric for metric, _, summed in run.measured if not summed)
    lengths = [name for name in measured if (facts := find_facts(name)) and facts.unit == "length"]
    if not lengths:
        return {}
    units: dict[str, str] = {}  # each with the last case that has it
    for index, (edges, unit) in enumerate(run.spacings):
        last = int(np.flatnonzero(run.spacing == index)[-1])
        units["pixels" if edges is None else unit] = run.case_ids[last]
    if len(units) > 1:
        given = ", ".join(f"{unit or 'no unit'} (as {case_id})" for unit, case_id in sorted(units.items()))
        raise InputError(expected("summarise", "rows", "to have distances in one unit", given))
    return {name: next(iter(units)) or None for name in lengths}


def _describe_loss(run: RunColumns) -> dict[str, Any]:
    """Describe the loss of all cases as one batch, and the spread of the cases' own losses, which have no mean if any
    is infinite.

    The loss of all cases is None if it is not finite, or if cases have no terms, as in files of earlier versions.
    """
    infinite = int(np.isinf(run.loss).sum())
    of_dataset = np.nan
    if run.loss_terms is not None:
        has_pixels = ~(np.isnan(run.loss) & (run.loss_terms[..., 1] == 0).all(axis=1))
        of_dataset = divide_terms(run.loss_terms[has_pixels]) if has_pixels.any() else np.nan
    described = _describe(np.full_like(run.loss, np.nan) if infinite else run.loss)
    return {"dataset": of_dataset if np.isfinite(of_dataset) else None, **described, "n_infinite": infinite}


def count_effective(board: Scoreboard) -> dict[str, float | None]:
    """Compute Kish's effective number of units of each class and group, from its union in each case or cluster."""
    effective: dict[str, float | None] = {}
    for region in board.run.regions:
        totals = board.run.totals(region)
        union: IntArray = totals.target + totals.predicted - totals.tp
        effective[region] = json_number(effective_units(sum_by(board.units, board.n_units, union)))
    return effective


def note_resampling(board: Scoreboard, effective: Mapping[str, float | None]) -> dict[str, Any]:
    """Record how intervals were computed, with a warning if few units decide or cases look grouped."""
    config, units = board.config, board.n_units
    by_class = {name: effective[name] for name in board.spec.names}
    pools = count_pools(units)
    return {
        "resamples": config.bootstrap,
        "interval": config.interval,
        "level": 0.95,
        "seed": config.seed,
        "cluster": config.cluster,
        "n_units": units,
        **({"n_pools": pools} if config.bootstrap and pools < units else {}),
        "warning": warn_of_few(board.run.case_ids, units, by_class, config.cluster) if config.bootstrap else None,
    }
