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
from segmeter.metrics.cases.table import (
    CHANGED,
    FIXED,
    HASHES,
    NO_ROWS,
    SCORE,
    TERMS,
    CaseRow,
    CaseTable,
    as_table,
    order_rows,
)
from segmeter.metrics.cases.typed import STATUSES, class_statuses
from segmeter.metrics.pixels.overlap import aggregate, class_totals
from segmeter.schema import as_plain

FORMAT = 1  # of cases.parquet; a reader refuses a newer one
_KEPT = ("case_id", "height", "width", "depth", "spacing", "unit", "loss", "confusion", *TERMS, *HASHES)
_AVERAGES = ("mean_iou", "mean_dice", "pixel_accuracy")
_REMEDY = "Give a run's folder or its cases.parquet."


def in_batches(sizes: Iterable[int], load: Callable[[range], pa.Table]) -> Callable[[int, int], pa.Table]:
    """Make a reader of rows from a start to a stop, for a file that consists of batches.

    Parameters
    ----------
    sizes
        Rows of each batch.
    load
        Reads the batches of a range. The last ones stay in memory.
    """
    ends, held = np.cumsum([0, *sizes]), lru_cache(maxsize=1)(load)

    def read(start: int, stop: int) -> pa.Table:
        first, last = np.searchsorted(ends[1:], [start, max(start, stop - 1)], side="right").tolist()
        wanted = range(first, last + 1) if stop > start else range(0)
        return held(wanted).slice(start - int(ends[first]) if wanted else 0, stop - start)

    return read


def case_table(rows: Sequence[CaseRow], spec: ClassSpec, classes: Sequence[int] | None = None) -> pa.Table:
    """Lay out the rows as the table that `write_cases` writes, with the same errors."""
    ordered = order_rows("case_table", rows, spec)
    return pa.concat_tables(table for _, table in _lay_out(ordered, spec, classes))


