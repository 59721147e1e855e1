"""Tables of one or several runs are read back as their rows, one by one, in slices or all, with their objects."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from segmeter.classes import ClassSpec
from segmeter.errors import DataError
from segmeter.metrics.cases import objects as module
from segmeter.metrics.cases import stored as stored_module
from segmeter.metrics.cases import table as table_module
from segmeter.metrics.cases.objects import COLUMN, NAME, OBJECT, SCHEMA, open_objects, write_objects
from segmeter.metrics.cases.stored import open_cases, read_cases, write_cases
from tests.metrics.build import case_row, class_spec, random_rows

IDS = {"one": "ace", "two": "bcd"}


@pytest.fixture
def folders(tmp_path: Path) -> list[Path]:
    """Two tables that share the case "c" and have columns of their own."""
    fields = {"one": {"scores": {"hd95/car": 1.5, "missing": 0.0}}, "two": {"changed_pixels": {"fill": 3}, "depth": 2}}
    for start, (name, ids) in enumerate(IDS.items()):
        (tmp_path / name).mkdir()
        rows = [case_row(each, np.full((3, 3), 10 * start + i), **fields[name]) for i, each in enumerate(ids)]
        write_cases(tmp_path / name, rows, class_spec())
    return [tmp_path / name for name in IDS]


def test_rows_of_several_tables_are_one_sequence_by_case_id(folders):
    """Mutation seen to fail: the columns of the first table for all."""
    rows = open_cases(folders)
    nothing = {"hd95/car": np.nan, "missing": np.nan}
    assert [row.case_id for row in rows] == rows.case_ids == list("abccde")
    assert [int(row.counts[0, 0]) for row in rows] == [0, 10, 1, 11, 12, 2]
    assert [row.depth for row in rows] == [None, 2, None, 2, 2, None]
    assert [dict(row.changed_pixels) for row in rows] == [{}, {"fill": 3}, {}, {"fill": 3}, {"fill": 3}, {}]
    np.testing.assert_equal([row.scores for row in rows[:2]], [{"hd95/car": 1.5, "missing": 0.0}, nothing])


def test_objects_are_read_where_they_are_asked_for(folders):
    """By folder and by file; a case without any is not one of which they are unknown.

    Mutation seen to fail: looked for in the folder only.
    """
    objects = {"a": [{"id": 1, "side": "target"}, {"id": 2, "side": "prediction"}], "c": []}
    write_cases(folders[0], [case_row(name, np.eye(3), objects=each) for name, each in objects.items()], class_spec())
    for path in (folders[0], folders[0] / "cases.parquet"):
        first, second = (row.objects for row in read_cases(path, objects=True))
        assert ([one["id"] for one in first], first[1]["side"], second) == ([1, 2], "prediction", [])
        assert [row.objects for row in read_cases(path)] == [None, None]


def test_damaged_objects_are_refused(folders):
    for content in (b"PAR1", (folders[0] / "cases.parquet").read_bytes()):
        (folders[0] / "objects.parquet").write_bytes(content)
        with pytest.raises(DataError, match=r"read_objects: expected `path` to be an objects\.parquet, got .*one/obj"):
            open_cases(folders, objects=True)
        assert len(open_cases(folders)) == 6


def test_files_from_before_volumes_are_read(tmp_path):
    write_cases(tmp_path, random_rows(2), class_spec())
    path = tmp_path / "cases.parquet"
    pq.write_table(pq.read_table(path).drop_columns(["depth", "spacing", "unit"]), path)
    assert [(row.depth, row.spacing, row.unit) for row in read_cases(path)] == [(None, None, "")] * 2


def test_a_missing_foreign_damaged_or_newer_file_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "cases.parquet"

    def refused(message):
        with pytest.raises(DataError, match=message):
            read_cases(tmp_path)

    refused("`path` to be a file")
    write_cases(tmp_path, random_rows(2), class_spec())
    table = pq.read_table(path)
    path.write_bytes(path.read_bytes()[:-9])
    refused(r"to be a cases\.parquet")
    pq.write_table(table.replace_schema_metadata({}), path)
    refused(r"to be a cases\.parquet")
    monkeypatch.setattr(stored_module, "FORMAT", 2)
    write_cases(tmp_path, random_rows(2), class_spec())
    monkeypatch.undo()
    refused(r"of format 1 or older, got 2 .* Update segmeter")


@pytest.mark.parametrize("column", ["case_id", "list.element"])
def test_damaged_pages_are_refused_where_they_are_read(tmp_path, column):
    """The footer is whole then, so that the file opens. Mutation seen to fail: only opening is guarded."""
    write_cases(tmp_path, random_rows(2), class_spec())
    path, group = tmp_path / "cases.parquet", pq.ParquetFile(tmp_path / "cases.parquet").metadata.row_group(0)
    chunks = (group.column(place) for place in range(group.num_columns))
    start = next(each.data_page_offset for each in chunks if each.path_in_schema.endswith(column))
    content = bytearray(path.read_bytes())
    content[start : start + 16] = bytes(16)
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"to be a cases\.parquet, got .*cases\.parquet \("):
        [*open_cases([tmp_path])]


@pytest.fixture
def in_parts(tmp_path, monkeypatch):
    """A table whose rows are in groups of three, and the rows."""
    monkeypatch.setattr(table_module, "BLOCK", 3)
    rows = random_rows(11, scores={"hd95/car": 0.5})
    write_cases(tmp_path, rows, class_spec())
    return open_cases([tmp_path]), rows


def test_rows_of_one_table_are_read_from_the_groups_that_hold_them(in_parts):
    """Mutation seen to fail: rows of a group counted from the first of the file."""
    stored, rows = in_parts
    across, turned = (slice(0, 3), slice(2, 7), slice(3, 4), slice(5, 100)), (slice(4, 2), slice(None, None, -4))
    for part in (*across, *turned, slice(-2, None)):
        for one, other in zip(stored[part], rows[part], strict=True):
            assert (one.case_id, one.counts.tolist()) == (other.case_id, other.counts.tolist())
    for place in (-1, 0, np.int64(6)):
        assert stored[place].case_id == rows[place].case_id
    with pytest.raises(IndexError):
        stored[11]
    assert [row.case_id for row in stored.take([9, 1])] == [rows[9].case_id, rows[1].case_id]


def test_a_part_of_one_table_is_in_memory_at_a_time(tmp_path, monkeypatch):
    """Mutation seen to fail: all groups read at once."""
    monkeypatch.setattr(table_module, "BLOCK", 50)
    rng = np.random.default_rng(0)
    names = tuple(f"class{k}" for k in range(20))
    spec = ClassSpec(task="multiclass", names=names, colours=((0, 0, 0),) * 20)
    write_cases(tmp_path, [case_row(f"{i:04}", rng.integers(0, 10**6, (20, 20))) for i in range(1000)], spec)
    before, most = pa.total_allocated_bytes(), 0
    for part in open_cases([tmp_path]).parts():
        assert len(part) == 50
        most = max(most, pa.total_allocated_bytes() - before)
    assert most < 1000 * 20 * 20 * 8 / 5


def test_a_table_that_is_replaced_while_it_is_read_stays_the_one_that_was_opened(in_parts, tmp_path):
    stored, rows = in_parts
    write_cases(tmp_path, random_rows(11, seed=1), class_spec())
    assert [row.counts.tolist() for row in stored] == [row.counts.tolist() for row in rows]


ONE = [
    {"id": 3, "side": "target", "iou": 0.5, "box": [0, 1, 2, 3]},
    {"id": 7, "side": "prediction", "box": [4, 5, 6, 7]},
]
OTHER = [{"id": 9, "region": "car"}]


def cases(**objects):
    units = pa.array(["mm"] * len(objects), pa.string())
    return pa.table({"case_id": [*objects], "unit": units, "objects": pa.array([*objects.values()], COLUMN)})


def held(rows):
    return [{name: value for name, value in row.items() if value is not None} for row in rows]


def test_a_row_holds_what_was_given_and_null_for_the_rest(tmp_path):
    assert write_objects(tmp_path, [cases(a=ONE), cases(b=OTHER)])
    rows = pq.read_table(tmp_path / NAME).to_pylist()
    assert list(rows[0]) == SCHEMA.names == ["case_id", "unit", *(field.name for field in OBJECT)]
    assert held(rows) == [{"case_id": case, "unit": "mm"} | one for case, one in zip("aab", ONE + OTHER, strict=True)]


@pytest.mark.parametrize("count", [1, 3, 4, 11])
def test_any_number_of_cases_is_read_back(tmp_path, count, monkeypatch):
    """Cases are laid out some at a time; mutation seen to fail: the last ones of a group left out."""
    monkeypatch.setattr(module, "_GROUP", 3)
    lists = {f"case{i:04d}": [{"id": k, "pixels": i} for k in range(i % 4)] for i in range(count)}
    assert write_objects(tmp_path, [cases(**lists)])
    backwards = open_objects(tmp_path)([*lists][::-1]).to_pylist()
    assert [held(each) for each in backwards[::-1]] == [*lists.values()]


def test_cases_without_a_list_leave_no_file_and_empty_ones_no_row(tmp_path):
    assert not write_objects(tmp_path, [])
    assert not write_objects(tmp_path, [cases(a=None, b=None)])
    assert list(tmp_path.iterdir()) == []
    assert open_objects(tmp_path) is None
    assert write_objects(tmp_path, [cases(a=[], b=OTHER, c=None)])
    assert [held(each) for each in open_objects(tmp_path)("abc").to_pylist()] == [[], OTHER, []]
    assert write_objects(tmp_path, [cases(a=[])])
    assert open_objects(tmp_path)("a").to_pylist() == [[]]


def test_the_chunks_of_the_cases_do_not_change_a_byte(tmp_path):
    """As where a run was resumed. Mutation seen to fail: chunks written as they come."""
    apart = pa.concat_tables([cases(a=ONE), cases(b=OTHER)])
    assert write_objects(tmp_path, [apart])
    written = (tmp_path / NAME).read_bytes()
    assert write_objects(tmp_path, [apart.combine_chunks()])
    assert (tmp_path / NAME).read_bytes() == written
