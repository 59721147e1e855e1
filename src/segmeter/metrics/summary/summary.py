"""rows -> the summary that metrics.json holds (schema 1)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segmeter.checks import expected
from segmeter.classes import ClassSpec
from segmeter.errors import InputError
from segmeter.metrics.arrays import FloatArray
from segmeter.metrics.cases.table import CaseRow, as_table, order_rows
from segmeter.metrics.cases.typed import Margins, class_regions, divide_terms, region_margins
from segmeter.metrics.config.metrics import MetricsConfig, check_metrics
from segmeter.metrics.config.metrics import mean_classes as mean_classes
from segmeter.metrics.pixels.overlap import AGGREGATES, ClassTotals, OverlapScores, overlap_scores, score_totals
from segmeter.metrics.statistics.bootstrap import (
    MOST_UNITS,
    Resampled,
    bootstrap_columns,
    mean_of_columns,
)
from segmeter.metrics.statistics.clusters import cluster_labels, effective_units, sum_clusters, warn_of_few
from segmeter.metrics.statistics.describe import describe, plain
from segmeter.metrics.statistics.lazy_columns import Columns, held_columns, join_columns, lazy_means
from segmeter.metrics.summary.class_groups import PER_CLASS, RESAMPLED_PER_CLASS, score_groups
from segmeter.metrics.summary.conventions import compare_conventions
from segmeter.metrics.summary.measures import length_units, summarise_measures
from segmeter.metrics.summary.scoreboard import PER_CASE, score_region
from segmeter.metrics.summary.slices import summarise_slices

SCHEMA = 1

DEFAULT = MetricsConfig()


def summarise(rows: Sequence[CaseRow], spec: ClassSpec, config: MetricsConfig = DEFAULT) -> dict[str, Any]:
    """Summarise the rows of a run; every value is plain, and undefined is None, never 0.

    Means over classes run over all classes, background included, unless ``config.background`` is false; a binary task
    has two classes too, and its object is the second of ``per_class``. ``mean_classes`` names them in the result.
    ``dataset`` sums the counts of all cases, then scores, then takes the mean over classes; ``per_case`` scores each
    case, takes its mean over the classes defined in it, then the mean over cases. ``invalid``, where it is counted, has
    the pixels of each class of the target whose prediction is no class. ``std`` is the sample's (n - 1),
    ``std_population`` divides by n. Every ``ci95`` comes from the same resamples of the cases. ``measures`` is there
    when measures were requested; see `summarise_measures`; ``slices`` with ``config.slice_by``, see
    `summarise_slices`. So are ``measure_settings``, by which they were measured,
    and ``units``, the unit of each of their metrics that is a length.

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
    classes = mean_classes(config, spec)
    cases = _score_cases(rows, spec, classes)
    clusters = cluster_labels(cases.ids, config.cluster)
    effective = count_effective(cases.margins, spec, clusters)
    counts, multilabel = cases.counts, spec.is_multilabel
    total = overlap_scores(counts, task=spec.task, classes=classes, count_invalid=spec.count_invalid)
    intervals = _intervals(cases, spec, config, clusters)
    means = {
        name: describe(scores()) | {"ci95": intervals.get(f"per_case/{name}")}
        for name, scores in cases.averaged.items()
    }
    return {
        "schema": SCHEMA,
        **compare_conventions(rows, spec, config),
        "task": spec.task,
        "n_cases": len(rows),
        "classes": list(spec.names),
        "mean_classes": [spec.names[k] for k in classes],
        "ignore_index": spec.ignore_index,
        "confusion_matrix": None if multilabel else counts[:, : spec.num_classes].tolist(),
        **({"invalid": dict(zip(spec.names, counts[:, -1].tolist(), strict=True))} if spec.count_invalid else {}),
        **({"confusion_matrices": counts.tolist()} if multilabel else {}),
        "dataset": {name: plain(getattr(total, name)) for name in AGGREGATES}
        | {"n_classes_undefined": int(total.n_undefined)},
        "dataset_ci95": {name: intervals.get(f"dataset/{name}") for name in AGGREGATES},
        "per_class": {
            name: _class_entry(total, means, k, intervals) | {"n_effective": effective[name]}
            for k, name in enumerate(spec.names)
        },
        "per_group": score_groups(rows, spec, config, clusters),
        "per_case": {name: means[name] for name in PER_CASE},
        **(_measured(rows, spec, config, clusters) if config.measures else {}),
        **({"slices": summarise_slices(rows, spec, config, clusters)} if config.slice_by else {}),
        "loss": _describe_loss(cases),
        "bootstrap": note_resampling(cases.ids, clusters, effective, config),
    }