def write_cases(
    folder: str | Path, rows: Sequence[CaseRow], spec: ClassSpec, classes: Sequence[int] | None = None
) -> tuple[str, ...]:
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
    classes
        Indices of the classes that ``mean_iou`` and ``mean_dice`` run over; all by default.

    Raises
    ------
    InputError
        A case occurs twice, or counts do not fit `spec`.
    """
    folder, ordered = require_path("write_cases", "folder", folder), order_rows("write_cases", rows, spec)
    laid_out, objects = _lay_out(ordered, spec, classes), list[pa.Table]()
    first = next(laid_out)
    schema = first[1].schema
    with atomic_write(folder / "cases.parquet") as parquet, atomic_write(folder / "cases.csv") as text:
        shown = [name for name in schema.names if name != "confusion"]
        text.write(csv_bytes([shown]))
        texts = [field.name for field in schema if field.type == pa.string()]  # numbers hardly repeat
        with pq.ParquetWriter(parquet, schema, compression="zstd", use_dictionary=texts) as writer:
            for part, table in itertools.chain([first], laid_out):
                writer.write_table(table)
                pc_csv.write_csv(_as_text(table.select(shown)), text, pc_csv.WriteOptions(include_header=False))
                objects += [part.select(["case_id", "unit", "objects"])] if "objects" in part.column_names else []
    return ("cases.parquet", "cases.csv", *([OBJECTS_FILE] if write_objects(folder, objects) else []))


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


def _lay_out(rows: CaseTable, spec: ClassSpec, classes: Sequence[int] | None) -> Iterator[tuple[pa.Table, pa.Table]]:
    """Yield each part of the rows with that of the file, all with the same columns: those of the rows, and the scores
    that follow from the counts.
    """
    schema, held = NO_ROWS.schema, set[str]()
    for part in rows.parts():
        schema = pa.unify_schemas([schema, part.schema])
        held |= {name for name in (*TERMS, *HASHES) if part[name].null_count < len(part)}
    names = [name for name in (*TERMS, *HASHES) if name in held]
    names += [name for start in (CHANGED, SCORE) for name in schema.names if name.startswith(start)]
    note = json.dumps({"format": FORMAT, "spec": as_plain(spec)}, ensure_ascii=False)
    averaged, texts = range(spec.num_classes) if classes is None else classes, pa.array(STATUSES)
    for part in rows.parts():
        own = pa.concat_tables([schema.empty_table(), part], promote_options="default").combine_chunks()
        counts = rows.counts(own).reshape(-1, *spec.counts_shape)
        margins = class_totals(counts, task=spec.task, count_invalid=spec.count_invalid)
        columns = {name: own[name] for name in ("case_id", *FIXED) if name not in (*TERMS, *HASHES)}
        numbers = {name: aggregate(name, margins, task=spec.task, classes=averaged) for name in _AVERAGES}
        numbers |= {"invalid": counts[:, :, -1].sum(axis=1)} if spec.count_invalid else {}
        wrong = {"fp": margins.predicted - margins.tp, "fn": margins.target - margins.tp}
        by_class = {"tp": margins.tp, **wrong, "support": margins.target}
        by_class |= {name: margins.ratio(name) for name in ("iou", "dice")}
        for prefix, values in by_class.items():
            numbers |= {f"{prefix}_{name}": values[:, k] for k, name in enumerate(spec.names)}
        columns |= {name: pa.array(values, from_pandas=True) for name, values in numbers.items()}  # NaN becomes null
        statuses = class_statuses(margins)
        columns |= {f"status_{name}": texts.take(pa.array(statuses[:, k])) for k, name in enumerate(spec.names)}
        columns |= {name: own[name] for name in (*names, "confusion")}
        yield part, pa.table(columns).replace_schema_metadata({"segmeter": note})


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
    if len(opened) == 1 and all(one <= other for one, other in itertools.pairwise(opened[0].case_ids)):
        return opened[0]
    table = pa.concat_tables([NO_ROWS, *(one.read(0, len(one)) for one in opened)], promote_options="default")
    del opened
    return CaseTable.in_memory(table.take(pc.sort_indices(table["case_id"].cast(pa.binary()))), shape)


def _open(given: str | Path, *, objects: bool) -> CaseTable:
    path, file, spec = _open_file("read_cases", given)
    kept = [name for name in file.schema_arrow.names if name in _KEPT or name.startswith((CHANGED, SCORE))]
    listed = open_objects(path.parent) if objects else None

    def load(groups: range) -> pa.Table:
        with _damage_named("read_cases", path):
            table = file.read_row_groups(list(groups), columns=kept)
        table = pa.concat_tables([NO_ROWS, table], promote_options="default")  # older files lack some columns
        return table.append_column("objects", listed(table["case_id"].to_pylist())) if listed else table

    sizes = [file.metadata.row_group(index).num_rows for index in range(file.num_row_groups)]
    with _damage_named("read_cases", path):
        ids = file.read(columns=["case_id"])["case_id"].to_pylist()
    return CaseTable(ids, in_batches(sizes, load), spec.counts_shape)


def _open_file(where: str, given: str | Path) -> tuple[Path, pq.ParquetFile, ClassSpec]:
    """Open a file, and read its classes; DataError if segmeter did not write it."""
    path = require_path(where, "path", given)
    path = path / "cases.parquet" if path.is_dir() else path
    if not path.is_file():
        raise DataError(expected(where, "path", "to be a file", path, _REMEDY))
    with _damage_named(where, path):
        file = pq.ParquetFile(path)
        note = json.loads((file.schema_arrow.metadata or {})[b"segmeter"])
    if note["format"] > FORMAT:
        rule = f"to be of format {FORMAT} or older"
        raise DataError(expected(where, "path", rule, f"{note['format']} in {path}", "Update segmeter."))
    return path, file, ClassSpec(**note["spec"])


@contextmanager
def _damage_named(where: str, path: Path) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError, KeyError, ValueError, RecursionError) as error:
        raise DataError(expected(where, "path", "to be a cases.parquet", f"{path} ({error})", _REMEDY)) from error
