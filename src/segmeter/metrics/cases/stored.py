"""cases.parquet of one run, or of several -> their rows: kept as columns, and made when they are asked for."""

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from segmeter.checks import expected, known_path
from segmeter.classes import ClassSpec
from segmeter.errors import DataError
from segmeter.metrics.arrays import FloatArray
from segmeter.metrics.cases.columns import decode_key, split_scores
from segmeter.metrics.cases.nnunet import is_nnunet, read_summary
from segmeter.metrics.cases.objects import no_objects, read_objects
from segmeter.metrics.cases.table import BLOCK, FORMAT, HASHES, TERMS, CaseRow, Head, in_groups
from segmeter.metrics.cases.typed import UNKNOWN, CaseBlock, Edges

_OPTIONAL = ("depth", "spacing", "unit", *HASHES, *TERMS)  # not in files of early versions
_KEPT = ("case_id", "height", "width", "loss", "confusion", *_OPTIONAL)  # others follow from it
_SCORE = "extra_"
_FURTHER = ("changed_", _SCORE)
_REMEDY = "Give a run's folder or its cases.parquet."
_FILE = "file"  # which of several a row is from


def read_cases(path: str | Path, *, objects: bool = False) -> list[CaseRow]:
    """Read the rows of a ``cases.parquet``, or of the run's folder that holds it; exact, sorted by case id.

    With `objects`, what the folder's ``objects.parquet`` has of each case is read too. The path may also be that of a
    summary.json of nnU-Net, see `read_summary`.

    Raises
    ------
    DataError
        The file is missing, damaged, or not one of these.
    """
    if is_nnunet(path):
        return sorted(read_summary(path)[1], key=lambda row: row.case_id)
    return list(open_cases([path], objects=objects))


def read_spec(path: str | Path) -> ClassSpec:
    """Read the classes that a ``cases.parquet``, or the one in a run's folder, was written with; or nnU-Net's."""
    if is_nnunet(path):
        return read_summary(path)[0]
    return _describe("read_spec", path)[1]


class StoredRows(Sequence[CaseRow]):
    """Rows that are kept as the columns of a table, some hundred bytes each. Make one with `open_cases`.

    Parameters
    ----------
    table
        The columns that rows are made from, and `_FILE`.
    spec
        The classes.
    further
        Of each file, the columns of its own: what post-processing changed, and scores.
    objects
        Of each file, what is known of the objects of its cases, by case id; None where that was not asked for.
    """

    def __init__(
        self,
        table: pa.Table,
        spec: ClassSpec,
        further: Sequence[Sequence[str]],
        objects: Sequence[Mapping[str, bytes] | None],
    ) -> None:
        self.spec = spec
        self._table = table
        self._further = further
        self._objects = objects

    @property
    def case_ids(self) -> pa.ChunkedArray:
        """In the order of the rows."""
        return self._table["case_id"]

    def heads(self) -> Iterator[Head]:
        """Id, shape and dtype of the counts of each row, without making it."""
        shape, dtype = self.spec.counts_shape, np.dtype(np.int64)
        for chunk in self.case_ids.chunks:
            yield from ((case_id, shape, dtype) for case_id in chunk.to_pylist())

    def take(self, places: Any) -> "StoredRows":
        """The rows at some places, in their order."""
        return StoredRows(self._table.take(places), self.spec, self._further, self._objects)

    def blocks(self) -> Iterator[CaseBlock]:
        """The rows as arrays, some thousands at a time, without making any."""
        for start in range(0, len(self), BLOCK):
            table = self._part(start, BLOCK).combine_chunks()
            shapes = [_integers(table, name) for name in ("depth", "height", "width")]
            names = {name: decode_key(name.removeprefix(_SCORE)) for each in self._further for name in each
                     if name.startswith(_SCORE)}  # fmt: skip
            yield CaseBlock(
                case_ids=table["case_id"].to_pylist(),
                counts=self._counts(table),
                shapes=np.stack(shapes, axis=1),
                hashes=np.stack([_integers(table, name) for name in HASHES], axis=1),
                edges=_edges(table),
                measured={key: _numbers(table[name]) for name, key in names.items() if key},
                loss=_numbers(table["loss"]),
                loss_terms=_terms(table),
            )

    def _part(self, start: int, count: int) -> pa.Table:
        return self._table.slice(start, count)

    def _counts(self, table: pa.Table) -> NDArray[np.int64]:
        counts = np.asarray(table["confusion"].combine_chunks().flatten(), np.int64)
        return counts.reshape(len(table), *self.spec.counts_shape)

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def __iter__(self) -> Iterator[CaseRow]:
        for group in in_groups(self):
            yield from group

    @overload
    def __getitem__(self, index: int) -> CaseRow: ...
    @overload
    def __getitem__(self, index: slice) -> list[CaseRow]: ...
    def __getitem__(self, index: int | slice) -> CaseRow | list[CaseRow]:
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            return self._rows(start, max(0, stop - start)) if step == 1 else [self[i] for i in range(start, stop, step)]
        return self._rows(range(len(self))[index], 1)[0]

    def _rows(self, start: int, count: int) -> list[CaseRow]:
        table = self._part(start, count)
        columns = _plain_columns(table)
        counts = self._counts(table)
        files = table[_FILE].to_pylist()
        names = dict.fromkeys(name for each in self._further for name in each)
        values = {name: table[name].to_pylist() for name in names}
        return [
            CaseRow(
                **{name: column[i] for name, column in columns.items()},
                counts=counts[i],
                objects=self._packed_objects(file, columns["case_id"][i]),
                **_further({name: values[name][i] for name in self._further[file]}),
            )
            for i, file in enumerate(files)
        ]

    def _packed_objects(self, file: int, case_id: str) -> bytes:
        held = self._objects[file]
        return b"" if held is None else held.get(case_id) or no_objects()


