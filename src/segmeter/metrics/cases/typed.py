"""rows -> typed columns: what is compared of a run's cases, as arrays of numbers instead of an object for each case."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from segmeter.classes import ClassSpec
from segmeter.metrics.arrays import FloatArray
from segmeter.metrics.cases.columns import ColumnKey
from segmeter.metrics.cases.regions import region_margins
from segmeter.metrics.cases.table import HASHES, CaseRow, Ordered, in_groups
from segmeter.metrics.pixels.overlap import ClassTotals

UNKNOWN = -1  # a checksum that is not there, or the depth of an image
Edges = tuple[tuple[float, ...] | None, str]  # spacing and unit of a case


@dataclass(frozen=True, kw_only=True)
class CaseBlock:
    """Some thousand cases.

    Parameters
    ----------
    case_ids
        Of the n cases.
    counts : (n, ...), int64
        As of `CaseRow`.
    shapes : (n, 3), int64
        Depth, height and width; the depth of an image is `UNKNOWN`.
    hashes : (n, 2), int64
        Checksums of the target and of its objects, or `UNKNOWN`.
    edges
        Spacing and unit of each case.
    measured
        Columns (n,) of the measures by their keys; NaN where a case has none.
    loss : (n,), float64
        NaN where there is none.
    loss_terms
        The sums and the denominators of the loss's parts, of each case; empty where a case has none.
    """

    case_ids: list[str]
    counts: NDArray[np.int64]
    shapes: NDArray[np.int64]
    hashes: NDArray[np.int64]
    edges: list[Edges]
    measured: dict[ColumnKey, FloatArray]
    loss: FloatArray
    loss_terms: list[tuple[tuple[float, float], ...]]


class Margins:
    """The margins of R regions in N cases, in 32 bits where they fit.

    The regions share a column of totals until there is a case in which these differ, as there may be of multilabel.

    Parameters
    ----------
    count
        N.
    regions
        R.
    """

    def __init__(self, count: int, regions: int) -> None:
        self.count = count
        self.regions = regions
        self._own: list[NDArray[np.integer]] = [np.zeros(count, np.int32) for _ in range(3 * regions)]
        self._totals: list[NDArray[np.integer]] = [np.zeros(count, np.int32)]

    def put(self, part: slice, margins: ClassTotals) -> None:
        """Fill in some cases."""
        own, totals = [*margins.tp.T, *margins.target.T, *margins.predicted.T], margins.total.T
        if len(self._totals) == 1 and (totals != totals[:1]).any():
            self._totals = [self._totals[0].copy() for _ in totals]
        for held, found in ((self._own, own), (self._totals, totals[: len(self._totals)])):
            for place, values in enumerate(found):
                if np.abs(values).max(initial=0) > np.iinfo(held[place].dtype).max:
                    held[place] = held[place].astype(np.int64)
                held[place][part] = values

    @property
    def columns(self) -> list[NDArray[np.integer]]:
        """Those of `ClassTotals.columns`: 4 R arrays (N,), of which the totals may be one array."""
        return [*self._own, *(self._totals * self.regions)[: self.regions]]

    @property
    def target(self) -> list[NDArray[np.integer]]:
        """Pixels of each region in the targets, (N,) each."""
        return self._own[self.regions : 2 * self.regions]

    def totals(self, region: int) -> ClassTotals:
        """Margins (N,) of one region, int64."""
        tp, target, predicted, total = (one.astype(np.int64) for one in self.columns[region :: self.regions])
        return ClassTotals(tp=tp, target=target, predicted=predicted, total=total)


@dataclass(frozen=True, kw_only=True)
class RunColumns:
    """All cases of a run, some hundred bytes each; parameters that `CaseBlock` has are as there, of all N cases.

    Parameters
    ----------
    margins
        Of R regions.
    spacings
        The distinct pairs of spacing and unit.
    spacing : (N,)
        Which of `spacings` each case has.
    counts
        Of all cases together.
    loss_terms : (N, P, 2) or None
        None where a case has none, or another number of them.
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


