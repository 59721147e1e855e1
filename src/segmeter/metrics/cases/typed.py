"""Turns columns of a table into NumPy arrays: totals of classes and regions, losses, and facts to compare runs by."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from segmeter.classes import ClassSpec
from segmeter.metrics.arrays import FloatArray, IntArray
from segmeter.metrics.cases.table import (
    HASHES,
    LARGE,
    SCORE,
    TERMS,
    CaseRow,
    ColumnKey,
    Edges,
    as_table,
    decode_key,
    floats_of,
    read_edges,
    whole_numbers,
)
from segmeter.metrics.pixels.overlap import ClassTotals, class_totals

STATUSES = ("ok", "both_empty", "prediction_empty", "target_empty")

_MOST = np.iinfo(np.int32).max


@dataclass(frozen=True, kw_only=True)
class RunColumns:
    """All N cases of a run, some hundred bytes each.

    Parameters
    ----------
    case_ids
        In the order of the rows.
    regions
        Every class, then the groups of classes; R names.
    margins : (N, R) each
        The totals of the regions, in 32 bits where they fit; `totals` widens them. Regions of one map share the memory
        of their total.
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
    regions: list[str]
    margins: ClassTotals
    shapes: IntArray
    hashes: IntArray
    spacings: list[Edges]
    spacing: NDArray[np.int32]
    measured: dict[ColumnKey, FloatArray]
    counts: IntArray
    loss: FloatArray
    loss_terms: FloatArray | None

    def totals(self, regions: str | Sequence[str], cases: slice = slice(None)) -> ClassTotals:
        """Return the margins of some regions (n, R) in some cases, or of a single one (n,), int64."""
        index = self.regions.index
        places: Any = index(regions) if isinstance(regions, str) else [index(one) for one in regions]
        return self.margins.map(lambda part: part[cases, places].astype(np.int64, order="C"))


def lay_out_run(rows: Sequence[CaseRow], spec: ClassSpec, groups: Mapping[str, Sequence[str]]) -> RunColumns:
    """Lay out cases in their order, with the margins of every class and group of classes."""
    table, regions = as_table(rows), class_regions(spec, groups)
    spacings, spacing = dict[Edges, int](), list[int]()
    total, margins, others = np.zeros(spec.counts_shape, np.int64), list[list[IntArray]](), list[pa.Table]()
    for part in table.parts():
        counts = table.counts(part).reshape(-1, *spec.counts_shape)
        total += counts.sum(axis=0)
        margins.append(_narrow(region_margins(counts, spec, list(regions.values())), spec))
        edges = map(read_edges, part["spacing"].to_pylist(), part["unit"].to_pylist())
        spacing += [spacings.setdefault(each, len(spacings)) for each in edges]
        others.append(part.select([name for name in part.column_names if name not in LARGE]))
    columns = pa.concat_tables(others, promote_options="default")
    keys = {name: decode_key(name.removeprefix(SCORE)) for name in columns.column_names if name.startswith(SCORE)}
    return RunColumns(
        case_ids=table.case_ids,
        regions=list(regions),
        margins=_join(margins, len(regions)),
        shapes=np.stack([whole_numbers(columns[name]) for name in ("depth", "height", "width")], axis=1),
        hashes=np.stack([whole_numbers(columns[name]) for name in HASHES], axis=1),
        spacings=list(spacings),
        spacing=np.array(spacing, np.int32),
        measured={key: floats_of(columns[name]) for name, key in keys.items() if key},
        counts=total,
        loss=floats_of(columns["loss"]),
        loss_terms=_read_terms(*(columns[name].combine_chunks() for name in TERMS)),
    )


def _narrow(margins: ClassTotals, spec: ClassSpec) -> list[IntArray]:
    """Return the four parts (R, n) of margins, in 32 bits where they fit; one total (1, n) if all regions share it."""
    parts = [*margins[:3], margins.total if spec.is_multilabel else margins.total[:, :1]]
    return [np.ascontiguousarray(one.T, np.int32 if one.max(initial=0) <= _MOST else np.int64) for one in parts]


def _join(margins: list[list[IntArray]], regions: int) -> ClassTotals:
    """Join what `_narrow` returns, part by part, so that no more than one part is in memory twice."""
    joined = [np.concatenate([parts.pop(0) for parts in margins], axis=1).T for _ in range(4)]
    return ClassTotals(*(np.broadcast_to(one, (len(one), regions)) for one in joined))


def _read_terms(sums: pa.Array, denominators: pa.Array) -> FloatArray | None:
    """Return the terms (N, P, 2) of the cases' losses; None where a case has none, or another number of them."""
    lengths = pc.unique(pc.list_value_length(sums)).to_pylist()
    if len(lengths) != 1 or not lengths[0]:
        return None
    return np.stack([np.asarray(one.flatten()).reshape(-1, lengths[0]) for one in (sums, denominators)], axis=2)


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