class _FileRows(StoredRows):
    """The rows of one file that is sorted, read anew whenever they are asked for: counts may take kilobytes a case.

    The file stays open, so that another one of its name changes nothing. Threads may share it.
    """

    def __init__(
        self,
        path: Path,
        spec: ClassSpec,
        names: Sequence[str],
        further: Sequence[str],
        objects: Mapping[str, bytes] | None,
    ) -> None:
        self._path = path
        self._file = pq.ParquetFile(path)
        self._names = list(names)
        sizes = [self._file.metadata.row_group(index).num_rows for index in range(self._file.num_row_groups)]
        self._ends = np.cumsum(sizes)
        self._lock = threading.Lock()  # of the table, and of the file's position
        self._held = range(0)  # groups of rows that are in the table
        super().__init__(self._read(self._held), spec, [further], [objects])
        self._ids = self._file.read(columns=["case_id"])["case_id"]

    @property
    def case_ids(self) -> pa.ChunkedArray:
        return self._ids

    def take(self, places: Any) -> StoredRows:
        return StoredRows(self._part(0, len(self)).take(places), self.spec, self._further, self._objects)

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def _part(self, start: int, count: int) -> pa.Table:
        stop = min(start + count, len(self))
        first, last = np.searchsorted(self._ends, [start, stop - 1], side="right").tolist()
        if stop <= start:
            return self._read(range(0))
        with self._lock:
            if self._held != range(first, last + 1):
                self._table = self._read(range(first, last + 1))
                self._held = range(first, last + 1)  # not before: a damaged group would pass for the one before
            table = self._table
        return table.slice(start - (int(self._ends[first - 1]) if first else 0), stop - start)

    def _read(self, groups: range) -> pa.Table:
        with _as_data_error(self._path):
            table = self._file.read_row_groups(list(groups), columns=self._names)
        return table.append_column(_FILE, pa.array(np.zeros(len(table), np.int32)))


def open_cases(paths: Sequence[str | Path], *, objects: bool = False) -> StoredRows:
    """Open the rows of several files as one sequence, sorted by case id; a case may be there several times.

    With `objects`, what the ``objects.parquet`` beside each has of its cases is read too.

    Raises
    ------
    DataError
        As `read_cases`.
    """
    if len(paths) == 1:
        path, spec, names = _describe("read_cases", paths[0])
        if _is_sorted(_read_columns(path, ["case_id"])["case_id"]):
            own = [name for name in names if name.startswith(_FURTHER)]
            kept = [*(name for name in _KEPT if name in names), *own]
            return _FileRows(path, spec, kept, own, read_objects(path.parent) if objects else None)
    tables, further, specs, held = (
        list[pa.Table](),
        list[list[str]](),
        list[ClassSpec](),
        list[dict[str, bytes] | None](),
    )
    for number, given in enumerate(paths):
        path, spec, names = _describe("read_cases", given)
        further.append([name for name in names if name.startswith(_FURTHER)])
        table = _read_columns(path, [*(name for name in _KEPT if name in names), *further[-1]])
        tables.append(table.append_column(_FILE, pa.array(np.full(len(table), number, np.int32))))
        specs.append(spec)
        held.append(read_objects(path.parent) if objects else None)
    table = pa.concat_tables(tables, promote_options="default")
    del tables
    sorted_already = _is_sorted(table["case_id"])
    return StoredRows(table if sorted_already else table.take(_order(table["case_id"])), specs[0], further, held)


