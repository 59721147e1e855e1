"""Writes and reads the tables of cases: cases.parquet and cases.csv. The same rows give the same bytes."""

import itertools
import json
import math
import re
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pc_csv
import pyarrow.parquet as pq

from segmeter.checks import expected, known_path
from segmeter.classes import ClassSpec
from segmeter.errors import DataError
from segmeter.files import FORMULA, atomic_write, csv_bytes
from segmeter.metrics.cases.nnunet import is_nnunet, read_summary
from segmeter.metrics.cases.objects import NAME as OBJECTS_FILE
from segmeter.metrics.cases.objects import open_objects, write_objects
from segmeter.metrics.cases.table import (
    CHANGED,
    FIXED,
    HASHES,
    SCORE,
    TERMS,
    CaseRow,
    CaseTable,
    as_table,
    order_rows,
)
from segmeter.metrics.cases.typed import STATUSES, class_regions, class_statuses, region_margins
from segmeter.metrics.pixels.overlap import aggregate
from segmeter.schema import as_plain

FORMAT = 1  # of cases.parquet; a reader refuses a newer one
_KEPT = ("case_id", "height", "width", "depth", "spacing", "unit", "loss", "confusion", *TERMS, *HASHES)
NO_ROWS = pa.table({"case_id": pa.array([], pa.string()), "confusion": pa.array([], pa.large_list(pa.int64()))})
_REMEDY = "Give a run's folder or its cases.parquet."


class Batches:
    """Reads rows from a file that consists of batches, and keeps the batches that it read last.

    Parameters
    ----------
    sizes
        Rows of each batch.
    load
        Reads the batches of a range.
    """

    def __init__(self, sizes: Iterable[int], load: Callable[[range], pa.Table]) -> None:
        self._ends = np.cumsum([0, *sizes])
        self._load = load
        self._lock = threading.Lock()
        self._held: tuple[range, pa.Table] | None = None

    def read(self, start: int, stop: int) -> pa.Table:
        """Read the rows from `start` to `stop`."""
        first, last = np.searchsorted(self._ends[1:], [start, max(start, stop - 1)], side="right").tolist()
        wanted = range(first, last + 1) if stop > start else range(0)
        with self._lock:
            if self._held is None or self._held[0] != wanted:
                self._held = wanted, self._load(wanted)
            table = self._held[1]
        return table.slice(start - int(self._ends[first]) if wanted else 0, stop - start)


def case_table(rows: Sequence[CaseRow], spec: ClassSpec) -> pa.Table:
    """Lay out the rows as the table that `write_cases` writes, with the same errors."""
    return pa.concat_tables(wide for wide, _ in _wide_tables(order_rows("case_table", rows, spec), spec))


