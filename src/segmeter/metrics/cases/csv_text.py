"""A table of cases -> lines of CSV, column by column: a column holds values of one kind, which are written alike."""

from typing import Any

import pyarrow as pa

from segmeter.files import csv_bytes


def csv_lines(table: pa.Table) -> bytes:
    """Write the rows of a table as `csv_bytes` writes them; null is empty, and a list is written with spaces."""
    columns = [_texts(table[name]) for name in table.column_names]
    return "".join(f"{','.join(cells)}\n" for cells in zip(*columns, strict=True)).encode("utf-8", "replace")


def _texts(column: pa.ChunkedArray) -> list[str]:
    if column.null_count == len(column):
        return [""] * len(column)
    if pa.types.is_floating(column.type):
        values = column.to_numpy(zero_copy_only=False).tolist()  # null becomes NaN, which no column of cases holds
        return [repr(value) if value == value else "" for value in values]
    if pa.types.is_integer(column.type) and not column.null_count:
        return list(map(str, column.to_numpy().tolist()))
    values = column.to_pylist()
    if pa.types.is_list(column.type):
        values = [" ".join(map(repr, value or ())) for value in values]
    known = {value: _text(value) for value in set(values)}
    return [known[value] for value in values]


def _text(value: Any) -> str:
    """A single cell."""
    return csv_bytes([[value, 0]]).decode().removesuffix(",0\n")
