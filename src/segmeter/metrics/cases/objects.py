"""Writes and reads the objects of cases: a list in the row of each case, and one row per object in objects.parquet."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from segmeter.checks import expected
from segmeter.errors import DataError
from segmeter.files import atomic_write

NAME = "objects.parquet"

_GROUP = 1024  # cases laid out at a time, to bound the memory of writing

OBJECT = pa.struct(
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
COLUMN = pa.list_(OBJECT)  # type of the column in a table of cases; null if objects were not requested
SCHEMA = pa.schema([("case_id", pa.string()), ("unit", pa.string()), *OBJECT])


def write_objects(folder: Path, cases: Sequence[pa.Table]) -> bool:
    """Write ``objects.parquet``, one row per object in the order of the cases. Return False, without a file, if no case
    has a list of objects.

    The columns are ``case_id``, ``unit`` (of the spacing; "pixels" without one), ``side`` (target or prediction),
    ``region`` (class or group) and ``id``. ``pixels`` (without void) and ``size`` (in the unit's square or cube) tell
    how large the object is. ``box`` (the first pixel of each axis, then the end of each), ``centroid`` (in pixels, by
    axis) and ``touches_border`` tell where it is. Then follow ``event`` and ``partner``, the id of the matched object.
    Matched objects also have ``iou, dice``, and on request ``hd95, centroid_distance``.

    Parameters
    ----------
    folder
        The folder of the file, which appears complete or not at all.
    cases
        Tables of cases with the columns ``case_id, unit, objects``.
    """
    if all(part["objects"].null_count == len(part) for part in cases):
        return False
    with atomic_write(folder / NAME) as file, pq.ParquetWriter(file, SCHEMA, compression="zstd") as writer:
        for part in cases:
            for batch in part.combine_chunks().to_batches(max_chunksize=_GROUP):
                cases_of_objects = pc.list_parent_indices(batch["objects"])
                columns = [batch[name].take(cases_of_objects) for name in ("case_id", "unit")]
                columns += batch["objects"].flatten().flatten()
                writer.write_table(pa.table(columns, schema=SCHEMA))
    return True


def open_objects(folder: Path) -> Callable[[Iterable[str]], pa.Array] | None:
    """Read the objects of a run, and return a function that lists those of each case; None if there is no such file.

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
    runs = pc.run_end_encode(table["case_id"].combine_chunks())
    names, ends = runs.values, runs.run_ends.to_pylist()
    objects = pa.StructArray.from_arrays([table[field.name].combine_chunks() for field in OBJECT], fields=list(OBJECT))
    # the list of each case, then an empty list, which cases without objects get
    lists = pa.ListArray.from_arrays(pa.array([0, *ends, len(table)], pa.int32()), objects, type=COLUMN)

    def list_objects(case_ids: Iterable[str]) -> pa.Array:
        indices = pc.index_in(pa.array(case_ids, pa.string()), value_set=names)
        return lists.take(pc.fill_null(indices, len(names)))

    return list_objects
