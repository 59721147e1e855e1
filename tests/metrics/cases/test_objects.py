"""Objects of a case are packed to the same bytes whenever they are equal, and written as one row each."""

import numpy as np
import pyarrow.parquet as pq
import pytest

from segmeter.metrics.cases import objects as module
from segmeter.metrics.cases.objects import (
    NAME,
    SCHEMA,
    join_objects,
    no_objects,
    pack_objects,
    read_objects,
    write_objects,
)

ONE = {"id": [3, 7], "side": ["target", "prediction"], "iou": [0.5, np.nan], "box": [[0, 1, 2, 3], [4, 5, 6, 7]]}
OTHER = {"id": [9], "region": ["car"], "partner": [None]}


def rows_of(folder):
    return pq.read_table(folder / NAME).to_pylist()


def test_a_row_holds_what_was_given_and_null_for_the_rest(tmp_path):
    """NaN is null, as every undefined value of the tables is."""
    assert write_objects(tmp_path, [("a", "mm", pack_objects(ONE)), ("b", "", pack_objects(OTHER))])
    first, second, third = rows_of(tmp_path)
    assert list(first) == SCHEMA.names
    given = {"case_id": "a", "unit": "mm", "side": "target", "id": 3, "iou": 0.5, "box": [0, 1, 2, 3]}
    assert {name: value for name, value in first.items() if value is not None} == given
    assert (second["id"], second["iou"]) == (7, None)
    assert {name: value for name, value in third.items() if value is not None} == {
        "case_id": "b",
        "id": 9,
        "region": "car",
    }


def test_joined_parts_are_the_bytes_of_all_objects_together():
    both = {name: [*ONE.get(name, [None] * 2), *OTHER.get(name, [None])] for name in {**ONE, **OTHER}}
    assert join_objects([pack_objects(ONE), pack_objects(OTHER)]) == pack_objects(both)
    assert join_objects([pack_objects(ONE)]) == pack_objects(ONE)


@pytest.mark.parametrize("count", [1, 3, 4, 11])
def test_any_number_of_cases_is_read_back(tmp_path, count, monkeypatch):
    """Cases are laid out some at a time; mutation seen to fail: the last ones of a group left out."""
    monkeypatch.setattr(module, "_GROUP", 3)
    parts = [pack_objects({"id": list(range(1 + i % 3)), "pixels": [i] * (1 + i % 3)}) for i in range(9)]
    cases = [(f"case{i:04d}", "", parts[i % 9]) for i in range(count)]
    assert write_objects(tmp_path, cases)
    assert read_objects(tmp_path) == {name: packed for name, _, packed in cases}


def test_cases_without_a_table_leave_no_file_and_empty_ones_no_row(tmp_path):
    assert not write_objects(tmp_path, [("a", "", b""), ("b", "", b"")])
    assert list(tmp_path.iterdir()) == []
    assert read_objects(tmp_path) is None
    nothing = no_objects()
    assert write_objects(tmp_path, [("a", "", nothing)])
    assert rows_of(tmp_path) == []
    assert read_objects(tmp_path) == {}
    assert write_objects(tmp_path, [("a", "", nothing), ("b", "mm", pack_objects(OTHER)), ("c", "", b"")])
    assert read_objects(tmp_path) == {"b": pack_objects(OTHER)}


def test_a_column_of_another_length_is_refused_and_nothing_is_written(tmp_path):
    with pytest.raises(ValueError, match="length"):
        pack_objects({"id": [1, 2], "pixels": [1]})
    with pytest.raises(ValueError, match="metadata"):
        write_objects(tmp_path, [("a", "", pack_objects(ONE)), ("b", "", b"no table")])
    assert list(tmp_path.iterdir()) == []
