"""rows of sufficient statistics -> cases.parquet and cases.csv, and back: exact, the same bytes for the same rows."""

import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, overload, runtime_checkable

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from segmeter.checks import expected, known_kind, known_path, shorten, shown
from segmeter.classes import ClassSpec
from segmeter.errors import InputError
from segmeter.files import atomic_write, csv_bytes
from segmeter.metrics.cases._layout import floats, lists, terms
from segmeter.metrics.cases.columns import MeasureColumn, encode_key
from segmeter.metrics.cases.csv_text import csv_lines
from segmeter.metrics.cases.objects import NAME as OBJECTS_FILE
from segmeter.metrics.cases.objects import write_objects
from segmeter.metrics.pixels.overlap import ClassTotals, class_totals, score_totals
from segmeter.schema import as_plain

FORMAT = 1  # of cases.parquet; a reader refuses a newer one
Head = tuple[str, tuple[int, ...], np.dtype[Any]]
STATUSES = ("ok", "both_empty", "prediction_empty", "target_empty")

BLOCK = 4096  # rows laid out at a time: bounds the memory of writing
_LISTED = 8  # values named in one message
TERMS = ("loss_sums", "loss_denominators")
HASHES = ("target_crc32", "objects_crc32")  # by which targets are compared


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class CaseRow:
    """The record of one case; every summary, interval, test and merge is computed from these rows.

    Parameters
    ----------
    case_id
        The case's name, unique in a run.
    height, width
        Of the target, in pixels.
    counts : (K, K), (K, K + 1) with invalid predictions, or (K, 2, 2) for multilabel, int64
        From `confusion_matrix` or `multilabel_counts`.
    loss
        Of the case alone, or None where there is none.
    loss_terms
        A sum and a denominator for each part of the loss: both add over cases, see `divide_terms`.
    changed_pixels
        Pixels that each post-processing step changed, in the steps' order.
    measured
        Columns of the measures.
    extra
        Further scores by name, without "/"; NaN is undefined.
    depth
        Of a volume's target, in voxels; None for an image.
    spacing
        Pixel edge per axis, in axis order; None where it is unknown.
    unit
        The name of the spacing's unit, "" where it has none or is unknown.
    objects
        Its part of objects.parquet, from `pack_objects`; empty where that was not asked for.
    target_crc32
        The checksum of its target, from `hash_target`; None where it is not known.
    objects_crc32
        The checksum of its target's objects, from `hash_objects`; None where their numbers are not given.
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
    objects: bytes = b""
    target_crc32: int | None = None
    objects_crc32: int | None = None

    @property
    def length_unit(self) -> str:
        """What distances of the case are measured in: "pixels" without a spacing, "" where its unit has no name."""
        return "pixels" if self.spacing is None else self.unit

    @property
    def shape(self) -> tuple[int, ...]:
        """(H, W), or (D, H, W) of a volume."""
        return (self.height, self.width) if self.depth is None else (self.depth, self.height, self.width)

    @property
    def scores(self) -> dict[str, float]:
        """Columns of the measures and further scores, by their names in files."""
        return {encode_key(column.key): float(column.value) for column in self.measured} | dict(self.extra)


def case_table(rows: Sequence[CaseRow], spec: ClassSpec) -> pa.Table:
    """Lay out the rows as the table that `write_cases` writes; raises as it does."""
    return pa.concat_tables(_tables(order_rows("case_table", rows, spec), spec))


def write_cases(folder: str | Path, rows: Sequence[CaseRow], spec: ClassSpec) -> tuple[str, ...]:
    """Write ``cases.parquet`` and ``cases.csv``, one row per case, sorted by case id; return the names of the files.

    Where rows have objects there is ``objects.parquet`` too, see `write_objects`.

    The columns are ``case_id, height, width, depth, spacing, unit`` (of the spacing and of every distance of the case;
    "pixels" without a spacing), ``loss, mean_iou, mean_dice, pixel_accuracy``, ``invalid`` (pixels of no class,
    where counted), then per class and in this order ``tp_, fp_, fn_, support_`` (int64), ``iou_, dice_, status_``, then
    ``loss_sums, loss_denominators`` (of each part of the loss, where there is one), ``target_crc32, objects_crc32``,
    ``changed_<step>``, ``extra_<score>``, and (Parquet only) ``confusion``: the counts row by row. Undefined is null in
    Parquet and empty in CSV, where a list is written with spaces. Text in the CSV that a spreadsheet would run as a
    formula starts with an apostrophe there.

    Parameters
    ----------
    folder
        Where the files appear, each complete or not at all.
    rows
        In any order.
    spec
        The classes; kept in the Parquet file.

    Raises
    ------
    InputError
        A case occurs twice, or counts do not fit `spec`.
    """
    folder, ordered = known_path("write_cases", "folder", folder), order_rows("write_cases", rows, spec)
    tables = _tables(ordered, spec)
    first = next(tables)
    with atomic_write(folder / "cases.parquet") as parquet, atomic_write(folder / "cases.csv") as text:
        text.write(csv_bytes([[name for name in first.column_names if name != "confusion"]]))
        texts = [field.name for field in first.schema if field.type == pa.string()]  # numbers hardly repeat
        with (
            pq.ParquetWriter(parquet, first.schema, compression="zstd", use_dictionary=texts) as writer,
            ThreadPoolExecutor(1, thread_name_prefix="table") as beside,
        ):
            for table in itertools.chain([first], tables):
                written = beside.submit(writer.write_table, table)  # Arrow needs no Python for that, and CSV much
                text.write(csv_lines(table.drop_columns("confusion")))
                written.result()
    objects = ((row.case_id, row.length_unit, row.objects) for group in in_groups(ordered) for row in group)
    return ("cases.parquet", "cases.csv", *([OBJECTS_FILE] if write_objects(folder, objects) else []))


@runtime_checkable
class _WithHeads(Protocol):
    def heads(self) -> Iterator[Head]: ...


class Ordered(Sequence[CaseRow]):
    """A view of rows in another order, without a copy."""

    def __init__(self, rows: Sequence[CaseRow], order: Sequence[int]) -> None:
        self._rows = rows
        self._order = order

    @property
    def unwrapped(self) -> Sequence[CaseRow]:
        """The rows themselves, where they are in this order already."""
        return self._rows if isinstance(self._order, range) else self

    def __len__(self) -> int:
        return len(self._order)

    @overload
    def __getitem__(self, index: int) -> CaseRow: ...
    @overload
    def __getitem__(self, index: slice) -> list[CaseRow]: ...
    def __getitem__(self, index: int | slice) -> CaseRow | list[CaseRow]:
        if not isinstance(index, slice):
            return self._rows[self._order[index]]
        order = self._order[index]
        if isinstance(order, range):
            return list(self._rows[order.start : order.stop : order.step])
        return [self._rows[i] for i in order]


def heads_of(rows: Sequence[CaseRow]) -> Iterator[Head]:
    """Id, shape and dtype of the counts of each row; packed rows are not unpacked for that."""
    held = rows.unwrapped if isinstance(rows, Ordered) else rows
    return held.heads() if isinstance(held, _WithHeads) else map(_head, held)


def _head(row: CaseRow) -> Head:
    known_kind("rows", "row", row, CaseRow)
    known_kind(f"row {row.case_id!r}", "counts", row.counts, np.ndarray)
    return row.case_id, row.counts.shape, row.counts.dtype


def order_rows(where: str, rows: Sequence[CaseRow], spec: ClassSpec) -> Ordered:
    """Sort rows by case id, after checking that they fit `spec` and that no case occurs twice.

    Raises
    ------
    InputError
        With every duplicated id and the first rows whose counts do not fit; or these are no rows, or no ClassSpec.
    """
    known_kind(where, "spec", spec, ClassSpec)
    if not isinstance(rows, Sequence) or isinstance(rows, str | bytes):
        remedy = "segmeter.read_cases(path) gives those of a run." if isinstance(rows, str) else ""
        raise InputError(expected(where, "rows", "to be a sequence of CaseRow", shown(rows), remedy))
    shape, ids, foreign = spec.counts_shape, [], []
    for case_id, counts, dtype in heads_of(rows):
        ids.append(case_id)
        if counts != shape or dtype != np.int64:
            foreign.append(f"{dtype} {counts} of {case_id!r}")
    sorted_already = all(one < other for one, other in itertools.pairwise(ids))
    order = range(len(ids)) if sorted_already else sorted(range(len(ids)), key=ids.__getitem__)
    twice = sorted({ids[one] for one, other in itertools.pairwise(order) if ids[one] == ids[other]})
    problems = [expected(where, "counts", f"to be int64 {shape}", given) for given in foreign[:_LISTED]]
    if twice:
        problems.append(expected(where, "rows", "to hold each case once", f"twice: {shorten(twice, most=_LISTED)}"))
    if problems:
        raise InputError(problems)
    return Ordered(rows, order)


def in_groups(rows: Sequence[CaseRow]) -> Iterator[Sequence[CaseRow]]:
    """Yield the rows some thousands at a time, which bounds the memory of what is computed from them."""
    for start in range(0, len(rows), BLOCK):
        yield rows[start : start + BLOCK]


def stack_totals(rows: Sequence[CaseRow], spec: ClassSpec) -> ClassTotals:
    """Margins (N, K), int64, of all rows; only some thousands of confusion matrices are copied at a time."""
    columns, done = np.empty((len(rows), 4 * spec.num_classes), np.int64), 0
    for group in in_groups(rows):
        counts = np.stack([row.counts for row in group])
        totals = class_totals(counts, task=spec.task, count_invalid=spec.count_invalid)
        columns[done : (done := done + len(group))] = totals.columns()
    return ClassTotals.from_columns(columns)


def sum_counts(rows: Sequence[CaseRow], spec: ClassSpec) -> NDArray[np.int64]:
    """Counts of all cases together."""
    total = np.zeros(spec.counts_shape, np.int64)
    for row in rows:
        total += row.counts
    return total


def divide_terms(terms: NDArray[np.float64]) -> float:
    """The loss of cases together, from the sums and denominators (N, P, 2) of its P parts.

    A part whose denominators are 0 does not add up, as it is divided already, and is averaged over the cases.

    Examples
    --------
    Two cases of 1 and 3 pixels, with losses of 2 and 1 per pixel:

    >>> divide_terms(np.array([[[2.0, 1.0]], [[3.0, 3.0]]]))
    1.25
    """
    sums, denominators = terms.sum(axis=0).T
    return float((sums / np.where(denominators > 0, denominators, len(terms))).sum())


def class_statuses(margins: ClassTotals) -> NDArray[np.int64]:
    """Index into `STATUSES` per case and class."""
    no_target, no_prediction = margins.target == 0, margins.predicted == 0
    chosen: NDArray[Any] = np.select([no_target & no_prediction, no_prediction, no_target], [1, 2, 3], 0)
    return chosen


def _tables(rows: Sequence[CaseRow], spec: ClassSpec) -> Iterator[pa.Table]:
    """Lay out the rows, a group at a time; without rows, one empty table with the columns."""
    changed, extra, hashes, has_loss = dict[str, Any](), dict[str, Any](), dict[str, None](), False
    for row in itertools.chain.from_iterable(in_groups(rows)):
        changed.update(row.changed_pixels)  # only the names are of use
        extra.update(row.scores)
        has_loss |= bool(row.loss_terms)
        for name in HASHES:
            if getattr(row, name) is not None:
                hashes[name] = None
    note = json.dumps({"format": FORMAT, "spec": as_plain(spec)}, ensure_ascii=False)
    for group in in_groups(rows) if rows else [rows]:
        columns = _fixed_columns(group, spec)
        if has_loss:
            columns |= {name: terms([row.loss_terms for row in group], side) for side, name in enumerate(TERMS)}
        columns |= {name: pa.array([getattr(row, name) for row in group], pa.int64()) for name in hashes}
        for step in changed:
            columns[f"changed_{step}"] = pa.array([row.changed_pixels.get(step) for row in group], pa.int64())
        scores = [row.scores for row in group] if extra else []
        for name in extra:
            columns[f"extra_{name}"] = floats([one.get(name) for one in scores])
        columns["confusion"] = lists([row.counts for row in group], math.prod(spec.counts_shape))
        yield pa.table(columns).replace_schema_metadata({"segmeter": note})


def _fixed_columns(rows: Sequence[CaseRow], spec: ClassSpec) -> dict[str, pa.Array]:
    margins = stack_totals(rows, spec)
    scores = score_totals(margins, task=spec.task)
    columns = {"case_id": pa.array([row.case_id for row in rows], pa.string())}
    sizes = ("height", "width", "depth")
    columns |= {name: pa.array([getattr(row, name) for row in rows], pa.int64()) for name in sizes}
    columns["spacing"] = pa.array([row.spacing and list(row.spacing) for row in rows], pa.list_(pa.float64()))
    columns["unit"] = pa.array([row.length_unit or None for row in rows], pa.string())
    columns["loss"] = floats([row.loss for row in rows])
    columns |= {name: floats(getattr(scores, name)) for name in ("mean_iou", "mean_dice", "pixel_accuracy")}
    columns |= {"invalid": pa.array([row.counts[:, -1].sum() for row in rows])} if spec.count_invalid else {}
    fp, fn = margins.predicted - margins.tp, margins.target - margins.tp
    for prefix, values in {"tp": margins.tp, "fp": fp, "fn": fn, "support": margins.target}.items():
        columns |= {f"{prefix}_{name}": pa.array(values[:, k], pa.int64()) for k, name in enumerate(spec.names)}
    for prefix, ratios in {"iou": scores.iou, "dice": scores.dice}.items():
        columns |= {f"{prefix}_{name}": floats(ratios[:, k]) for k, name in enumerate(spec.names)}
    texts, statuses = pa.array(STATUSES, pa.string()), class_statuses(margins)
    return columns | {f"status_{name}": texts.take(pa.array(statuses[:, k])) for k, name in enumerate(spec.names)}
