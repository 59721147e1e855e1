"""What is known of the cases of an evaluation -> the columns of its page."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segmeter.classes import ClassSpec
from segmeter.errors import InputError
from segmeter.metrics.arrays import mean_defined
from segmeter.metrics.cases.typed import STATUSES
from segmeter.metrics.config.scores import find_direction
from segmeter.metrics.statistics.clusters import cluster_labels
from segmeter.report import figures
from segmeter.report.data.columns import Column
from segmeter.report.data.gathered import HEADLINE, Gathered

ID = "id"
STATUS_WORDS = dict(zip(STATUSES, ("found", "absent", "missed", "false alarm"), strict=True))

_FEW_CLASSES = 4  # whose IoU the table shows before the reader chooses
_MOST_CHOICES = 500  # texts that are offered as a choice


def case_columns(
    cases: Gathered, spec: ClassSpec, summary: Mapping[str, Any], *, further: Sequence[Column] = ()
) -> list[Column]:
    """Lay out all that is known of each case, the most important first.

    Parameters
    ----------
    cases
        In the order of the page's cases.
    spec
        The classes.
    summary
        Of metrics.json: over which classes means run, clusters and units.
    further
        More facts of the cases, such as their slices.
    """
    few = spec.num_classes <= _FEW_CLASSES and spec.task != "binary"
    return [
        Column(key=ID, label="case", values=cases.case_ids, kind="text", group="case", shown=True),
        *_scores(cases, spec),
        *_facts(cases, spec, summary),
        *further,
        *_group_columns(cases),
        *_measures(cases, summary, means=True),
        *_class_columns(cases, spec, "iou", shown=few),
        *_statuses(cases, spec),
        *_support(cases, spec),
        *_measures(cases, summary, means=False),
        *_numbers(cases, summary),
        *_class_columns(cases, spec, "dice"),
        *_class_columns(cases, spec, "precision"),
        *_class_columns(cases, spec, "recall"),
    ]


def _scores(cases: Gathered, spec: ClassSpec) -> Iterator[Column]:
    first = figures.headline(spec.headline)
    labels = {HEADLINE: first} | {key: label for key, label in figures.AGGREGATES.items() if label != first}
    for key, label in labels.items():
        values = cases.scores[key]
        yield Column(key=key, label=label, values=values, kind="score", group="scores", better="higher", shown=True)


def _facts(cases: Gathered, spec: ClassSpec, summary: Mapping[str, Any]) -> Iterator[Column]:
    if spec.num_classes > 2:
        weakest = _weakest(cases.by_class["iou"], spec, summary)
        yield Column(key="weakest", label="weakest class", values=weakest, kind="choice", group="case", shown=True)
    words = {shape: _size(shape) for shape in set(cases.sizes)}
    sizes = [words[shape] for shape in cases.sizes]
    yield Column(key="size", label="size", values=sizes, kind="text", group="case", shown=True)
    inner = cases.support[:, 0 if spec.is_multilabel else 1 :].sum(axis=1)
    label = "target pixels" if spec.is_multilabel else f"target pixels without {spec.names[0]}"
    yield Column(key="objects", label=label, values=inner, kind="count", group="case")
    pixels = np.array([np.prod(shape, dtype=np.int64) for shape in cases.sizes], np.int64)
    yield Column(key="pixels", label="pixels", values=pixels, kind="count", group="case")
    if cases.invalid is not None:
        label = "pixels predicted outside the classes"
        yield Column(key="invalid", label=label, values=cases.invalid, kind="count", group="case")
    loss = cases.scores.get("loss")
    if loss is not None:
        yield Column(key="loss", label="loss", values=loss, kind="number", group="scores", better="lower", shown=True)
    for step, changed in cases.changed.items():
        label = f"changed by {step}"
        yield Column(key=f"changed/{step}", label=label, values=changed, kind="count", group="post-processing")
    cluster = (summary.get("bootstrap") or {}).get("cluster")
    if cluster:
        yield from _clusters(cases, cluster)
    for name, extra in cases.extra.items():
        yield Column(key=f"extra/{name}", label=name, values=extra, kind="number", group="further scores")


def _clusters(cases: Gathered, cluster: str) -> Iterator[Column]:
    """The unit that each case belongs to; none where the table that names them has gone."""
    with suppress(InputError):
        labels = cluster_labels(cases.case_ids, cluster) or []
        kind: Any = "choice" if len(set(labels)) <= _MOST_CHOICES else "text"
        yield Column(key="cluster", label=f"cluster ({cluster})", values=labels, kind=kind, group="case", shown=True)


def _size(shape: tuple[int, ...]) -> str:
    """Width, height and, of a volume, depth."""
    return " \N{MULTIPLICATION SIGN} ".join(map(str, (*shape[:-3:-1], *shape[:-2])))


def _weakest(iou: NDArray[np.float64], spec: ClassSpec, summary: Mapping[str, Any]) -> list[str]:
    """Name of the class with the lowest defined IoU among those of the means, "" where none is defined."""
    counted = [spec.names.index(name) for name in summary.get("mean_classes", spec.names)]
    among = np.where(np.isnan(iou[:, counted]), np.inf, iou[:, counted])
    lowest, defined = among.argmin(axis=1), np.asarray(np.isfinite(among).any(axis=1))
    return [spec.names[counted[k]] if any_defined else "" for k, any_defined in zip(lowest, defined, strict=True)]


def _class_columns(cases: Gathered, spec: ClassSpec, score: str, *, shown: bool = False) -> Iterator[Column]:
    words = figures.SCORES[score]
    for k, name in enumerate(spec.names):
        yield Column(
            key=f"{score}/{k}",
            label=f"{words} of {name}",
            values=cases.by_class[score][:, k],
            kind="score",
            group=f"{words} by class",
            better="higher",
            of_class=k,
            short=words,
            shown=shown,
        )


def _statuses(cases: Gathered, spec: ClassSpec) -> Iterator[Column]:
    words = [STATUS_WORDS[status] for status in STATUSES]
    for k, name in enumerate(spec.names):
        yield Column(
            key=f"status/{k}",
            label=name,
            values=[words[status] for status in cases.statuses[:, k]],
            kind="choice",
            group="found, missed or absent",
            of_class=k,
            short="status",
        )


def _support(cases: Gathered, spec: ClassSpec) -> Iterator[Column]:
    for k, name in enumerate(spec.names):
        yield Column(
            key=f"support/{k}",
            label=f"target pixels of {name}",
            values=cases.support[:, k],
            kind="count",
            group="pixels by class",
            of_class=k,
            short="target pixels",
        )


def _group_columns(cases: Gathered) -> Iterator[Column]:
    """IoU of each group of classes that was scored as one region."""
    for number, (name, values) in enumerate(cases.groups.items()):
        label = f"IoU of {name}"
        yield Column(key=f"group/{number}", label=label, values=values, kind="score", group="groups", better="higher")


def _measures(cases: Gathered, summary: Mapping[str, Any], *, means: bool) -> Iterator[Column]:
    """What was measured of each case; the mean over classes first, as it has the most to say."""
    counted = set(summary.get("mean_classes", ()))
    for metric in dict.fromkeys(metric for metric, _ in cases.measured):
        found = {region: values for (name, region), values in cases.measured.items() if name == metric}
        among = [values for region, values in found.items() if region in counted]
        if means and len(among) > 1:
            mean = mean_defined(np.stack(among, axis=1))
            yield _measure(metric, "mean over classes", f"{metric}/mean", mean, summary)
        for region, values in () if means else found.items():
            yield _measure(metric, region, f"{metric}/{region}", values, summary)


def _numbers(cases: Gathered, summary: Mapping[str, Any]) -> Iterator[Column]:
    """Numbers of objects, which have to add up to those of the data set."""
    whole = summary.get("measures", {})
    for (metric, region), values in cases.numbers.items():
        counts = values.astype(np.int64)
        if whole.get(metric, {}).get(region, {}).get("dataset") == counts[counts > 0].sum():
            yield replace(_measure(metric, region, f"{metric}/{region}", counts, summary), kind="count")


def _measure(metric: str, region: str, key: str, values: NDArray[Any], summary: Mapping[str, Any]) -> Column:
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
