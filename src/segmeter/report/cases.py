"""Lays out the columns of a page's table of cases: everything that a finished run knows about each case.

A column of the page is a table column, a filter, a histogram and an axis, so that a new kind of score needs no script.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from segmeter.classes import ClassSpec
from segmeter.errors import InputError, SegmeterError
from segmeter.metrics.cases.table import CHANGED, SCORE, CaseTable, decode_key, floats_of, whole_numbers
from segmeter.metrics.cases.typed import STATUSES, class_statuses
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.config.scores import MEAN, find_direction, find_facts, is_number
from segmeter.metrics.statistics.clusters import cluster_labels
from segmeter.metrics.summary.scoreboard import Scoreboard, build_scoreboard
from segmeter.metrics.summary.slice_labels import hash_labels, order_labels, slice_labels
from segmeter.report import figures
from segmeter.report.columns import CaseColumn, CellLists

ID = "id"
HEADLINE = "headline"
STATUS_WORDS = dict(zip(STATUSES, ("found", "absent", "missed", "false alarm"), strict=True))

_FEW_CLASSES = 4  # whose IoU the table shows before the reader chooses
_MOST_CHOICES = 500  # texts that are offered as a choice
_NOT_COUNTED = -1
_OBJECT_COUNTS = {"instances": "", "sizes": "object_", "events": "objects_"}  # names of sums, and of metrics, begin so


def board_of(rows: CaseTable, spec: ClassSpec, summary: Mapping[str, Any]) -> Scoreboard:
    """Lay out the scores of a finished run by the settings that its summary records."""
    groups = {name: tuple(entry["classes"]) for name, entry in (summary.get("per_group") or {}).items()}
    background = len(summary.get("mean_classes", spec.names)) == spec.num_classes
    headline = figures.headline({"classes": spec.names, "task": spec.task} | dict(summary))
    return build_scoreboard(rows, spec, MetricsConfig(groups=groups, background=background, headline=headline))


def case_columns(
    board: Scoreboard,
    rows: CaseTable,
    summary: Mapping[str, Any],
    *,
    further: Sequence[CaseColumn] = (),
    cells: CellLists | None = None,
) -> list[CaseColumn]:
    """Lay out everything that is known about each case, the most important first.

    Parameters
    ----------
    board, rows
        The cases, in the order of the page.
    summary
        The content of metrics.json: clusters and units.
    further
        More columns about the cases, such as their slices.
    cells
        Receives the confusion matrix of every case, if it is not None.
    """
    spec = board.spec
    margins = board.run.totals(spec.names)
    statuses, support = class_statuses(margins), margins.target
    return [
        CaseColumn(key=ID, label="case", values=board.run.case_ids, kind="text", group="case", shown=True),
        *_scores(board, summary),
        *_facts(board, support, summary),
        *_stored(rows, spec, cells),
        *further,
        *_groups(board),
        *_measures(board, summary, means=True),
        *_of_classes(board, "iou", shown=spec.num_classes <= _FEW_CLASSES and spec.task != "binary"),
        *_by_class(spec, "status", statuses),
        *_by_class(spec, "support", support),
        *_measures(board, summary, means=False),
        *_object_counts(board, summary),
        *_of_classes(board, "dice"),
        *_of_classes(board, "precision"),
        *_of_classes(board, "recall"),
    ]


def _scores(board: Scoreboard, summary: Mapping[str, Any]) -> Iterator[CaseColumn]:
    names = {HEADLINE: board.headline} | {name: name for name in figures.AGGREGATES if name != board.headline}
    for key, name in names.items():
        facts, unit = find_facts(name), summary.get("units", {}).get(name.partition("/")[0]) or ""
        kind: Literal["score", "number"] = "score" if facts and facts.highest == 1 else "number"
        options: dict[str, Any] = {"kind": kind, "unit": unit, "better": find_direction(name), "shown": True}
        yield CaseColumn(key=key, label=figures.title(name), values=board.values(name), group="scores", **options)


def _facts(board: Scoreboard, support: NDArray[np.int64], summary: Mapping[str, Any]) -> Iterator[CaseColumn]:
    run, spec = board.run, board.spec
    if spec.num_classes > 2:
        iou = np.stack([board.values(f"iou/{name}") for name in board.counted], axis=1)
        among = np.where(np.isnan(iou), np.inf, iou)
        weakest = [board.counted[int(row.argmin())] if np.isfinite(row).any() else "" for row in among]
        yield CaseColumn(key="weakest", label="weakest class", values=weakest, kind="choice", group="case", shown=True)
    sizes = [
        " \N{MULTIPLICATION SIGN} ".join(str(edge) for edge in shape if edge >= 0) for shape in run.shapes.tolist()
    ]
    yield CaseColumn(key="size", label="size", values=sizes, kind="text", group="case", shown=True)
    label = "target pixels" if spec.is_multilabel else f"target pixels other than {spec.names[0]}"
    inner = support[:, 0 if spec.is_multilabel else 1 :].sum(axis=1)
    yield CaseColumn(key="objects", label=label, values=inner, kind="count", group="case")
    pixels = np.where(run.shapes < 0, 1, run.shapes).prod(axis=1)
    yield CaseColumn(key="pixels", label="pixels", values=pixels, kind="count", group="case")
    if not np.isnan(run.loss).all() or run.loss_terms is not None:
        yield CaseColumn(
            key="loss", label="loss", values=run.loss, kind="number", group="scores", better="lower", shown=True
        )
    cluster = (summary.get("bootstrap") or {}).get("cluster")
    with suppress(InputError):  # the table that names the clusters may be gone
        if labels := cluster and cluster_labels(run.case_ids, cluster):
            of_few: Any = "choice" if len(set(labels)) <= _MOST_CHOICES else "text"
            label = f"cluster ({cluster})"
            yield CaseColumn(key="cluster", label=label, values=labels, kind=of_few, group="case", shown=True)


def _stored(rows: CaseTable, spec: ClassSpec, cells: CellLists | None) -> list[CaseColumn]:
    """Make columns in one pass over the stored rows: invalid pixels, post-processing, further scores."""
    invalid, found = list[NDArray[np.int64]](), dict[str, NDArray[Any]]()
    done = 0
    for part in map(pa.Table.combine_chunks, rows.parts()):
        counts, stop = rows.counts(part), done + len(part)
        if cells is not None:
            cells.add(counts)
        if spec.count_invalid:
            invalid.append(counts[..., -1].sum(axis=-1))
        for name in part.column_names:
            if name.startswith(CHANGED):
                whole = found.setdefault(name, np.full(len(rows), _NOT_COUNTED))
                whole[done:stop] = whole_numbers(part[name])
            elif name.startswith(SCORE) and not decode_key(name.removeprefix(SCORE)):
                found.setdefault(name, np.full(len(rows), np.nan))[done:stop] = floats_of(part[name])
        done = stop
    columns = []
    if invalid:
        label = "pixels predicted outside the classes"
        columns.append(
            CaseColumn(key="invalid", label=label, values=np.concatenate(invalid), kind="count", group="case")
        )
    for name, values in found.items():
        if name.startswith(CHANGED):
            step, group = name.removeprefix(CHANGED), "post-processing"
            label = f"changed by {step}"
            columns.append(CaseColumn(key=f"changed/{step}", label=label, values=values, kind="count", group=group))
        else:
            score = name.removeprefix(SCORE)
            group = "further scores"
            columns.append(CaseColumn(key=f"extra/{score}", label=score, values=values, kind="number", group=group))
    return columns


def _of_classes(board: Scoreboard, score: str, *, shown: bool = False) -> Iterator[CaseColumn]:
    words = figures.SCORES[score]
    for k, name in enumerate(board.spec.names):
        yield CaseColumn(
            key=f"{score}/{k}",
            label=f"{words} of {name}",
            values=board.values(f"{score}/{name}"),
            kind="score",
            group=f"{words} by class",
            better="higher",
            of_class=k,
            short=words,
            shown=shown,
        )


def _by_class(spec: ClassSpec, key: Literal["status", "support"], values: NDArray[Any]) -> Iterator[CaseColumn]:
    """Yield a column per class: what became of the class in each case, or its pixels in the target (N, K)."""
    words = [STATUS_WORDS[status] for status in STATUSES]
    for k, name in enumerate(spec.names):
        if key == "status":
            options: dict[str, Any] = {"label": name, "kind": "choice", "group": "found, missed or absent"}
            options["values"] = [words[status] for status in values[:, k]]
        else:
            options = {"label": f"target pixels of {name}", "kind": "count", "group": "pixels by class"}
            options["values"] = values[:, k]
        yield CaseColumn(
            key=f"{key}/{k}", of_class=k, short="status" if key == "status" else "target pixels", **options
        )


def _groups(board: Scoreboard) -> Iterator[CaseColumn]:
    """Yield the IoU of each group of classes that was scored as one region."""
    for number, name in enumerate(board.config.groups):
        label, values = f"IoU of {name}", board.values(f"iou/{name}")
        yield CaseColumn(
            key=f"group/{number}", label=label, values=values, kind="score", group="groups", better="higher"
        )


def _measures(board: Scoreboard, summary: Mapping[str, Any], *, means: bool) -> Iterator[CaseColumn]:
    """Yield the measures of each case: means over several classes, or the values of each region."""
    for (metric, region), values in board.measured.items():
        several = sum(name == metric and other in board.counted for name, other in board.measured) > 1
        if region != MEAN if not means else (region == MEAN and several):
            yield _measure(metric, region, values, summary)


def _object_counts(board: Scoreboard, summary: Mapping[str, Any]) -> Iterator[CaseColumn]:
    """Yield numbers of objects that add up to those of the data set."""
    whole = summary.get("measures", {})
    for (name, region, summed), values in board.run.measured.items():
        kind, _, rest = name.partition("_")
        metric = f"{_OBJECT_COUNTS[kind]}{rest}" if kind in _OBJECT_COUNTS else name
        if not summed or not is_number(metric):
            continue
        counts = np.where(np.isnan(values), _NOT_COUNTED, values).astype(np.int64)
        if whole.get(metric, {}).get(region, {}).get("dataset") == counts[counts > 0].sum():
            yield _measure(metric, region, counts, summary)


def _measure(metric: str, region: str, values: NDArray[Any], summary: Mapping[str, Any]) -> CaseColumn:
    unit, names = summary.get("units", {}).get(metric) or "", summary.get("classes", [])
    return CaseColumn(
        key=f"measure/{metric}/{region}",
        label=f"{metric}, {'mean over classes' if region == MEAN else region}",
        values=values,
        kind="count" if values.dtype.kind == "i" else "number",
        group=metric,
        unit=unit,
        better=find_direction(metric),
        of_class=names.index(region) if region in names else None,
        short=f"{metric} ({unit})" if unit else metric,
    )


def slice_key(by: str) -> str:
    """Return the key of the column that has the slice of each case by one fact."""
    return f"slice/{by}"


def slice_columns(
    board: Scoreboard, hashes: Mapping[str, str | None], *, table: str | None
) -> tuple[list[CaseColumn], list[str]]:
    """Name the slice of each case, as it was when the run was summarised.

    Parameters
    ----------
    hashes
        From the summary: fact to the hash of its labels (see `hash_labels`), None where the run recorded none.
    table
        The file of facts, or None.

    Returns
    -------
    list of CaseColumn
        One per fact.
    list of str
        One line about the facts without a column, because the table changed or the hash is None.
    """
    columns, lost = list[CaseColumn](), list[str]()
    for name, known in hashes.items():
        labels: list[str] = []
        with suppress(SegmeterError):
            config = board.config.replace(slices=table, slice_by=(name,))
            labels = list(slice_labels(replace(board, config=config))[name])
        if not labels or hash_labels(board.run.case_ids, labels) != known:
            lost.append(name)
            continue
        order = tuple(order_labels(labels))
        options: dict[str, Any] = {"kind": "choice", "group": "slices", "order": order}
        columns.append(CaseColumn(key=slice_key(name), label=name, values=labels, **options))
    if not lost:
        return columns, []
    where = f"{table} is gone or has changed" if table else "their source has changed"
    if any(hashes[name] is None for name in lost):
        where = "an older version wrote the run and did not record them"
    return columns, [f"The cases of the slices by {', '.join(lost)} can't be listed: {where}."]
