"""Defines the table of a run: one row of sufficient statistics per case, as Arrow columns.

Summaries, intervals, tests, comparisons and merges are computed from these columns. A table lies in memory, in a run's
cases.parquet, or in the journal of a running evaluation. Files are read a few thousand rows at a time, because the
counts of a case can take kilobytes.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from segmeter.checks import expected, require_kind, shorten, shown
from segmeter.classes import ClassSpec
from segmeter.errors import InputError
from segmeter.metrics.arrays import FloatArray
from segmeter.metrics.cases.objects import COLUMN as OBJECTS

# To bound the memory, at most this many rows and counts are handled at a time. A row of 150 classes has 22,500 counts.
BLOCK = 4096
CELLS = 1 << 21
TERMS = ("loss_sums", "loss_denominators")
HASHES = ("target_crc32", "objects_crc32")  # checksums that tell whether two runs have the same targets
CHANGED_PREFIX, EXTRA_PREFIX = "changed_", "extra_"  # prefixes of columns that only some runs have
UNKNOWN = -1  # a missing checksum, or the depth of an image
Edges = tuple[tuple[float, ...] | None, str]  # spacing and unit of a case
ColumnKey = tuple[str, str, bool]  # metric, region, and whether it is summed
_SUM = "sum:"  # prefix of columns that are added up over cases
FIXED = {
    "height": pa.int64(),
    "width": pa.int64(),
    "depth": pa.int64(),
    "spacing": pa.list_(pa.float64()),
    "unit": pa.string(),
    "loss": pa.float64(),
    **dict.fromkeys(TERMS, pa.list_(pa.float64())),
    **dict.fromkeys(HASHES, pa.int64()),
}
LARGE = ("confusion", "objects")  # columns that may not fit into memory for all cases at once
NO_ROWS = pa.schema([("case_id", pa.string()), *FIXED.items(), ("confusion", pa.large_list(pa.int64()))]).empty_table()


class MeasureColumn(NamedTuple):
    """One number that a measure gives for a case.

    Parameters
    ----------
    metric
        Such as "hd95" or "nsd@2"; no "/".
    region
        The class, or group of classes, that was measured.
    value
        NaN is undefined and inf a failure. Summed values are finite.
    summed
        False: a value of the case, to be averaged. True: a number to be added up for a score of the whole data set.
    """

    metric: str
    region: str
    value: float
    summed: bool = False

    @property
    def key(self) -> ColumnKey:
        """The key of the column: metric, region, summed."""
        return self.metric, self.region, self.summed


@cache
def encode_key(key: ColumnKey) -> str:
    """Return the name of a column in files.

    Examples
    --------
    >>> encode_key(("hd95", "car", False)), encode_key(("sizes_tp@small", "car", True))
    ('hd95/car', 'sum:sizes_tp@small/car')
    """
    metric, region, summed = key
    return f"{_SUM if summed else ''}{metric}/{region}"


@cache
def decode_key(name: str) -> ColumnKey | None:
    """Return the key of a column from its name in a file; None for a score that comes from no measure.

    Examples
    --------
    >>> decode_key("sum:tp/a/b"), decode_key("missing")
    (('tp', 'a/b', True), None)
    """
    metric, slash, region = name.removeprefix(_SUM).partition("/")
    return (metric, region, name.startswith(_SUM)) if slash else None


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class CaseRow:
    """The record of one case; every summary, interval, test and merge is computed from these rows.

    Parameters
    ----------
    case_id
        The case's name, unique in a run.
    height, width
        The size of the target, in pixels.
    counts : (K, K), (K, K + 1) with invalid predictions, or (K, 2, 2) for multilabel, int64
        From `confusion_matrix` or `multilabel_counts`. In cases.parquet, it is the column `confusion`.
    loss
        The loss of the case alone, or None if there is none.
    loss_terms
        A sum and a denominator for each part of the loss. Both add up over cases, see `divide_terms`.
    changed_pixels
        Pixels that each post-processing step changed, in the steps' order.
    measured
        Columns of the measures.
    extra
        Further scores by name, without "/"; NaN is undefined.
    depth
        The depth of a volume's target, in voxels; None for an image.
    spacing
        Pixel edge per axis, in axis order; None where it is unknown.
    unit
        The name of the spacing's unit; "" if it has none or is unknown.
    objects
        The case's rows of objects.parquet, by the names of its columns; None if objects were not requested.
    target_crc32
        The checksum of the target's labels, from `make_row`; None if unknown.
    objects_crc32
        The checksum of the target's objects, from `hash_objects`; None without an instance map.
    """

    case_id: str
    height: int
    width: int
    counts: NDArray[np.int64]
    loss: float | None = None
    loss_terms: tuple[tuple[float, float], ...] = ()
    changed_pixels: Mapping[str, int] = field(default_factory=dict)
    measured: Sequence[MeasureColumn] = ()
    extra: Mapping[str, float] = field(default_factory=dict)
    depth: int | None = None
    spacing: tuple[float, ...] | None = None
    unit: str = ""
    objects: Sequence[Mapping[str, Any]] | None = None
    target_crc32: int | None = None
    objects_crc32: int | None = None

    @property
    def scores(self) -> dict[str, float]:
        """Columns of the measures and further scores, by their names in files."""
        return {encode_key(column.key): float(column.value) for column in self.measured} | dict(self.extra)


def columns_of_rows(rows: Sequence[CaseRow]) -> pa.Table:
    """Lay out rows as the columns of a `CaseTable`. Columns that only some rows have are null in the others."""
    cells: list[dict[str, Any]] = [
        {name: getattr(row, name) for name in ("case_id", "height", "width", "depth", "loss", *HASHES)}
        | {"spacing": row.spacing and list(row.spacing), "unit": row.unit or None if row.spacing else "pixels"}
        | {name: [term[side] for term in row.loss_terms] or None for side, name in enumerate(TERMS)}
        | {CHANGED_PREFIX + step: pixels for step, pixels in row.changed_pixels.items()}
        | {EXTRA_PREFIX + name: score for name, score in row.scores.items()}
        for row in rows
    ]
    types = {"case_id": pa.string(), **FIXED}
    for prefix, dtype in ((CHANGED_PREFIX, pa.int64()), (EXTRA_PREFIX, pa.float64())):
        types |= dict.fromkeys((name for row_cells in cells for name in row_cells if name.startswith(prefix)), dtype)
    columns = {  # NaN becomes null
        name: pa.array([row_cells.get(name) for row_cells in cells], dtype, from_pandas=dtype == pa.float64())
        for name, dtype in types.items()
    }
    counts = [np.asarray(row.counts, np.int64).reshape(-1) for row in rows]
    ends = np.cumsum([0, *map(len, counts)])
    columns["confusion"] = pa.LargeListArray.from_arrays(pa.array(ends), pa.array(np.concatenate(counts)))
    columns["objects"] = pa.array([row.objects for row in rows], OBJECTS)
    return pa.table(columns)


@dataclass(frozen=True, eq=False, repr=False)
class CaseTable(Sequence[CaseRow]):
    """Rows of cases, kept as columns and read on demand.

    It has the columns of `NO_ROWS`, and others in which rows may have no value.

    Parameters
    ----------
    case_ids
        The ids, in the order of the rows.
    read
        Reads the columns of the rows from a start to a stop.
    counts_shape
        The shape of a case's counts, from `ClassSpec.counts_shape`.
    """

    case_ids: list[str]
    read: Callable[[int, int], pa.Table]
    counts_shape: tuple[int, ...]

    @classmethod
    def in_memory(cls, table: pa.Table, counts_shape: tuple[int, ...]) -> "CaseTable":
        """Make a table of columns that are in memory."""
        ids = table["case_id"].to_pylist()
        return cls(ids, lambda start, stop: table.slice(start, stop - start), counts_shape)

    def __len__(self) -> int:
        return len(self.case_ids)

    def __getitem__(self, index: Any) -> Any:
        chosen = range(len(self))[index]  # a range for a slice, else a number
        if isinstance(chosen, range):
            return self.take(chosen)
        return self._rows(self.read(chosen, chosen + 1))[0]

    def __iter__(self) -> Iterator[CaseRow]:
        for part in self.parts():
            yield from self._rows(part)

    def parts(self) -> Iterator[pa.Table]:
        """Yield the columns of some thousand rows at a time, fewer with many classes; without rows, `NO_ROWS`."""
        if not self:
            yield NO_ROWS
        rows = max(1, min(BLOCK, CELLS // max(1, math.prod(self.counts_shape))))
        for start in range(0, len(self), rows):
            yield self.read(start, min(start + rows, len(self)))

    def take(self, indices: Sequence[int] | NDArray[np.integer[Any]]) -> "CaseTable":
        """Return the rows with some indices, in that order, in memory."""
        table = self.read(0, len(self)).take(np.asarray(indices, np.int64))
        return self.in_memory(table, self.counts_shape)

    def counts(self, table: pa.Table) -> NDArray[np.int64]:
        """Return the counts (n, ...) of n rows that were read."""
        flat = table["confusion"].combine_chunks().flatten()
        return np.asarray(flat, np.int64).reshape(len(table), *self.counts_shape)

    def _rows(self, table: pa.Table) -> list[CaseRow]:
        counts = self.counts(table)
        return [_row(values, counts[i]) for i, values in enumerate(table.drop_columns("confusion").to_pylist())]


def floats_of(column: pa.ChunkedArray) -> FloatArray:
    """Return the numbers of a column; null is NaN."""
    return np.asarray(column.cast(pa.float64()), np.float64)


def whole_numbers(column: pa.ChunkedArray) -> NDArray[np.int64]:
    """Return the whole numbers of a column; null is `UNKNOWN`."""
    return np.asarray(pc.fill_null(column, UNKNOWN), np.int64)


def read_edges(spacing: Sequence[float] | None, unit: str | None) -> Edges:
    """Return the spacing and unit of a case from its columns."""
    return (tuple(spacing), unit or "") if spacing else (None, "")


def _row(values: Mapping[str, Any], counts: NDArray[np.int64]) -> CaseRow:
    """Make a row from its columns."""
    changed = dict[str, int]()
    measured = list[MeasureColumn]()
    extra = dict[str, float]()
    for name, value in values.items():
        score = name.removeprefix(EXTRA_PREFIX)
        number = np.nan if value is None else value
        if name.startswith(CHANGED_PREFIX):
            changed |= {} if value is None else {name.removeprefix(CHANGED_PREFIX): value}
        elif not name.startswith(EXTRA_PREFIX):
            continue
        elif key := decode_key(score):
            measured.append(MeasureColumn(key[0], key[1], number, key[2]))
        else:
            extra[score] = number
    spacing, unit = read_edges(values["spacing"], values["unit"])
    terms = tuple(zip(*(values[name] or () for name in TERMS), strict=True))
    loss = values["loss"]
    return CaseRow(
        **{name: values[name] for name in ("case_id", "height", "width", "depth", *HASHES)},
        counts=counts,
        loss=np.nan if loss is None and terms else loss,  # an undefined loss is null, but has terms
        loss_terms=terms,
        changed_pixels=changed,
        measured=tuple(measured),
        extra=extra,
        spacing=spacing,
        unit=unit,
        objects=values.get("objects"),
    )


def as_table(rows: Sequence[CaseRow]) -> CaseTable:
    """Lay out rows in memory; a table stays as it is."""
    if isinstance(rows, CaseTable):
        return rows
    if not rows:
        return CaseTable.in_memory(NO_ROWS, ())
    parts = [columns_of_rows(rows[start : start + BLOCK]) for start in range(0, len(rows), BLOCK)]
    return CaseTable.in_memory(pa.concat_tables(parts, promote_options="default"), rows[0].counts.shape)


def order_rows(where: str, rows: Sequence[CaseRow], spec: ClassSpec) -> CaseTable:
    """Sort rows by case id, after checking that they fit `spec` and that no case occurs twice.

    Raises
    ------
    InputError
        An id occurs twice, counts do not fit `spec`, or the arguments are not rows and a ClassSpec.
    """
    require_kind(where, "spec", spec, ClassSpec)
    if not isinstance(rows, Sequence) or isinstance(rows, str | bytes):
        remedy = "segmeter.read_cases(path) gives those of a run." if isinstance(rows, str) else ""
        raise InputError(expected(where, "rows", "to be a sequence of CaseRow", shown(rows), remedy))
    if isinstance(rows, CaseTable):
        ids = rows.case_ids
        misfits = ids if rows and rows.counts_shape != spec.counts_shape else []
    else:
        for row in rows:
            require_kind("rows", "row", row, CaseRow)
            require_kind(f"row {row.case_id!r}", "counts", row.counts, np.ndarray)
        ids = [row.case_id for row in rows]
        fits = {row.case_id: row.counts.shape == spec.counts_shape and row.counts.dtype == np.int64 for row in rows}
        misfits = [case_id for case_id, fit in fits.items() if not fit]
    if misfits:
        given = f"others in {shorten(misfits)}"
        raise InputError(expected(where, "counts", f"to be int64 {spec.counts_shape}", given))
    ordered = sorted(ids)
    if twice := sorted({case_id for case_id, following in itertools.pairwise(ordered) if case_id == following}):
        raise InputError(expected(where, "rows", "to hold each case once", f"twice: {shorten(twice)}"))
    table = as_table(rows)
    return table if ids == ordered else table.take(sorted(range(len(ids)), key=ids.__getitem__))
