"""Turns columns of a table into NumPy arrays: totals of classes and regions, losses, and facts to compare runs by."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from segmeter.classes import ClassSpec
from segmeter.metrics.arrays import FloatArray
from segmeter.metrics.cases.table import (
    HASHES,
    SCORE,
    TERMS,
    CaseRow,
    ColumnKey,
    Edges,
    as_table,
    decode_key,
    floats_of,
    read_edges,
    read_terms,
    whole_numbers,
)
from segmeter.metrics.pixels.overlap import ClassTotals, class_totals

STATUSES = ("ok", "both_empty", "prediction_empty", "target_empty")


@dataclass(frozen=True, kw_only=True)
class Margins:
    """The margins of R regions in N cases, in 32 bits where they fit.

    Parameters
    ----------
    columns
        Those of `ClassTotals.columns`: 4 R arrays (N,). Regions of one map share the array of their totals.
    """

    columns: list[NDArray[np.integer]]

    @property
    def target(self) -> list[NDArray[np.integer]]:
        """Pixels of each region in the targets, (N,) each."""
        regions = len(self.columns) // 4
        return self.columns[regions : 2 * regions]

    def totals(self, region: int) -> ClassTotals:
        """Return the margins (N,) of one region, int64."""
        return self.of([region]).map(lambda part: part[:, 0])

    def of(self, regions: Sequence[int], cases: slice = slice(None)) -> ClassTotals:
        """Return the margins (n, R) of some regions in some cases, int64."""
        each = len(self.columns) // 4
        chosen = [self.columns[part * each + region][cases] for part in range(4) for region in regions]
        found = np.empty((len(self.columns[0][cases]), len(chosen)), np.int64)
        for place, column in enumerate(chosen):
            found[:, place] = column
        return ClassTotals.from_columns(found)


@dataclass(frozen=True, kw_only=True)
class RunColumns:
    """All N cases of a run, some hundred bytes each.

    Parameters
    ----------
    case_ids
        In the order of the rows.
    margins
        Of R regions.
    shapes : (N, 3), int64
        Depth, height and width; the depth of an image is `UNKNOWN`.
    hashes : (N, 2), int64
        Checksums of the target and of its objects, or `UNKNOWN`.
    spacings
        The distinct pairs of spacing and unit.
    spacing : (N,)
        Which of `spacings` each case has.
    measured
        Columns (N,) of the measures by their keys; NaN where a case has none.
    counts
        Of all cases together.
    loss : (N,)
        NaN where there is none.
    loss_terms : (N, P, 2) or None
        The sum and the denominator of each part of the loss; None where a case has none, or another number of them.
    """

    case_ids: list[str]
    margins: Margins
    shapes: NDArray[np.int64]
    hashes: NDArray[np.int64]
    spacings: list[Edges]
    spacing: NDArray[np.int32]
    measured: dict[ColumnKey, FloatArray]
    counts: NDArray[np.int64]
    loss: FloatArray
    loss_terms: FloatArray | None


def lay_out_run(rows: Sequence[CaseRow], spec: ClassSpec, regions: Mapping[str, Sequence[int]]) -> RunColumns:
    """Lay out one case or more, in their order, with the margins of regions, each a class or several."""
    table, members = as_table(rows), list(regions.values())
    spacings, total = dict[Edges, int](), np.zeros(spec.counts_shape, np.int64)
    margins = [_narrow_columns(region_margins(np.empty((0, *spec.counts_shape), np.int64), spec, members), spec)]
    case_ids, measured = list[str](), dict[ColumnKey, FloatArray]()
    columns = [(np.empty(0, np.int32), np.empty((0, 5), np.int64), np.empty(0))]
    lengths, loss_terms = set[int](), list[FloatArray]()
    for part in map(pa.Table.combine_chunks, table.parts()):
        counts, done = table.counts(part), len(case_ids)
        total += counts.sum(axis=0)
        margins.append(_narrow_columns(region_margins(counts, spec, members), spec))
        case_ids += part["case_id"].to_pylist()
        terms = [read_terms(*each) for each in zip(*(_listed(part, name) for name in TERMS), strict=True)]
        lengths |= set(map(len, terms))
        if len(lengths) == 1:
            loss_terms.append(np.array(terms))
        edges = map(read_edges, _listed(part, "spacing"), _listed(part, "unit"))
        spacing = np.array([spacings.setdefault(each, len(spacings)) for each in edges], np.int32)
        integers = [whole_numbers(part, name) for name in ("depth", "height", "width", *HASHES)]
        columns.append((spacing, np.stack(integers, axis=1), floats_of(part["loss"])))
        for name in part.column_names:
            if name.startswith(SCORE) and (key := decode_key(name.removeprefix(SCORE))):
                whole = measured.setdefault(key, np.full(len(rows), np.nan))
                whole[done : len(case_ids)] = floats_of(part[name])
    spacing, whole_columns, loss = (np.concatenate(parts) for parts in zip(*columns, strict=True))
    held, joined = [list(parts) for parts in zip(*margins, strict=True)], list[NDArray[np.integer]]()
    margins.clear()
    while held:  # column by column, so that no more than one is in memory twice
        joined.append(np.concatenate(held.pop(0)))
    return RunColumns(
        case_ids=case_ids,
        margins=Margins(columns=joined + joined[-1:] * (4 * len(members) - len(joined))),
        shapes=whole_columns[:, :3],
        hashes=whole_columns[:, 3:],
        spacings=list(spacings),
        spacing=spacing,
        measured=measured,
        counts=total,
        loss=loss,
        loss_terms=np.concatenate(loss_terms) if len(lengths) == 1 and lengths != {0} else None,
    )


def _listed(part: pa.Table, name: str) -> list[Any]:
    """Return the values of a column that older files lack."""
    return part[name].to_pylist() if name in part.column_names else [None] * len(part)


def _narrow_columns(margins: ClassTotals, spec: ClassSpec) -> list[NDArray[np.integer]]:
    """Split margins into columns, in 32 bits where they fit; regions of one map share the column of their totals."""
    columns = list(margins.columns().T)
    if not spec.is_multilabel:
        del columns[3 * len(columns) // 4 + 1 :]
    most = np.iinfo(np.int32).max
    return [one.astype(np.int32 if one.max(initial=0) <= most else np.int64) for one in columns]


def region_margins(counts: NDArray[np.int64], spec: ClassSpec, members: Sequence[Sequence[int]]) -> ClassTotals:
    """Return the margins (N, R) of the counts (N, ...) of some cases; `members` are the classes of each region."""
    if all(len(held) == 1 for held in members):
        every = class_totals(counts, task=spec.task, count_invalid=spec.count_invalid)
        return every.map(lambda part: part[:, [held[0] for held in members]])
    tp = np.stack([counts[:, held][:, :, held].sum(axis=(1, 2)) for held in members], axis=1)
    target = np.stack([counts[:, held].sum(axis=(1, 2)) for held in members], axis=1)
    predicted = np.stack([counts[:, :, held].sum(axis=(1, 2)) for held in members], axis=1)
    total = np.broadcast_to(counts.sum(axis=(1, 2))[:, None], tp.shape)
    return ClassTotals(tp, target, predicted, total)


def class_regions(spec: ClassSpec, groups: Mapping[str, Sequence[str]]) -> dict[str, list[int]]:
    """Return every class, then the groups, by name. `check_metrics` refuses a group with the name of a class."""
    return {name: [k] for k, name in enumerate(spec.names)} | {
        name: [spec.names.index(one) for one in members] for name, members in groups.items()
    }


def divide_terms(terms: NDArray[np.float64]) -> float:
    """Compute the loss of all cases together from the sums and denominators (N, P, 2) of its P parts.

    A part whose denominators are 0 is a mean already, and is averaged over the cases.

    Examples
    --------
    Two cases of 1 and 3 pixels, with losses of 2 and 1 per pixel:

    >>> divide_terms(np.array([[[2.0, 1.0]], [[3.0, 3.0]]]))
    1.25
    """
    sums, denominators = terms.sum(axis=0).T
    return float((sums / np.where(denominators > 0, denominators, len(terms))).sum())


def class_statuses(margins: ClassTotals) -> NDArray[np.int64]:
    """Return an index into `STATUSES` per case and class."""
    no_target, no_prediction = margins.target == 0, margins.predicted == 0
    chosen: NDArray[Any] = np.select([no_target & no_prediction, no_prediction, no_target], [1, 2, 3], 0)
    return chosen