@runtime_checkable
class _WithBlocks(Protocol):
    def blocks(self) -> Iterator[CaseBlock]: ...


def case_blocks(rows: Sequence[CaseRow]) -> Iterator[CaseBlock]:
    """The rows as arrays, some thousands at a time; of rows that are stored as columns none is made for that."""
    held = rows.unwrapped if isinstance(rows, Ordered) else rows
    return held.blocks() if isinstance(held, _WithBlocks) else (_block(group) for group in in_groups(held))


def lay_out_run(rows: Sequence[CaseRow], spec: ClassSpec, regions: Mapping[str, Sequence[int]]) -> RunColumns:
    """Lay out one case or more, in their order, with the margins of regions, each a class or several."""
    count, members = len(rows), list(regions.values())
    margins = Margins(count, len(members))
    shapes, hashes = np.empty((count, 3), np.int64), np.empty((count, 2), np.int64)
    spacing, places = np.empty(count, np.int32), dict[Edges, int]()
    total, loss, terms = np.zeros(spec.counts_shape, np.int64), np.empty(count), list[FloatArray | None]()
    case_ids, measured, done = list[str](), dict[ColumnKey, FloatArray](), 0
    for block in case_blocks(rows):
        part = slice(done, done := done + len(block.case_ids))
        case_ids += block.case_ids
        shapes[part], hashes[part] = block.shapes, block.hashes
        spacing[part] = [places.setdefault(edges, len(places)) for edges in block.edges]
        margins.put(part, region_margins(block.counts, spec, members))
        _put_measured(measured, block, part, count)
        total += block.counts.sum(axis=0)
        loss[part] = block.loss
        terms.append(np.array(block.loss_terms) if len({len(one) for one in block.loss_terms}) == 1 else None)
    known = [each for each in terms if each is not None and each.size]
    same = len(known) == len(terms) and len({each.shape[1] for each in known}) == 1
    return RunColumns(
        case_ids=case_ids,
        margins=margins,
        shapes=shapes,
        hashes=hashes,
        spacings=list(places),
        spacing=spacing,
        measured=measured,
        counts=total,
        loss=loss,
        loss_terms=np.concatenate(known) if same else None,
    )


def measured_columns(rows: Sequence[CaseRow]) -> dict[ColumnKey, FloatArray]:
    """Columns (N,) of the measures by their keys; NaN where a case has none."""
    measured, done = dict[ColumnKey, FloatArray](), 0
    for block in case_blocks(rows):
        part = slice(done, done := done + len(block.case_ids))
        _put_measured(measured, block, part, len(rows))
    return measured


def _put_measured(measured: dict[ColumnKey, FloatArray], block: CaseBlock, part: slice, count: int) -> None:
    for key, found in block.measured.items():
        if key not in measured:
            measured[key] = np.full(count, np.nan)
        measured[key][part] = found


def _block(rows: Sequence[CaseRow]) -> CaseBlock:
    keys = dict.fromkeys(column.key for row in rows for column in row.measured)
    measured = {key: np.full(len(rows), np.nan) for key in keys}
    for i, row in enumerate(rows):
        for column in row.measured:
            measured[column.key][i] = column.value
    return CaseBlock(
        case_ids=[row.case_id for row in rows],
        counts=np.stack([row.counts for row in rows]),
        shapes=np.array([[_or_unknown(row.depth), row.height, row.width] for row in rows], np.int64),
        hashes=np.array([[_or_unknown(getattr(row, name)) for name in HASHES] for row in rows], np.int64),
        edges=[(row.spacing, row.unit) for row in rows],
        measured=measured,
        loss=np.array([np.nan if row.loss is None else row.loss for row in rows], np.float64),
        loss_terms=[row.loss_terms for row in rows],
    )


def _or_unknown(number: int | None) -> int:
    return UNKNOWN if number is None else number
