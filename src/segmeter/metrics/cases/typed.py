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
    """

    case_ids: list[str]
    counts: NDArray[np.int64]
    shapes: NDArray[np.int64]
    hashes: NDArray[np.int64]
    edges: list[Edges]
    measured: dict[ColumnKey, FloatArray]


@dataclass(frozen=True, kw_only=True)
class RunColumns:
    """All cases of a run, some hundred bytes each; parameters that `CaseBlock` has are as there, of all N cases.

    Parameters
    ----------
    margins
        The columns of `ClassTotals.columns` of R regions: 4 R arrays (N,) of integers, in 32 bits where they fit; equal
        ones, as the totals of classes are, may be one array.
    spacings
        The distinct pairs of spacing and unit.
    spacing : (N,)
        Which of `spacings` each case has.
    """

    case_ids: list[str]
    margins: list[NDArray[np.integer]]
    shapes: NDArray[np.int64]
    hashes: NDArray[np.int64]
    spacings: list[Edges]
    spacing: NDArray[np.int32]
    measured: dict[ColumnKey, FloatArray]

    def totals(self, region: int) -> ClassTotals:
        """Margins (N,) of one region, int64."""
        regions = len(self.margins) // 4
        tp, target, predicted, total = (self.margins[k * regions + region].astype(np.int64) for k in range(4))
        return ClassTotals(tp=tp, target=target, predicted=predicted, total=total)

    def target(self) -> list[NDArray[np.integer]]:
        """Pixels of each region in the targets, (N,) each."""
        regions = len(self.margins) // 4
        return self.margins[regions : 2 * regions]


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
    margins = [np.empty(count, np.int64) for _ in range(4 * len(members))]
    shapes, hashes = np.empty((count, 3), np.int64), np.empty((count, 2), np.int64)
    spacing, places = np.empty(count, np.int32), dict[Edges, int]()
    case_ids, measured, done = list[str](), dict[ColumnKey, FloatArray](), 0
    for block in case_blocks(rows):
        part = slice(done, done := done + len(block.case_ids))
        case_ids += block.case_ids
        shapes[part], hashes[part] = block.shapes, block.hashes
        spacing[part] = [places.setdefault(edges, len(places)) for edges in block.edges]
        for column, values in zip(margins, region_margins(block.counts, spec, members).columns().T, strict=True):
            column[part] = values
        _put_measured(measured, block, part, count)
    return RunColumns(
        case_ids=case_ids,
        margins=_compact(margins, len(members)),
        shapes=shapes,
        hashes=hashes,
        spacings=list(places),
        spacing=spacing,
        measured=measured,
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


def _compact(margins: list[NDArray[np.int64]], regions: int) -> list[NDArray[np.integer]]:
    """Share the total of all pixels, which the classes of a case have in common, and take 32 bits where these do."""
    for place in range(3 * regions + 1, 4 * regions):
        if np.array_equal(margins[place], margins[3 * regions]):
            margins[place] = margins[3 * regions]
    narrow = {id(one): _narrow(one) for one in margins}
    return [narrow[id(one)] for one in margins]


def _narrow(column: NDArray[np.int64]) -> NDArray[np.integer]:
    return column.astype(np.int32) if column.max(initial=0) <= np.iinfo(np.int32).max else column


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
    )


def _or_unknown(number: int | None) -> int:
    return UNKNOWN if number is None else number
