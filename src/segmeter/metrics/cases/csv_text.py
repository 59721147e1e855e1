"""A table of cases -> lines of CSV, column by column: a column holds values of one kind, which are written alike."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from segmeter.files import csv_bytes

_TEXT = pa.large_string()  # a group of rows may hold more than 2 GB
_NOTHING = pa.scalar("", _TEXT)
_LEAST, _MOST = 1e-4, 1e10  # between them Arrow writes no exponent, as `repr` does


def csv_lines(table: pa.Table) -> bytes:
    """Write the rows of a table as `csv_bytes` writes them; null is empty, and a list is written with spaces."""
    cells = [_cells(table[name]) for name in table.column_names]
    lines = pc.binary_join_element_wise(*cells, pa.scalar(",", _TEXT)).to_pylist()
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "replace")


def _cells(column: pa.ChunkedArray) -> pa.Array:
    values = column.combine_chunks()
    if values.null_count == len(values):
        return pa.repeat(_NOTHING, len(values))
    if pa.types.is_integer(values.type):
        return values.cast(_TEXT).fill_null("")
    if pa.types.is_floating(values.type):
        return _write_floats(values)
    if pa.types.is_list(values.type):
        values = pa.array([" ".join(map(repr, value or ())) for value in values.to_pylist()], _TEXT)
    distinct = values.dictionary_encode()
    texts = pa.array(map(_text, distinct.dictionary.to_pylist()), _TEXT)
    return texts.take(distinct.indices).fill_null("")


def _write_floats(column: pa.Array) -> pa.Array:
    """Each number as `repr` writes it: Arrow finds the same digits in a fifth of the time, and leaves ".0" out."""
    values = column.to_numpy(zero_copy_only=False)  # null becomes NaN, which no column of cases holds
    sizes = np.abs(values)
    alike = (sizes == 0) | ((sizes >= _LEAST) & (sizes < _MOST))
    texts = column.cast(_TEXT).fill_null("")
    ends = pc.if_else(alike & (values == np.rint(values)), pa.scalar(".0", _TEXT), _NOTHING)
    texts = pc.binary_join_element_wise(texts, ends, _NOTHING)
    others = ~(alike | np.isnan(values))
    return pc.replace_with_mask(texts, others, pa.array(map(repr, values[others].tolist()), _TEXT))


def _text(value: Any) -> str:
    """A single cell."""
    if isinstance(value, str) and value.replace("_", "0").isalnum():
        return value  # as most case ids and all statuses are: nothing to quote
    return csv_bytes([[value, 0]]).decode().removesuffix(",0\n")
