"""A table of cases -> lines of CSV, column by column: a column holds values of one kind, which are written alike."""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from segmeter.files import csv_bytes

_TEXT = pa.large_string()  # a group of rows may hold more than 2 GB


def csv_lines(table: pa.Table) -> bytes:
    """Write the rows of a table as `csv_bytes` writes them; null is empty, and a list is written with spaces."""
    cells = [_cells(table[name]) for name in table.column_names]
    lines = pc.binary_join_element_wise(*cells, pa.scalar(",", _TEXT)).to_pylist()
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "replace")


def _cells(column: pa.ChunkedArray) -> pa.Array:
    if column.null_count == len(column):
        return pa.repeat(pa.scalar("", _TEXT), len(column))
    if pa.types.is_integer(column.type):
        return column.combine_chunks().cast(_TEXT).fill_null("")
    return pa.array(_texts(column), _TEXT)


def _texts(column: pa.ChunkedArray) -> list[str]:
    if pa.types.is_floating(column.type):
        values = column.to_numpy(zero_copy_only=False).tolist()  # null becomes NaN, which no column of cases holds
        return [repr(value) if value == value else "" for value in values]
    values = column.to_pylist()
    if pa.types.is_list(column.type):
        values = [" ".join(map(repr, value or ())) for value in values]
    known = {value: _text(value) for value in set(values)}
    return [known[value] for value in values]


def _text(value: Any) -> str:
    """A single cell."""
    if isinstance(value, str) and value.replace("_", "0").isalnum():
        return value  # as most case ids and all statuses are: nothing to quote
    return csv_bytes([[value, 0]]).decode().removesuffix(",0\n")
