"""Writes and reads the tables of cases: cases.parquet and cases.csv. The same rows give the same bytes."""

import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pc_csv
import pyarrow.parquet as pq

from segmeter.checks import expected, require_path
from segmeter.classes import ClassSpec
from segmeter.errors import DataError
from segmeter.files import FORMULA, atomic_write, csv_bytes
from segmeter.metrics.cases.nnunet import is_nnunet, read_summary
from segmeter.metrics.cases.objects import NAME as OBJECTS_FILE
from segmeter.metrics.cases.objects import open_objects, write_objects
from segmeter.metrics.cases.run_columns import STATUSES, class_statuses
from segmeter.metrics.cases.table import (
    CHANGED_PREFIX,
    EXTRA_PREFIX,
    FIXED,
    HASHES,
    NO_ROWS,
    TERMS,
    CaseRow,
    CaseTable,
    as_table,
    order_rows,
)
from segmeter.metrics.pixels.overlap import aggregate, class_totals
from segmeter.schema import as_plain

FORMAT = 1  # version of cases.parquet; newer files are refused
_ROW_COLUMNS = ("case_id", "height", "width", "depth", "spacing", "unit", "loss", "confusion", *TERMS, *HASHES)
_AVERAGES = ("mean_iou", "mean_dice", "pixel_accuracy")
_REMEDY = "Give a run's folder or its cases.parquet."


def in_batches(sizes: Iterable[int], load: Callable[[range], pa.Table]) -> Callable[[int, int], pa.Table]:
    """Make a reader of rows from a start to a stop, for a file that consists of batches.

    Parameters
    ----------
    sizes
        Rows of each batch.
    load
        Reads the batches of a range. The last range that was read stays in memory.
    """
    ends = np.cumsum([0, *sizes])
    cached = lru_cache(maxsize=1)(load)

    def read(start: int, stop: int) -> pa.Table:
        first, last = np.searchsorted(ends[1:], [start, max(start, stop - 1)], side="right").tolist()
        batches = range(first, last + 1) if stop > start else range(0)
        return cached(batches).slice(start - int(ends[first]) if batches else 0, stop - start)

    return read


def case_table(rows: Sequence[CaseRow], spec: ClassSpec, classes: Sequence[int] | None = None) -> pa.Table:
    """Lay out the rows as the table that `write_cases` writes. Raises the same errors."""
    ordered = order_rows("case_table", rows, spec)
    return pa.concat_tables(table for _, table in _lay_out(ordered, spec, classes))


def write_cases(
    folder: str | Path, rows: Sequence[CaseRow], spec: ClassSpec, classes: Sequence[int] | None = None
) -> tuple[str, ...]:
    """Write ``cases.parquet`` and ``cases.csv``, one row per case, sorted by case id; return the names of the files.

    If rows have objects, ``objects.parquet`` is written too, see `write_objects`.

    The columns are ``case_id, height, width, depth, spacing, unit`` (of the spacing and of every distance of the case;
    "pixels" without a spacing), ``loss, mean_iou, mean_dice, pixel_accuracy`` and ``invalid`` (pixels of no class,
    where counted). Then follow, each for all classes, ``tp_, fp_, fn_, support_`` (int64) and ``iou_, dice_, status_``.
    The others are ``loss_sums, loss_denominators`` (of each part of the loss, where there is one), ``target_crc32,
    objects_crc32``, ``changed_<step>``, ``extra_<score>``, and (Parquet only) ``confusion``: the counts row by row.
    Undefined is null in Parquet and empty in CSV, where the values of a list are separated by spaces. Text in the CSV
    that a spreadsheet would run as a formula starts with an apostrophe.

    Parameters
    ----------
    folder
        The folder of the files, each of which appears complete or not at all.
    rows
        In any order.
    spec
        The classes; kept in the Parquet file.
    classes
        Indices of the classes that ``mean_iou`` and ``mean_dice`` run over; all by default.

    Raises
    ------
    InputError
        A case occurs twice, or counts do not fit `spec`.
    """
    folder = require_path("write_cases", "folder", folder)
    laid_out = _lay_out(order_rows("write_cases", rows, spec), spec, classes)
    first = next(laid_out)
    schema = first[1].schema
    objects = list[pa.Table]()
    # The block ends with the last one first: cases.parquet is there when cases.csv appears.
    with atomic_write(folder / "cases.csv") as csv, atomic_write(folder / "cases.parquet") as parquet:
        csv_columns = [name for name in schema.names if name != "confusion"]
        csv.write(csv_bytes([csv_columns]))
        texts = [field.name for field in schema if field.type == pa.string()]  # a dictionary doesn't help numbers
        with pq.ParquetWriter(parquet, schema, compression="zstd", use_dictionary=texts) as writer:
            for part, table in itertools.chain([first], laid_out):
                writer.write_table(table)
                pc_csv.write_csv(_as_text(table.select(csv_columns)), csv, pc_csv.WriteOptions(include_header=False))
                objects += [part.select(["case_id", "unit", "objects"])] if "objects" in part.column_names else []
    return ("cases.parquet", "cases.csv", *([OBJECTS_FILE] if write_objects(folder, objects) else []))


def _as_text(table: pa.Table) -> pa.Table:
    """Turn lists into text with spaces, and put an apostrophe before text that a spreadsheet would run."""
    for index, field in enumerate(table.schema):
        column = table[field.name]
        if pa.types.is_list(field.type):
            column = pc.binary_join(column.cast(pa.list_(pa.string())), " ")
        elif field.type == pa.string():
            is_formula = pc.match_substring_regex(column, "^[" + re.escape("".join(FORMULA)) + "]")
            column = pc.if_else(is_formula, pc.binary_join_element_wise("'", column, ""), column)
        table = table.set_column(index, field.name, column)
    return table