def write_cases(folder: str | Path, rows: Sequence[CaseRow], spec: ClassSpec) -> tuple[str, ...]:
    """Write ``cases.parquet`` and ``cases.csv``, one row per case, sorted by case id; return the names of the files.

    If rows have objects, ``objects.parquet`` is written too, see `write_objects`.

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
    tables = _wide_tables(ordered, spec)
    (first, part), held = next(tables), list[pa.Table]()
    with atomic_write(folder / "cases.parquet") as parquet, atomic_write(folder / "cases.csv") as text:
        shown = [name for name in first.column_names if name != "confusion"]
        text.write(csv_bytes([shown]))
        texts = [field.name for field in first.schema if field.type == pa.string()]  # numbers hardly repeat
        with pq.ParquetWriter(parquet, first.schema, compression="zstd", use_dictionary=texts) as writer:
            for table, kept in itertools.chain([(first, part)], tables):
                writer.write_table(table)
                pc_csv.write_csv(_as_text(table.select(shown)), text, pc_csv.WriteOptions(include_header=False))
                held += [kept.select(["case_id", "unit", "objects"])] if "objects" in kept.column_names else []
    return ("cases.parquet", "cases.csv", *([OBJECTS_FILE] if write_objects(folder, held) else []))


def _as_text(table: pa.Table) -> pa.Table:
    """Turn lists into text with spaces, and put an apostrophe before text that a spreadsheet would run."""
    for place, field in enumerate(table.schema):
        column = table[field.name]
        if pa.types.is_list(field.type):
            column = pc.binary_join(column.cast(pa.list_(pa.string())), " ")
        elif field.type == pa.string():
            runs = pc.match_substring_regex(column, "^[" + re.escape("".join(FORMULA)) + "]")
            column = pc.if_else(runs, pc.binary_join_element_wise("'", column, ""), column)
        table = table.set_column(place, field.name, column)
    return table


def _wide_tables(rows: CaseTable, spec: ClassSpec) -> Iterator[tuple[pa.Table, pa.Table]]:
    """Lay out some thousand rows at a time, each beside its columns; without rows, one empty table with the columns."""
    names = dict.fromkeys(("case_id",))
    for part in rows.parts():
        optional = [name for name in (*TERMS, *HASHES) if name in part.column_names]
        names |= dict.fromkeys(name for name in optional if part[name].null_count < len(part))
        names |= dict.fromkeys(name for name in part.column_names if name.startswith((CHANGED, SCORE)))
    note = json.dumps({"format": FORMAT, "spec": as_plain(spec)}, ensure_ascii=False)
    for part in rows.parts() if len(rows) else [NO_ROWS]:
        yield _wide(part.combine_chunks(), spec, names).replace_schema_metadata({"segmeter": note}), part


def _wide(kept: pa.Table, spec: ClassSpec, names: Collection[str]) -> pa.Table:
    """Lay out the columns of a part: its own, those of `names`, and the scores that follow from its counts."""
    cells = math.prod(spec.counts_shape)
    flat = np.asarray(kept["confusion"].combine_chunks().flatten(), np.int64)
    counts = flat.reshape(len(kept), *spec.counts_shape)
    margins = region_margins(counts, spec, list(class_regions(spec, {}).values()))
    columns = {name: _kept(kept, name) for name in ("case_id", *FIXED) if name not in (*TERMS, *HASHES)}
    every = range(spec.num_classes)
    for name in ("mean_iou", "mean_dice", "pixel_accuracy"):
        columns[name] = _floats(aggregate(name, margins, task=spec.task, classes=every))
    columns |= {"invalid": pa.array(counts[:, :, -1].sum(axis=1))} if spec.count_invalid else {}
    fp, fn = margins.predicted - margins.tp, margins.target - margins.tp
    for prefix, values in {"tp": margins.tp, "fp": fp, "fn": fn, "support": margins.target}.items():
        columns |= {f"{prefix}_{name}": pa.array(values[:, k], pa.int64()) for k, name in enumerate(spec.names)}
    for prefix in ("iou", "dice"):
        ratios = margins.ratio(prefix)
        columns |= {f"{prefix}_{name}": _floats(ratios[:, k]) for k, name in enumerate(spec.names)}
    texts, statuses = pa.array(STATUSES, pa.string()), class_statuses(margins)
    columns |= {f"status_{name}": texts.take(pa.array(statuses[:, k])) for k, name in enumerate(spec.names)}
    columns |= {name: _kept(kept, name) for name in (*TERMS, *HASHES) if name in names}
    for start, kind in ((CHANGED, pa.int64()), (SCORE, pa.float64())):
        columns |= {name: _kept(kept, name, kind) for name in names if name.startswith(start)}
    ends = pa.array(np.arange(len(kept) + 1) * cells)
    return pa.table(columns | {"confusion": pa.LargeListArray.from_arrays(ends, pa.array(flat))})


def _kept(table: pa.Table, name: str, kind: pa.DataType | None = None) -> pa.Array:
    """Return a column of a part, or nulls if it has none."""
    known = kind or FIXED.get(name, pa.string())  # Parquet names the parts of lists differently: other bytes
    return table[name].cast(known) if name in table.column_names else pa.nulls(len(table), known)


def _floats(values: Any) -> pa.Array:
    return pa.array(values, pa.float64(), from_pandas=True)  # NaN becomes null


def read_cases(path: str | Path, *, objects: bool = False) -> list[CaseRow]:
    """Read the rows of a ``cases.parquet``, or of the run's folder that holds it; exact, sorted by case id.

    With `objects`, the objects of each case are read from the folder's ``objects.parquet`` too. The path may also be a
    summary.json of nnU-Net, see `read_summary`.

    Raises
    ------
    DataError
        The file is missing, damaged, or not one of these.
    """
    return list(open_cases([path], objects=objects))


def read_spec(path: str | Path) -> ClassSpec:
    """Read the classes of a ``cases.parquet``, of the one in a run's folder, or of a summary.json of nnU-Net."""
    if is_nnunet(path):
        return read_summary(path)[0]
    return _describe("read_spec", path)[1]


