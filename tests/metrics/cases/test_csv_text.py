"""Columns as lines of CSV, against the csv module, cell by cell."""

import math

import numpy as np
import pyarrow as pa

from segmeter.files import csv_bytes
from segmeter.metrics.cases.csv_text import csv_lines


def test_every_kind_of_column_is_written_as_the_csv_module_does():
    """Mutations seen to fail: nan for null; a text that is not quoted; a formula without its apostrophe."""
    floats = [0.1, None, math.inf, -0.0, 1e16, 5.0, 1e-5, 2 / 3, 1e22]
    columns = {
        "text": ["a", "=x", "b,c", 'd"e', "line\nbreak", "-1", "", "é", None],
        "int": [1, None, 3, 4, 5, 6, 7, 8, -9],
        "whole": list(range(9)),
        "float": floats,
        "none": [None] * 9,
        "lists": [[1.0, 2.5], None, [-1.0], [], [1e-9], [0.5], None, [2.0], [3.0]],
    }
    types = {"none": pa.float64(), "lists": pa.list_(pa.float64())}
    table = pa.table({name: pa.array(values, types.get(name)) for name, values in columns.items()})
    columns["lists"] = [" ".join(map(repr, value or ())) for value in columns["lists"]]
    assert csv_lines(table) == csv_bytes(zip(*columns.values(), strict=True))


def test_floats_are_the_shortest_that_give_them_back():
    """Mutations seen to fail: Arrow's text taken from 1e-5 on, or up to 1e11; whole numbers without ".0"."""
    rng = np.random.default_rng(0)
    drawn = (
        rng.random(20_000),
        rng.integers(0, 10**6, 2000) / 7,
        rng.normal(size=2000) * 10.0 ** rng.integers(-300, 300),
    )
    values = np.concatenate([*drawn, [0.0, -0.0, 1.0, -3.0, 1e-4, 9.999e-5, 1e9, 1e10, 77091676987.52892]])
    assert csv_lines(pa.table({"value": values})).decode().split() == [repr(value) for value in values.tolist()]


def test_a_table_without_rows_has_no_lines():
    assert csv_lines(pa.table({"value": pa.array([], pa.float64())})) == b""