def _lay_out(rows: CaseTable, spec: ClassSpec, classes: Sequence[int] | None) -> Iterator[tuple[pa.Table, pa.Table]]:
    """Yield each part of the rows, and its columns in the file: those of the rows, and scores of the counts.

    All parts have the same columns in the file.
    """
    schema = NO_ROWS.schema
    filled = set[str]()
    for part in rows.parts():
        schema = pa.unify_schemas([schema, part.schema])
        filled |= {name for name in (*TERMS, *HASHES) if part[name].null_count < len(part)}
    optional = [name for name in (*TERMS, *HASHES) if name in filled]
    optional += [name for prefix in (CHANGED_PREFIX, EXTRA_PREFIX) for name in schema.names if name.startswith(prefix)]
    metadata = json.dumps({"format": FORMAT, "spec": as_plain(spec)}, ensure_ascii=False)
    averaged = range(spec.num_classes) if classes is None else classes
    status_names = pa.array(STATUSES)
    for part in rows.parts():
        table = pa.concat_tables([schema.empty_table(), part], promote_options="default").combine_chunks()
        counts = rows.counts(table).reshape(-1, *spec.counts_shape)
        totals = class_totals(counts, task=spec.task, count_invalid=spec.count_invalid)
        columns = {name: table[name] for name in ("case_id", *FIXED) if name not in (*TERMS, *HASHES)}
        numbers = {name: aggregate(name, totals, task=spec.task, classes=averaged) for name in _AVERAGES}
        numbers |= {"invalid": counts[:, :, -1].sum(axis=1)} if spec.count_invalid else {}
        wrong = {"fp": totals.predicted - totals.tp, "fn": totals.target - totals.tp}
        by_class = {"tp": totals.tp, **wrong, "support": totals.target}
        by_class |= {name: totals.ratio(name) for name in ("iou", "dice")}
        for prefix, values in by_class.items():
            numbers |= {f"{prefix}_{name}": values[:, k] for k, name in enumerate(spec.names)}
        columns |= {name: pa.array(values, from_pandas=True) for name, values in numbers.items()}  # NaN becomes null
        statuses = class_statuses(totals)
        columns |= {f"status_{name}": status_names.take(pa.array(statuses[:, k])) for k, name in enumerate(spec.names)}
        columns |= {name: table[name] for name in (*optional, "confusion")}
        yield part, pa.table(columns).replace_schema_metadata({"segmeter": metadata})


def read_cases(path: str | Path, *, objects: bool = False) -> list[CaseRow]:
    """Read the exact rows of a ``cases.parquet``, or of the run's folder that holds it, sorted by case id.

    With `objects`, the objects of each case are read from the folder's ``objects.parquet`` too. The path may also be a
    summary.json of nnU-Net, see `read_summary`.

    Raises
    ------
    DataError
        The file is missing, damaged, or of another kind.
    """
    return list(open_cases([path], objects=objects))


def read_spec(path: str | Path) -> ClassSpec:
    """Read the classes of a ``cases.parquet`` or of the run's folder that holds it, or of a summary.json of nnU-Net."""
    if is_nnunet(path):
        return read_summary(path)[0]
    return _open_file("read_spec", path)[2]


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
    if len(opened) == 1 and all(case_id <= following for case_id, following in itertools.pairwise(opened[0].case_ids)):
        return opened[0]
    table = pa.concat_tables([NO_ROWS, *(rows.read(0, len(rows)) for rows in opened)], promote_options="default")
    del opened
    return CaseTable.in_memory(table.take(pc.sort_indices(table["case_id"].cast(pa.binary()))), shape)


def _open(given: str | Path, *, objects: bool) -> CaseTable:
    path, file, spec = _open_file("read_cases", given)
    names = [
        name
        for name in file.schema_arrow.names
        if name in _ROW_COLUMNS or name.startswith((CHANGED_PREFIX, EXTRA_PREFIX))
    ]
    list_objects = open_objects(path.parent) if objects else None

    def load(groups: range) -> pa.Table:
        with _naming_damage("read_cases", path):
            table = file.read_row_groups(list(groups), columns=names)
        table = pa.concat_tables([NO_ROWS, table], promote_options="default")  # older files lack some columns
        return table.append_column("objects", list_objects(table["case_id"].to_pylist())) if list_objects else table

    sizes = [file.metadata.row_group(index).num_rows for index in range(file.num_row_groups)]
    with _naming_damage("read_cases", path):
        ids = file.read(columns=["case_id"])["case_id"].to_pylist()
    return CaseTable(ids, in_batches(sizes, load), spec.counts_shape)


def _open_file(where: str, given: str | Path) -> tuple[Path, pq.ParquetFile, ClassSpec]:
    """Open a cases.parquet, and read its classes; DataError if segmeter did not write it."""
    path = require_path(where, "path", given)
    path = path / "cases.parquet" if path.is_dir() else path
    if not path.is_file():
        raise DataError(expected(where, "path", "to be a file", path, _REMEDY))
    with _naming_damage(where, path):
        file = pq.ParquetFile(path)
        metadata = json.loads((file.schema_arrow.metadata or {})[b"segmeter"])
    if metadata["format"] > FORMAT:
        rule = f"to be of format {FORMAT} or older"
        raise DataError(expected(where, "path", rule, f"{metadata['format']} in {path}", "Update segmeter."))
    return path, file, ClassSpec(**metadata["spec"])


@contextmanager
def _naming_damage(where: str, path: Path) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError, KeyError, ValueError, RecursionError) as error:
        raise DataError(expected(where, "path", "to be a cases.parquet", f"{path} ({error})", _REMEDY)) from error