@dataclass(frozen=True, kw_only=True)
class _Cases:
    """Data of N rows for the summary: summed counts, and per case margins, means over classes, and loss."""

    ids: list[str]
    counts: NDArray[np.int64]
    margins: Margins
    overall: FloatArray  # (A, N), by `PER_CASE`
    loss: FloatArray  # (N,), NaN where there is none
    loss_terms: list[tuple[tuple[float, float], ...]]  # N, each of the P parts of the loss, or none

    @property
    def averaged(self) -> Mapping[str, Callable[[], FloatArray]]:
        """What is averaged over cases: the aggregates, then the scores of each class; (N,), made when they are used."""
        made = {name: partial(np.asarray, found) for name, found in zip(PER_CASE, self.overall, strict=True)}
        classes = range(self.margins.regions)
        return made | {
            f"{name}/{k}": partial(score_region, name, self.margins, k) for name in RESAMPLED_PER_CLASS for k in classes
        }

    @property
    def columns(self) -> Columns:
        """What is resampled, (N, 4 K + 2 M): margins, then the columns of the M means over cases."""
        means = lazy_means(len(self.ids), list(self.averaged.values()), bounded=True)
        return join_columns([held_columns(len(self.ids), self.margins.columns, np.float64), means])


def _stack(scores: OverlapScores, aggregates: Sequence[str]) -> FloatArray:
    """The named aggregates of R sums or cases, then their scores of each class: (R, ...)."""
    parts = [getattr(scores, name)[:, None] for name in aggregates]
    return np.concatenate([*parts, *(getattr(scores, name) for name in RESAMPLED_PER_CLASS)], axis=1)


def _score_cases(rows: Sequence[CaseRow], spec: ClassSpec, classes: list[int]) -> _Cases:
    """Go through the rows once, some thousands at a time."""
    cases = _Cases(
        ids=[],
        counts=np.zeros(spec.counts_shape, np.int64),
        margins=Margins(len(rows), spec.num_classes),
        overall=np.empty((len(PER_CASE), len(rows))),
        loss=np.empty(len(rows)),
        loss_terms=[],
    )
    start = 0
    for block in as_table(rows).blocks():
        part = slice(start, start + len(block.case_ids))
        margins = region_margins(block.counts, spec, list(class_regions(spec, {}).values()))
        cases.counts[...] += block.counts.sum(axis=0)
        scores = score_totals(margins, task=spec.task, classes=classes)
        cases.margins.put(part, margins)
        cases.overall[:, part] = [getattr(scores, name) for name in PER_CASE]
        cases.ids.extend(block.case_ids)
        cases.loss[part] = block.loss
        cases.loss_terms.extend(block.loss_terms)
        start = part.stop
    return cases


def _class_entry(total: OverlapScores, means: dict[str, Any], k: int, intervals: dict[str, Any]) -> dict[str, Any]:
    return {
        **{name: plain(getattr(total, name)[k]) for name in PER_CLASS},
        "support": int(total.support[k]),
        "ci95": {name: intervals.get(f"per_class/{name}/{k}") for name in RESAMPLED_PER_CLASS},
        "per_case": {name: means[f"{name}/{k}"] for name in RESAMPLED_PER_CLASS},
    }


