"""Rows of an evaluation -> the columns of its page."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segmeter.classes import ClassSpec
from segmeter.errors import InputError
from segmeter.metrics.cases.table import STATUSES, CaseRow, class_statuses, in_groups, stack_totals
from segmeter.metrics.pixels.overlap import OverlapScores, score_totals
from segmeter.metrics.statistics.clusters import cluster_labels
from segmeter.metrics.summary.directions import find_direction
from segmeter.report import figures
from segmeter.report.data.columns import Column

ID, HEADLINE = "id", "headline"
STATUS_WORDS = dict(zip(STATUSES, ("found", "absent", "missed", "false alarm"), strict=True))

_FEW_CLASSES = 4  # whose IoU the table shows before the reader chooses
_MOST_CHOICES = 500  # texts that are offered as a choice


def case_columns(rows: Sequence[CaseRow], spec: ClassSpec, summary: Mapping[str, Any]) -> list[Column]:
    """Lay out all that is known of each case, the most important first.

    Parameters
    ----------
    rows
        In the order of the page's cases.
    spec
        The classes.
    summary
        Of metrics.json: over which classes means run, clusters, groups and units.
    """
    counted = [spec.names.index(name) for name in summary.get("mean_classes", spec.names)]
    totals = stack_totals(rows, spec)
    scores = score_totals(totals, task=spec.task, classes=counted)
    return [
        Column(key=ID, label="case", values=[row.case_id for row in rows], kind="text", group="case", shown=True),
        *_scores(scores, spec),
        *_facts(rows, scores, spec, summary, counted),
        *_class_columns(scores, spec, "iou", "IoU", shown=spec.num_classes <= _FEW_CLASSES and spec.task != "binary"),
        *_statuses(class_statuses(totals), spec),
        *_group_columns(rows, spec, summary),
        *_measures(rows, summary, means=True),
        *_support(scores, spec),
        *_measures(rows, summary, means=False),
        *_class_columns(scores, spec, "dice", "Dice"),
        *_class_columns(scores, spec, "precision", "precision"),
        *_class_columns(scores, spec, "recall", "recall"),
    ]


def _scores(scores: OverlapScores, spec: ClassSpec) -> Iterator[Column]:
    first = figures.headline(spec.task, spec.names)
    found = {HEADLINE: (first, figures.headline_scores(scores, spec.task))}
    found |= {key: (label, getattr(scores, key)) for key, label in figures.AGGREGATES.items() if label != first}
    for key, (label, values) in found.items():
        yield Column(key=key, label=label, values=values, kind="score", group="scores", better="higher", shown=True)


def _facts(
    rows: Sequence[CaseRow], scores: OverlapScores, spec: ClassSpec, summary: Mapping[str, Any], counted: list[int]
) -> Iterator[Column]:
    weakest = _weakest(scores.iou, spec, counted)
    if spec.num_classes > 2:
        yield Column(key="weakest", label="weakest class", values=weakest, kind="choice", group="case", shown=True)
    yield Column(key="size", label="size", values=[_size(row) for row in rows], kind="text", group="case", shown=True)
    inner = scores.support[:, 0 if spec.is_multilabel else 1 :].sum(axis=1)
    words = "target pixels" if spec.is_multilabel else f"target pixels without {spec.names[0]}"
    yield Column(key="objects", label=words, values=inner, kind="count", group="case")
    pixels = np.array([np.prod(row.shape, dtype=np.int64) for row in rows], np.int64)
    yield Column(key="pixels", label="pixels", values=pixels, kind="count", group="case")
    if any(row.loss is not None for row in rows):
        loss = np.array([np.nan if row.loss is None else row.loss for row in rows])
        yield Column(key="loss", label="loss", values=loss, kind="number", group="scores", better="lower", shown=True)
    steps = dict.fromkeys(step for row in rows for step in row.changed_pixels)
    for step in steps:
        changed = np.array([row.changed_pixels.get(step, -1) for row in rows])
        label = f"changed by {step}"
        yield Column(key=f"changed/{step}", label=label, values=changed, kind="count", group="post-processing")
    cluster = (summary.get("bootstrap") or {}).get("cluster")
    if cluster:
        yield from _clusters(rows, cluster)
    for name in dict.fromkeys(name for row in rows for name in row.extra):
        extra = np.array([row.extra.get(name, np.nan) for row in rows])
        yield Column(key=f"extra/{name}", label=name, values=extra, kind="number", group="further scores")


def _clusters(rows: Sequence[CaseRow], cluster: str) -> Iterator[Column]:
    """The unit that each case belongs to; none where the table that names them has gone."""
    with suppress(InputError):
        labels = cluster_labels([row.case_id for row in rows], cluster) or []
        kind: Any = "choice" if len(set(labels)) <= _MOST_CHOICES else "text"
        yield Column(key="cluster", label=f"cluster ({cluster})", values=labels, kind=kind, group="case", shown=True)


def _size(row: CaseRow) -> str:
    """Width, height and, of a volume, depth."""
    edges = row.shape[::-1] if row.depth is None else (row.width, row.height, row.depth)
    return " \N{MULTIPLICATION SIGN} ".join(map(str, edges))


def _weakest(iou: NDArray[np.float64], spec: ClassSpec, counted: list[int]) -> list[str]:
    """Name of the class with the lowest defined IoU, "" where none is defined."""
    among = np.where(np.isnan(iou[:, counted]), np.inf, iou[:, counted])
    lowest, defined = among.argmin(axis=1), np.asarray(np.isfinite(among).any(axis=1))
    return [spec.names[counted[k]] if any_defined else "" for k, any_defined in zip(lowest, defined, strict=True)]


def _class_columns(
    scores: OverlapScores, spec: ClassSpec, score: str, words: str, *, shown: bool = False
) -> Iterator[Column]:
    values = getattr(scores, score)
    for k, name in enumerate(spec.names):
        yield Column(
            key=f"{score}/{k}",
            label=f"{words} of {name}",
            values=values[:, k],
            kind="score",
            group=f"{words} by class",
            better="higher",
            of_class=k,
            short=words,
            shown=shown,
        )


def _statuses(statuses: NDArray[np.int64], spec: ClassSpec) -> Iterator[Column]:
    words = np.array([STATUS_WORDS[status] for status in STATUSES])
    for k, name in enumerate(spec.names):
        texts = words[statuses[:, k]].tolist()
        yield Column(
            key=f"status/{k}",
            label=name,
            values=texts,
            kind="choice",
            group="found, missed or absent",
            of_class=k,
            short="status",
        )


def _support(scores: OverlapScores, spec: ClassSpec) -> Iterator[Column]:
    for k, name in enumerate(spec.names):
        yield Column(
            key=f"support/{k}",
            label=f"target pixels of {name}",
            values=scores.support[:, k],
            kind="count",
            group="pixels by class",
            of_class=k,
            short="target pixels",
        )


def _group_columns(rows: Sequence[CaseRow], spec: ClassSpec, summary: Mapping[str, Any]) -> Iterator[Column]:
    """IoU of each group of classes that was scored as one region."""
    for number, (name, entry) in enumerate((summary.get("per_group") or {}).items()):
        inside = np.isin(np.array(spec.names), entry["classes"]).astype(np.int64)
        parts = []
        for group in in_groups(rows):
            counts = np.stack([row.counts for row in group])
            both = inside @ counts @ inside
            either = (inside @ counts).sum(axis=-1) + (counts @ inside).sum(axis=-1) - both
            parts.append(np.divide(both, either, out=np.full(len(both), np.nan), where=either > 0))
        label, values = f"IoU of {name}", np.concatenate(parts)
        yield Column(key=f"group/{number}", label=label, values=values, kind="score", group="groups", better="higher")


def _measures(rows: Sequence[CaseRow], summary: Mapping[str, Any], *, means: bool) -> Iterator[Column]:
    """What was measured of each case; the mean over classes first, as it has the most to say."""
    keys = dict.fromkeys(column.key for row in rows for column in row.measured if not column.summed)
    regions = {metric: [r for m, r, _ in keys if m == metric] for metric, _, _ in keys}
    values = {key: np.full(len(rows), np.nan) for key in keys}
    for i, row in enumerate(rows):
        for column in row.measured:
            if not column.summed:
                values[column.key][i] = column.value
    counted = set(summary.get("mean_classes", ()))
    for metric, names in regions.items():
        among = [values[metric, region, False] for region in names if region in counted]
        if means and len(among) > 1:
            yield _measure(metric, "mean over classes", f"{metric}/mean", _mean(among), summary)
        for region in () if means else names:
            yield _measure(metric, region, f"{metric}/{region}", values[metric, region, False], summary)


def _mean(among: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Mean over what is defined; NaN where nothing is."""
    stacked = np.stack(among)
    defined = ~np.isnan(stacked)
    count = defined.sum(axis=0)
    total = np.where(defined, stacked, 0).sum(axis=0)
    mean: NDArray[np.float64] = np.divide(total, count, out=np.full(len(total), np.nan), where=count > 0)
    return mean


def _measure(metric: str, region: str, key: str, values: NDArray[np.float64], summary: Mapping[str, Any]) -> Column:
    unit, names = summary.get("units", {}).get(metric) or "", summary.get("classes", [])
    return Column(
        key=f"measure/{key}",
        label=f"{metric}, {region}",
        values=values,
        kind="number",
        group=metric,
        unit=unit,
        better=find_direction(metric),
        of_class=names.index(region) if region in names else None,
        short=f"{metric} ({unit})" if unit else metric,
    )
