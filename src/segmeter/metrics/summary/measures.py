"""columns of the measures -> their part of the summary; failures are counted and never improve a mean."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from segmeter.checks import expected
from segmeter.classes import ClassSpec
from segmeter.errors import InputError
from segmeter.metrics.arrays import BoolArray, FloatArray
from segmeter.metrics.cases.columns import ColumnKey
from segmeter.metrics.cases.table import CaseRow, as_table
from segmeter.metrics.cases.typed import measured_columns, stack_totals
from segmeter.metrics.config.metrics import MetricsConfig, mean_classes
from segmeter.metrics.measures.protocol import Measure, Name, build_measures, is_number, length_metrics
from segmeter.metrics.pixels.overlap import mean_defined
from segmeter.metrics.statistics.bootstrap import bootstrap_columns, mean_of_columns
from segmeter.metrics.statistics.describe import say
from segmeter.metrics.statistics.lazy_columns import Columns, held_columns, join_columns, lazy_means

MEAN = "mean"  # over classes


def summarise_measures(
    rows: Sequence[CaseRow], spec: ClassSpec, config: MetricsConfig, clusters: list[str] | None
) -> dict[str, dict[str, dict[str, Any]]]:
    """Summarise the columns that measures left in the rows.

    Each metric has an entry per class and group, and one named "mean" that takes, in every case, the mean over those
    classes of ``mean_classes`` that are defined in it. An entry holds ``mean, median, std`` (of the sample)
    and ``std_population`` over the ``n_used`` cases with a value, ``n_undefined`` cases without one, and
    ``n_penalised``: the cases in which exactly one mask contains the class, whatever the penalty is. A metric of
    the whole data set, from sums over cases, is the entry's ``dataset``; its "mean" is over the classes' values, and
    numbers of objects (tp, fp, fn) have none.
    Infinity is the text "inf", as JSON has no such number.

    Parameters
    ----------
    rows
        One or more, in the order of `clusters`.
    spec, config
        As for `summarise`.
    clusters
        One label per row, or None.

    Returns
    -------
    dict
        ``{metric: {class: entry}}``.
    """
    measures = build_measures(config, spec)
    table = gather_columns(rows, spec, config)
    means = lazy_means(len(rows), [partial(np.asarray, each) for each in table.values.values()])
    sums = held_columns(len(rows), list(table.sums.values()), np.float64)
    whole = WholeScores(measures, tuple(table.sums), [spec.names[k] for k in mean_classes(config, spec)])
    dataset = whole.score(np.concatenate([np.empty(0), *(part.sum(axis=0) for part in sums.blocks())])[None])

    def statistic(totals: FloatArray) -> FloatArray:
        split = means.width
        further = [score[:, None] for score in whole.score(totals[:, split:]).values()]
        return np.concatenate([mean_of_columns(totals[:, :split]), *further], axis=1)

    intervals = _intervals(join_columns([means, sums]), statistic, config, clusters)
    ends = dict(zip([*table.values, *(("dataset", *name) for name in dataset)], intervals, strict=False))
    summary: dict[str, dict[str, dict[str, Any]]] = {}
    for (metric, region), found in table.values.items():
        entry = _describe(found, table.failed.get(region)) | {"ci95": ends.get((metric, region))}
        summary.setdefault(metric, {})[region] = entry
    for (metric, region), score in dataset.items():
        entry = summary.setdefault(metric, {}).setdefault(region, {})
        entry |= {"dataset": say(score[0]), "dataset_ci95": ends.get(("dataset", metric, region))}
    return summary


def length_units(rows: Sequence[CaseRow], spec: ClassSpec, config: MetricsConfig) -> dict[str, str | None]:
    """The unit of each metric that is a length: of the rows' spacing, "pixels" without one, None where it has no name.

    Raises
    ------
    InputError
        The rows' units differ, so that nothing can be averaged over them.
    """
    metrics = dict.fromkeys(metric for metric, _, summed in measured_columns(rows) if not summed)
    lengths = [name for name in metrics if name in length_metrics(build_measures(config, spec))]
    units = _units(rows) if lengths else {}
    if len(units) > 1:
        found = ", ".join(f"{unit or 'no unit'} (as {case_id})" for unit, case_id in sorted(units.items()))
        raise InputError(expected("summarise", "rows", "to have distances in one unit", found))
    return {name: next(iter(units)) or None for name in lengths}


def _units(rows: Sequence[CaseRow]) -> dict[str, str]:
    """Each unit of distances, with a case that has it."""
    blocks = as_table(rows).blocks()
    cases = ((case_id, edges) for block in blocks for case_id, edges in zip(block.case_ids, block.edges, strict=True))
    return {"pixels" if spacing is None else unit: case_id for case_id, (spacing, unit) in cases}


@dataclass(frozen=True)
class MeasuredColumns:
    """Columns (N,) and sums (N,) by metric and region, and per region where exactly one mask contains it."""

    values: dict[Name, FloatArray]
    sums: dict[Name, FloatArray]
    failed: dict[str, BoolArray]


@dataclass(frozen=True)
class WholeScores:
    """Scores of the whole data set, from sums over its cases."""

    measures: tuple[Measure, ...]
    names: tuple[Name, ...]
    counted: list[str]

    def score(self, totals: FloatArray) -> dict[Name, FloatArray]:
        """Sums (R, U) -> scores (R,)."""
        sums = dict(zip(self.names, totals.T, strict=True))
        found: dict[Name, FloatArray] = {}
        for measure in self.measures:
            found |= measure.summarise(sums)
        return _with_means(found, self.counted)


def gather_columns(rows: Sequence[CaseRow], spec: ClassSpec, config: MetricsConfig) -> MeasuredColumns:
    """Lay out the measured values as columns, with the mean over ``mean_classes`` of each metric."""
    values, sums = split_measured(measured_columns(rows), spec, config)
    counted = [spec.names[k] for k in mean_classes(config, spec)]
    failed = _failures(rows, spec, config) if values else {}
    measured = {region for _, region in values if region in counted}
    failed[MEAN] = np.any([failed[region] for region in measured], axis=0) if measured else np.zeros(len(rows), bool)
    return MeasuredColumns(values, sums, failed)


def split_measured(
    measured: Mapping[ColumnKey, FloatArray], spec: ClassSpec, config: MetricsConfig
) -> tuple[dict[Name, FloatArray], dict[Name, FloatArray]]:
    """Columns (N,) by key -> values, with the mean over ``mean_classes`` of each metric, and sums."""
    values = {(metric, region): found for (metric, region, summed), found in measured.items() if not summed}
    sums = {(metric, region): np.nan_to_num(found) for (metric, region, summed), found in measured.items() if summed}
    return _with_means(values, [spec.names[k] for k in mean_classes(config, spec)]), sums


def _with_means(values: Mapping[Name, FloatArray], counted: list[str]) -> dict[Name, FloatArray]:
    """Add the mean over classes of each metric behind its classes; numbers of objects have none."""
    by_metric: dict[str, dict[str, FloatArray]] = {}
    for (metric, region), found in values.items():
        by_metric.setdefault(metric, {})[region] = found
    complete: dict[Name, FloatArray] = {}
    for metric, regions in by_metric.items():
        complete |= {(metric, region): found for region, found in regions.items()}
        classes = [found for region, found in regions.items() if region in counted]
        if classes and not is_number(metric):
            complete[metric, MEAN] = mean_defined(np.stack(classes, axis=-1))
    return complete


def _failures(rows: Sequence[CaseRow], spec: ClassSpec, config: MetricsConfig) -> dict[str, BoolArray]:
    """By class and group, the cases (N,) in which exactly one mask contains it."""
    members = {name: [k] for k, name in enumerate(spec.names)}
    members |= {group: [spec.names.index(name) for name in names] for group, names in config.groups.items()}
    margins = stack_totals(rows, spec)
    return {
        name: margins.target[:, held].any(axis=1) != margins.predicted[:, held].any(axis=1)
        for name, held in members.items()
    }


def _intervals(columns: Columns, statistic: Any, config: MetricsConfig, clusters: list[str] | None) -> list[Any]:
    """Ends of the 95 % interval of each statistic, from the same resamples as the rest of the summary."""
    if not config.bootstrap or not columns.width:
        return []
    found = bootstrap_columns(
        columns,
        statistic,
        resamples=config.bootstrap,
        seed=config.seed,
        interval=config.interval,
        clusters=clusters,
    )
    return [[say(low), say(high)] for low, high in zip(found.low, found.high, strict=True)]


def _describe(values: FloatArray, failed: BoolArray | None) -> dict[str, Any]:
    used = values[~np.isnan(values)]
    finite = bool(np.isfinite(used).all())
    return {
        "mean": say(used.mean()) if used.size else None,
        "median": say(np.median(used)) if used.size else None,
        "std": say(used.std(ddof=1)) if used.size > 1 and finite else None,
        "std_population": say(used.std()) if used.size and finite else None,
        "n_used": int(used.size),
        "n_penalised": int(np.isinf(used).sum() if failed is None else failed.sum()),
        "n_undefined": int(values.size - used.size),
    }