def _intervals(
    cases: _Cases, spec: ClassSpec, config: MetricsConfig, clusters: list[str] | None
) -> dict[str, list[float | None]]:
    """95 % intervals by name, all from one set of resamples; empty without a bootstrap."""
    if not config.bootstrap:
        return {}
    names = [f"dataset/{name}" for name in AGGREGATES]
    names += [f"per_class/{name}/{k}" for name in RESAMPLED_PER_CLASS for k in range(spec.num_classes)]
    names += [f"per_case/{name}" for name in cases.averaged]
    resampled: Resampled = bootstrap_columns(
        cases.columns,
        _statistic(spec, mean_classes(config, spec)),
        resamples=config.bootstrap,
        seed=config.seed,
        interval=config.interval,
        clusters=clusters,
    )
    ends = zip(resampled.low, resampled.high, strict=True)
    return {name: [plain(low), plain(high)] for name, (low, high) in zip(names, ends, strict=True)}


def _statistic(spec: ClassSpec, classes: list[int]) -> Callable[[FloatArray], FloatArray]:
    """Column sums (R, 4 K + 2 M) -> aggregates, scores per class, means over cases."""
    width = 4 * spec.num_classes

    def statistic(sums: FloatArray) -> FloatArray:
        scores = score_totals(ClassTotals.from_columns(sums[:, :width]), task=spec.task, classes=classes)
        return np.concatenate([_stack(scores, AGGREGATES), mean_of_columns(sums[:, width:], bounded=True)], axis=1)

    return statistic


def _measured(
    rows: Sequence[CaseRow], spec: ClassSpec, config: MetricsConfig, clusters: list[str] | None
) -> dict[str, Any]:
    """Results of the measures, with the settings that a comparison of runs needs."""
    settings = [
        {key: list(value) if isinstance(value, tuple) else value for key, value in vars(measure).items()}
        for measure in config.measures
    ]
    return {
        "measures": summarise_measures(rows, spec, config, clusters),
        "units": length_units(rows, spec, config),
        "measure_settings": settings,
    }


def _describe_loss(cases: _Cases) -> dict[str, Any]:
    """The loss of all cases as one batch, and the spread of the cases' own; an infinite one leaves no mean."""
    infinite = int(np.isinf(cases.loss).sum())
    described = describe(np.full_like(cases.loss, np.nan) if infinite else cases.loss)
    return {"dataset": _whole_loss(cases), **described, "n_infinite": infinite}


def _whole_loss(cases: _Cases) -> float | None:
    """None where it is not finite, or where rows have no terms, as those of earlier versions."""
    if len({len(terms) for terms in cases.loss_terms}) != 1 or not cases.loss_terms[0]:
        return None
    terms = np.array(cases.loss_terms)
    nothing = np.isnan(cases.loss) & (terms[..., 1] == 0).all(axis=1)  # no pixel, so no mean over pixels either
    value = divide_terms(terms[~nothing]) if not nothing.all() else np.nan
    return value if np.isfinite(value) else None


def count_effective(margins: Margins, spec: ClassSpec, clusters: Sequence[str] | None) -> dict[str, float | None]:
    """Effective number of units by class: Kish's, of the class's union in each case or cluster."""

    def union(k: int) -> NDArray[np.int64]:
        one = margins.totals(k)
        return np.asarray(one.target + one.predicted - one.tp)

    unions = Columns(count=margins.count, shape=(spec.num_classes,), dtype=np.dtype(np.int64), make=union)
    units = (value for block in unions.blocks() for value in effective_units(sum_clusters(block, clusters)))
    return {name: plain(value) for name, value in zip(spec.names, units, strict=True)}


def note_resampling(
    case_ids: Sequence[str],
    clusters: Sequence[str] | None,
    effective: Mapping[str, float | None],
    config: MetricsConfig,
) -> dict[str, Any]:
    """How the intervals of a summary were computed, and a warning where few units decide or cases look grouped."""
    units = len(case_ids) if clusters is None else len(set(clusters))
    return {
        "resamples": config.bootstrap,
        "interval": config.interval,
        "level": 0.95,
        "seed": config.seed,
        "cluster": config.cluster,
        "n_units": units,
        **({"n_pools": MOST_UNITS} if config.bootstrap and units > MOST_UNITS else {}),
        "warning": warn_of_few(case_ids, clusters, effective) if config.bootstrap else None,
    }
