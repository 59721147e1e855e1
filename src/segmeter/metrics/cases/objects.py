"""Packs the objects of a case into its row, and writes those of all cases as objects.parquet, one row per object."""

import io
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from segmeter.checks import expected
from segmeter.errors import DataError
from segmeter.files import atomic_write

NAME = "objects.parquet"

_GROUP = 1024  # cases laid out at a time: bounds the memory of writing

_OF_A_CASE = pa.schema(
    [
        ("side", pa.string()),
        ("region", pa.string()),
        ("id", pa.int64()),
        ("pixels", pa.int64()),
        ("size", pa.float64()),
        ("box", pa.list_(pa.int64())),
        ("centroid", pa.list_(pa.float64())),
        ("touches_border", pa.bool_()),
        ("event", pa.string()),
        ("partner", pa.int64()),
        ("iou", pa.float64()),
        ("dice", pa.float64()),
        ("hd95", pa.float64()),
        ("centroid_distance", pa.float64()),
    ]
)
SCHEMA = pa.schema([("case_id", pa.string()), ("unit", pa.string()), *_OF_A_CASE])


def pack_objects(columns: Mapping[str, Sequence[Any]]) -> bytes:
    """Pack the objects of one case, given as columns (side, region, id, pixels and so on); missing columns are null."""
    length = len(columns["id"])
    arrays = [pa.array(columns.get(field.name, [None] * length), field.type, from_pandas=True) for field in _OF_A_CASE]
    return _packed(pa.Table.from_arrays(arrays, schema=_OF_A_CASE))


@cache
def no_objects() -> bytes:
    """Pack the objects of a case that has none."""
    return pack_objects({"id": []})


def join_objects(parts: Iterable[bytes]) -> bytes:
    """Join the packed objects of several regions of a case."""
    return _packed(pa.concat_tables([_unpacked(part) for part in parts]).combine_chunks())


def write_objects(folder: Path, cases: Iterable[tuple[str, str, bytes]]) -> bool:
    """Write ``objects.parquet``, one row per object in the order of the cases; return whether any case had a table.

    The columns are ``case_id, unit`` (of the spacing; "pixels" without one), ``side`` (target or prediction),
    ``region`` (class or group), ``id``, ``pixels`` (without void), ``size`` (in the unit's square or cube), ``box``
    (the first pixel of each axis, then the end of each), ``centroid`` (in pixels, by axis), ``touches_border``,
    ``event``, and ``partner`` (the id of the matched object). Matched objects also have ``iou, dice``, and on request
    ``hd95, centroid_distance``.

    Parameters
    ----------
    folder
        Where the file appears, complete or not at all.
    cases
        The id, the unit and the packed objects of each case; empty bytes if objects were not requested.
    """
    held = [(case_id, unit, packed) for case_id, unit, packed in cases if packed]
    if not held:
        return False
    with atomic_write(folder / NAME) as file, pq.ParquetWriter(file, SCHEMA, compression="zstd") as writer:
        for start in range(0, len(held), _GROUP):
            tables = []
            for case_id, unit, packed in held[start : start + _GROUP]:
                table = _unpacked(packed)
                known = (pa.array([text] * len(table), pa.string()) for text in (case_id, unit or None))
                tables.append(pa.Table.from_arrays([*known, *table.columns], schema=SCHEMA))
            writer.write_table(pa.concat_tables(tables).combine_chunks())
    return True


def read_objects(folder: Path) -> dict[str, bytes] | None:
    """Read the packed objects of each case that has any; None if the folder has no such file.

    Raises
    ------
    DataError
        The file is damaged, or segmeter did not write it.
    """
    path = folder / NAME
    if not path.is_file():
        return None
    try:
        table = pq.read_table(path).cast(SCHEMA).combine_chunks()
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DataError(expected("read_objects", "path", f"to be an {NAME}", f"{path} ({error})")) from error
    names = np.asarray(table["case_id"].to_numpy(zero_copy_only=False), object)
    starts = np.flatnonzero(np.concatenate([[True], names[1:] != names[:-1]])) if len(names) else np.empty(0, int)
    own = table.select(_OF_A_CASE.names)
    return {str(names[start]): _packed(own.slice(start, end - start)) for start, end in pairwise([*starts, len(names)])}


def _packed(table: pa.Table) -> bytes:
    buffer = io.BytesIO()
    clean = pa.Table.from_pylist(table.to_pylist(), schema=_OF_A_CASE)  # equal objects are equal bytes
    with pa.ipc.new_stream(buffer, _OF_A_CASE, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(clean)
    return buffer.getvalue()


def _unpacked(packed: bytes) -> pa.Table:
    with pa.ipc.open_stream(packed) as reader:
        return reader.read_all()
