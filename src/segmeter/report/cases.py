"""Lays out the columns of a page's table of cases: everything that a finished run knows about each case.

The page makes a table column, a filter, a histogram and an axis of each, so a new kind of score needs no script.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from segmeter.classes import ClassSpec
from segmeter.errors import InputError, SegmeterError
from segmeter.metrics.cases.run_columns import STATUSES, class_statuses
from segmeter.metrics.cases.table import CHANGED_PREFIX, EXTRA_PREFIX, CaseTable, decode_key, floats_of, whole_numbers
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.config.scores import MEAN, find_direction, find_facts, is_number
from segmeter.metrics.statistics.clusters import cluster_labels
from segmeter.metrics.summary.scoreboard import Scoreboard, build_scoreboard
from segmeter.metrics.summary.slice_labels import hash_labels, order_labels, slice_labels
from segmeter.report import figures
from segmeter.report.columns import CaseColumn, CellLists, Kind

ID = "id"
HEADLINE = "headline"
SLICE = "slice/"  # Begins the key of a column with the slice of each case; the name of the fact follows.
STATUS_WORDS = dict(zip(STATUSES, ("found", "absent", "missed", "false alarm"), strict=True))

_FEW_CLASSES = 4  # With at most this many classes, the table shows their IoU before the reader chooses.
_MOST_CHOICES = 500  # A column with more texts than this is no choice.
_NOT_COUNTED = -1
_OBJECT_COUNTS = {"instances": "", "sizes": "object_", "events": "objects_"}
"""The prefix of a metric by the prefix of its sum."""


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
    is_iou_shown = spec.num_classes <= _FEW_CLASSES and spec.task != "binary"
    margins = board.run.totals(spec.names)
    statuses, words = class_statuses(margins), np.array([*STATUS_WORDS.values()])
    by_class = defaultdict[str, list[CaseColumn]](list)
    for k, name in enumerate(spec.names):
        for metric, short in figures.SCORES.items():
            by_class[metric].append(
                CaseColumn(
                    f"{metric}/{k}",
                    f"{short} of {name}",
                    board.values(f"{metric}/{name}"),
                    "score",
                    f"{short} by class",
                    of_class=k,
                    short=short,
                    better="higher",
                    shown=is_iou_shown and metric == "iou",
                )
            )
        outcomes, group = words[statuses[:, k]].tolist(), "found, missed or absent"
        status = CaseColumn(f"status/{k}", name, outcomes, "choice", group, of_class=k, short="status")
        pixels, label, short = margins.target[:, k].astype(np.int64), f"target pixels of {name}", "target pixels"
        support = CaseColumn(f"support/{k}", label, pixels, "count", "pixels by class", of_class=k, short=short)
        by_class["status"].append(status)
        by_class["support"].append(support)
    means, measures = _measured(board, summary)
    groups = [
        CaseColumn(f"group/{number}", f"IoU of {name}", board.values(f"iou/{name}"), "score", "groups", better="higher")
        for number, name in enumerate(board.config.groups)
    ]
    case_facts = [CaseColumn(ID, "case", board.run.case_ids, "text", "case", shown=True), *_facts(board, summary)]
    columns = [*case_facts, *_stored(rows, spec, cells), *further, *groups, *means]
    columns += [*by_class["iou"], *by_class["status"], *by_class["support"], *measures]
    return [*columns, *by_class["dice"], *by_class["precision"], *by_class["recall"]]


def _facts(board: Scoreboard, summary: Mapping[str, Any]) -> Iterator[CaseColumn]:
    """Yield the scores over all classes, and the facts about the case itself."""
    run, spec = board.run, board.spec
    names = {HEADLINE: board.headline} | {name: name for name in figures.AGGREGATES if name != board.headline}
    for key, name in names.items():
        facts = find_facts(name)
        kind: Kind = "score" if facts and facts.highest == 1 else "number"
        unit = summary.get("units", {}).get(name.partition("/")[0]) or ""
        better = find_direction(name)
        values = board.values(name)
        yield CaseColumn(key, figures.title(name), values, kind, "scores", unit=unit, better=better, shown=True)
    if spec.num_classes > 2:
        iou = np.stack([board.values(f"iou/{name}") for name in board.mean_classes], axis=1)
        defined = np.where(np.isnan(iou), np.inf, iou)
        weakest = [board.mean_classes[int(row.argmin())] if np.isfinite(row).any() else "" for row in defined]
        yield CaseColumn("weakest", "weakest class", weakest, "choice", "case", shown=True)
    sizes = [" \N{MULTIPLICATION SIGN} ".join(map(str, shape[shape >= 0])) for shape in run.shapes]
    yield CaseColumn("size", "size", sizes, "text", "case", shown=True)
    label = "target pixels" if spec.is_multilabel else f"target pixels other than {spec.names[0]}"
    target_pixels = run.region_totals.target[:, 0 if spec.is_multilabel else 1 : spec.num_classes]
    yield CaseColumn("objects", label, target_pixels.sum(axis=1, dtype=np.int64), "count", "case")
    yield CaseColumn("pixels", "pixels", np.where(run.shapes < 0, 1, run.shapes).prod(axis=1), "count", "case")
    if not np.isnan(run.loss).all() or run.loss_terms is not None:
        yield CaseColumn("loss", "loss", run.loss, "number", "scores", better="lower", shown=True)
    cluster = (summary.get("bootstrap") or {}).get("cluster")
    with suppress(InputError):  # the table that names the clusters may be gone
        if labels := cluster and cluster_labels(run.case_ids, cluster):
            kind = "choice" if len(set(labels)) <= _MOST_CHOICES else "text"
            yield CaseColumn("cluster", f"cluster ({cluster})", labels, kind, "case", shown=True)


def _stored(rows: CaseTable, spec: ClassSpec, cells: CellLists | None) -> Iterator[CaseColumn]:
    """Yield columns after one pass over the stored rows: invalid pixels, post-processing, further scores."""
    values = defaultdict[tuple[str, str, Kind, str], list[NDArray[Any]]](list)
    for part in map(pa.Table.combine_chunks, rows.parts()):
        counts = rows.counts(part)
        if cells is not None:
            cells.add(counts)
        if spec.count_invalid:
            invalid = counts[..., -1].sum(axis=-1)
            values["invalid", "pixels predicted outside the classes", "count", "case"].append(invalid)
        for name in part.column_names:
            if name.startswith(CHANGED_PREFIX):
                step = name.removeprefix(CHANGED_PREFIX)
                changed = whole_numbers(part[name])
                values[f"changed/{step}", f"changed by {step}", "count", "post-processing"].append(changed)
            elif name.startswith(EXTRA_PREFIX) and not decode_key(score := name.removeprefix(EXTRA_PREFIX)):
                values[f"extra/{score}", score, "number", "further scores"].append(floats_of(part[name]))
    for (key, label, kind, group), parts in values.items():
        yield CaseColumn(key, label, np.concatenate(parts), kind, group)


def _measured(board: Scoreboard, summary: Mapping[str, Any]) -> tuple[list[CaseColumn], list[CaseColumn]]:
    """Lay out the means of measures over several classes, then their values by region and the numbers of objects.

    A number of objects has a column only if the cases add up to the number of the data set.
    """
    num_classes = Counter(name for name, region in board.measured if region in board.mean_classes)
    means, by_region = [], []
    for (metric, region), values in board.measured.items():
        if region != MEAN:
            by_region.append(_measure(metric, region, values, summary))
        elif num_classes[metric] > 1:
            means.append(_measure(metric, region, values, summary))
    for (name, region, summed), values in board.run.measured.items():
        kind, _, rest = name.partition("_")
        metric = f"{_OBJECT_COUNTS[kind]}{rest}" if kind in _OBJECT_COUNTS else name
        if not summed or not is_number(metric):
            continue
        counts = np.where(np.isnan(values), _NOT_COUNTED, values).astype(np.int64)
        over_data_set = summary.get("measures", {}).get(metric, {}).get(region, {})
        if over_data_set.get("dataset") == counts[counts > 0].sum():
            by_region.append(_measure(metric, region, counts, summary))
    return means, by_region


def _measure(metric: str, region: str, values: NDArray[Any], summary: Mapping[str, Any]) -> CaseColumn:
    unit = summary.get("units", {}).get(metric) or ""
    names = summary.get("classes", [])
    return CaseColumn(
        f"measure/{metric}/{region}",
        f"{metric}, {'mean over classes' if region == MEAN else region}",
        values,
        "count" if values.dtype.kind == "i" else "number",
        metric,
        unit=unit,
        better=find_direction(metric),
        of_class=names.index(region) if region in names else None,
        short=figures.with_unit(metric, unit),
    )


def slice_columns(
    board: Scoreboard, hashes: Mapping[str, str | None], *, table: str | None
) -> tuple[list[CaseColumn], list[str]]:
    """Name the slice of each case, as it was when the run was summarised.

    Parameters
    ----------
    hashes
        From the summary: the hash of the labels of each fact (see `hash_labels`); None where the run recorded none.
    table
        The file of facts, or None.

    Returns
    -------
    list of CaseColumn
        One per fact.
    list of str
        One line about the facts that have no column because the table changed or the hash is None; or nothing.
    """
    columns, lost = list[CaseColumn](), list[str]()
    for name, recorded_hash in hashes.items():
        labels: list[str] = []
        with suppress(SegmeterError):
            config = board.config.replace(slices=table, slice_by=(name,))
            labels = list(slice_labels(replace(board, config=config))[name])
        if labels and hash_labels(board.run.case_ids, labels) == recorded_hash:
            order = tuple(order_labels(labels))
            columns.append(CaseColumn(f"{SLICE}{name}", name, labels, "choice", "slices", order=order))
        else:
            lost.append(name)
    why = f"{table or 'their source'} is gone or has changed, or an older version wrote the run"
    return columns, [f"The cases of the slices by {', '.join(lost)} can't be listed: {why}."] if lost else []