def open_cases(paths: Sequence[str | Path], *, objects: bool = False) -> CaseTable:
    """Open the rows of several files as one table, sorted by case id; a case may occur several times.

    A path is a run's folder, its ``cases.parquet``, or a summary.json of nnU-Net. Rows of a single file are read on
    demand from a handle that stays open, so replacing the file changes nothing. With `objects`, the objects of each
    case are read from the ``objects.parquet`` next to it.

    Raises
    ------
    DataError
        As `read_cases`.
    """
    opened = [as_table(read_summary(path)[1]) if is_nnunet(path) else _open(path, objects=objects) for path in paths]
    shape = opened[0].counts_shape
    if len(opened) == 1 and all(one <= other for one, other in itertools.pairwise(opened[0].case_ids)):
        return opened[0]
    table = pa.concat_tables([one.read(0, len(one)) for one in opened], promote_options="default")
    del opened
    return CaseTable.in_memory(table.take(pc.sort_indices(table["case_id"].cast(pa.binary()))), shape)


def _open(given: str | Path, *, objects: bool) -> CaseTable:
    path, spec, names = _describe("read_cases", given)
    kept = [name for name in names if name in _KEPT or name.startswith((CHANGED, SCORE))]
    listed = open_objects(path.parent) if objects else None
    file = pq.ParquetFile(path)

    def load(groups: range) -> pa.Table:
        with _as_data_error(path):
            table = file.read_row_groups(list(groups), columns=kept)
        return table.append_column("objects", listed(table["case_id"].to_pylist())) if listed else table

    sizes = [file.metadata.row_group(index).num_rows for index in range(file.num_row_groups)]
    with _as_data_error(path):
        ids = file.read(columns=["case_id"])["case_id"].to_pylist()
    return CaseTable(ids, Batches(sizes, load).read, spec.counts_shape)


@contextmanager
def _as_data_error(path: Path) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise DataError(
            expected("read_cases", "path", "to be a cases.parquet", f"{path} ({error})", _REMEDY)
        ) from error


def _describe(where: str, given: str | Path) -> tuple[Path, ClassSpec, list[str]]:
    """Find the file, its classes and the names of its columns; DataError if segmeter did not write it."""
    path = known_path(where, "path", given)
    path = path / "cases.parquet" if path.is_dir() else path
    if not path.is_file():
        raise DataError(expected(where, "path", "to be a file", path, _REMEDY))
    try:
        schema = pq.read_schema(path)
        note = json.loads((schema.metadata or {})[b"segmeter"])
    except (pa.ArrowException, OSError, KeyError, ValueError, RecursionError) as error:
        raise DataError(expected(where, "path", "to be a cases.parquet", f"{path} ({error})", _REMEDY)) from error
    if note["format"] > FORMAT:
        rule = f"to be of format {FORMAT} or older"
        raise DataError(expected(where, "path", rule, f"{note['format']} in {path}", "Update segmeter."))
    return path, ClassSpec(**note["spec"]), list(schema.names)
