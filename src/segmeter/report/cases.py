"""Lays out the columns of a page's table of cases: everything that a finished run knows about each case.

A column of the page is a table column, a filter, a histogram and an axis, so that a new kind of score needs no script.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

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
from segmeter.report.columns import CaseColumn, CellLists, Kind

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
    spec, words = board.spec, [*STATUS_WORDS.values()]
    margins = board.run.totals(spec.names)
    statuses = class_statuses(margins)

    def by_class(key: str, kind: Kind, group: str, values: Callable[[int], Any], **more: Any) -> Iterator[CaseColumn]:
        begin = f"{more['short']} of " if key != "status" else ""
        for k, name in enumerate(spec.names):
            yield CaseColumn(f"{key}/{k}", f"{begin}{name}", values(k), kind, group, of_class=k, **more)

    def scores(metric: str, *, shown: bool = False) -> Iterator[CaseColumn]:
        short, group = figures.SCORES[metric], f"{figures.SCORES[metric]} by class"
        more: dict[str, Any] = {"short": short, "better": "higher", "shown": shown}
        return by_class(metric, "score", group, lambda k: board.values(f"{metric}/{spec.names[k]}"), **more)

    def status(k: int) -> list[str]:
        return [words[place] for place in statuses[:, k]]

    def support(k: int) -> NDArray[np.int64]:
        return margins.target[:, k].astype(np.int64)

    return [
        CaseColumn(ID, "case", board.run.case_ids, "text", "case", shown=True),
        *_scores(board, summary),
        *_facts(board, summary),
        *_stored(rows, spec, cells),
        *further,
        *(
            CaseColumn(
                f"group/{place}", f"IoU of {name}", board.values(f"iou/{name}"), "score", "groups", better="higher"
            )
            for place, name in enumerate(board.config.groups)
        ),
        *_measures(board, summary, means=True),
        *scores("iou", shown=spec.num_classes <= _FEW_CLASSES and spec.task != "binary"),
        *by_class("status", "choice", "found, missed or absent", status, short="status"),
        *by_class("support", "count", "pixels by class", support, short="target pixels"),
        *_measures(board, summary, means=False),
        *_object_counts(board, summary),
        *scores("dice"),
        *scores("precision"),
        *scores("recall"),
    ]


def _scores(board: Scoreboard, summary: Mapping[str, Any]) -> Iterator[CaseColumn]:
    names = {HEADLINE: board.headline} | {name: name for name in figures.AGGREGATES if name != board.headline}
    for key, name in names.items():
        facts, unit = find_facts(name), summary.get("units", {}).get(name.partition("/")[0]) or ""
        kind: Kind = "score" if facts and facts.highest == 1 else "number"
        options: dict[str, Any] = {"unit": unit, "better": find_direction(name), "shown": True}
        yield CaseColumn(key, figures.title(name), board.values(name), kind, "scores", **options)


def _facts(board: Scoreboard, summary: Mapping[str, Any]) -> Iterator[CaseColumn]:
    run, spec = board.run, board.spec
    if spec.num_classes > 2:
        iou = np.stack([board.values(f"iou/{name}") for name in board.counted], axis=1)
        among = np.where(np.isnan(iou), np.inf, iou)
        weakest = [board.counted[int(row.argmin())] if np.isfinite(row).any() else "" for row in among]
        yield CaseColumn("weakest", "weakest class", weakest, "choice", "case", shown=True)
    sizes = [
        " \N{MULTIPLICATION SIGN} ".join(str(edge) for edge in shape if edge >= 0) for shape in run.shapes.tolist()
    ]
    yield CaseColumn("size", "size", sizes, "text", "case", shown=True)
    label = "target pixels" if spec.is_multilabel else f"target pixels other than {spec.names[0]}"
    inner = run.margins.target[:, 0 if spec.is_multilabel else 1 : spec.num_classes]
    yield CaseColumn("objects", label, inner.sum(axis=1, dtype=np.int64), "count", "case")
    yield CaseColumn("pixels", "pixels", np.where(run.shapes < 0, 1, run.shapes).prod(axis=1), "count", "case")
    if not np.isnan(run.loss).all() or run.loss_terms is not None:
        yield CaseColumn("loss", "loss", run.loss, "number", "scores", better="lower", shown=True)
    cluster = (summary.get("bootstrap") or {}).get("cluster")
    with suppress(InputError):  # the table that names the clusters may be gone
        if labels := cluster and cluster_labels(run.case_ids, cluster):
            of_few: Kind = "choice" if len(set(labels)) <= _MOST_CHOICES else "text"
            yield CaseColumn("cluster", f"cluster ({cluster})", labels, of_few, "case", shown=True)


def _stored(rows: CaseTable, spec: ClassSpec, cells: CellLists | None) -> Iterator[CaseColumn]:
    """Yield columns after one pass over the stored rows: invalid pixels, post-processing, further scores."""
    found = defaultdict[str, list[NDArray[Any]]](list)
    for part in map(pa.Table.combine_chunks, rows.parts()):
        counts = rows.counts(part)
        if cells is not None:
            cells.add(counts)
        if spec.count_invalid:
            found["invalid"].append(counts[..., -1].sum(axis=-1))
        for name in part.column_names:
            if name.startswith(CHANGED):
                found[name].append(whole_numbers(part[name]))
            elif name.startswith(SCORE) and not decode_key(name.removeprefix(SCORE)):
                found[name].append(floats_of(part[name]))
    for name, parts in found.items():
        values, step, score = np.concatenate(parts), name.removeprefix(CHANGED), name.removeprefix(SCORE)
        if name == "invalid":
            yield CaseColumn(name, "pixels predicted outside the classes", values, "count", "case")
        elif step != name:
            yield CaseColumn(f"changed/{step}", f"changed by {step}", values, "count", "post-processing")
        else:
            yield CaseColumn(f"extra/{score}", score, values, "number", "further scores")


def _measures(board: Scoreboard, summary: Mapping[str, Any], *, means: bool) -> Iterator[CaseColumn]:
    """Yield the measures of each case: means over several classes, or the values of each region."""
    several = Counter(name for name, region in board.measured if region in board.counted)
    for (metric, region), values in board.measured.items():
        if (region == MEAN) == means and (region != MEAN or several[metric] > 1):
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
    key, label = f"measure/{metric}/{region}", f"{metric}, {'mean over classes' if region == MEAN else region}"
    of_class, short = names.index(region) if region in names else None, figures.with_unit(metric, unit)
    options: dict[str, Any] = {"unit": unit, "better": find_direction(metric), "of_class": of_class, "short": short}
    return CaseColumn(key, label, values, "count" if values.dtype.kind == "i" else "number", metric, **options)


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
        if labels and hash_labels(board.run.case_ids, labels) == known:
            order = tuple(order_labels(labels))
            columns.append(CaseColumn(slice_key(name), name, labels, "choice", "slices", order=order))
        else:
            lost.append(name)
    if not lost:
        return columns, []
    where = f"{table} is gone or has changed" if table else "their source has changed"
    if any(hashes[name] is None for name in lost):
        where = "an older version wrote the run and did not record them"
    return columns, [f"The cases of the slices by {', '.join(lost)} can't be listed: {where}."]