def _order(case_ids: pa.ChunkedArray) -> pa.Array:
    return pc.sort_indices(case_ids.cast(pa.binary()))  # UTF-8 sorts as Python sorts text


def _is_sorted(case_ids: pa.ChunkedArray) -> bool:
    order = np.asarray(_order(case_ids))
    return bool((order == np.arange(len(order))).all())


def _read_columns(path: Path, names: Sequence[str]) -> pa.Table:
    with _as_data_error(path):
        return pq.read_table(path, columns=list(names))


@contextmanager
def _as_data_error(path: Path) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise DataError(
            expected("read_cases", "path", "to be a cases.parquet", f"{path} ({error})", _REMEDY)
        ) from error


def _integers(table: pa.Table, name: str) -> NDArray[np.int64]:
    """A column that files of early versions lack, with `UNKNOWN` for null."""
    if name not in table.column_names:
        return np.full(len(table), UNKNOWN)
    return np.asarray(pc.fill_null(table[name], UNKNOWN), np.int64)


def _numbers(column: pa.ChunkedArray) -> FloatArray:
    return np.asarray(column.cast(pa.float64()), np.float64)  # null is NaN


def _edges(table: pa.Table) -> list[Edges]:
    """Spacing and unit of each case, as `_plain_columns` gives them."""
    if "spacing" not in table.column_names or table["spacing"].null_count == len(table):
        return [(None, "")] * len(table)
    units = table["unit"].to_pylist() if "unit" in table.column_names else [None] * len(table)
    pairs = zip(table["spacing"].to_pylist(), units, strict=True)
    return [(tuple(edges), unit or "") if edges else (None, "") for edges, unit in pairs]


def _plain_columns(table: pa.Table) -> dict[str, list[Any]]:
    """The arguments of rows that every file has, and those that files of early versions lack."""
    columns = {name: table[name].to_pylist() for name in ("case_id", "height", "width", "loss")}
    for name in _OPTIONAL[: -len(TERMS)]:
        columns[name] = table[name].to_pylist() if name in table.column_names else [None] * len(table)
    columns["spacing"] = [edges and tuple(edges) for edges in columns["spacing"]]
    units = zip(columns["spacing"], columns["unit"], strict=True)
    columns["unit"] = [unit if edges and unit else "" for edges, unit in units]
    columns["loss_terms"] = _terms(table)
    losses = zip(columns["loss"], columns["loss_terms"], strict=True)  # an undefined one is null, but has terms
    columns["loss"] = [np.nan if loss is None and terms else loss for loss, terms in losses]
    return columns


def _terms(table: pa.Table) -> list[tuple[tuple[float, float], ...]]:
    """The parts of each case's loss; none in files of early versions."""
    if not set(TERMS) <= set(table.column_names):
        return [()] * len(table)
    pairs = zip(*(table[name].to_pylist() for name in TERMS), strict=True)
    return [tuple(zip(*pair, strict=True)) if all(pair) else () for pair in pairs]


def _further(values: dict[str, Any]) -> dict[str, Any]:
    """What post-processing changed in a case, its measures, and its other scores."""
    scores = {
        name.removeprefix(_SCORE): np.nan if value is None else value
        for name, value in values.items()
        if name.startswith(_SCORE)
    }
    changed = {
        name.removeprefix("changed_"): value
        for name, value in values.items()
        if name.startswith("changed_") and value is not None
    }
    measured, extra = split_scores(scores)
    return {"changed_pixels": changed, "measured": measured, "extra": extra}


def _describe(where: str, given: str | Path) -> tuple[Path, ClassSpec, list[str]]:
    """A file of ours, its classes, and the names of its columns."""
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
