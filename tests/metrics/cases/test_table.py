"""Rows survive their files exactly, in a fixed order and with fixed bytes."""

import csv

import numpy as np
import pyarrow.parquet as pq
import pytest

from segmeter.errors import InputError
from segmeter.metrics.cases import table as module
from segmeter.metrics.cases.stored import read_cases, read_spec, write_cases
from segmeter.metrics.cases.table import decode_key, encode_key
from tests.metrics.build import case_row, class_spec, random_rows


def assert_same(one, other):
    np.testing.assert_array_equal(one.counts, other.counts)
    assert one.counts.dtype == other.counts.dtype == np.int64
    for name in ("case_id", "depth", "height", "width", "spacing", "loss_terms", "changed_pixels"):
        assert getattr(one, name) == getattr(other, name)
    assert str(one.loss) == str(other.loss)  # an undefined loss is another thing than none
    np.testing.assert_equal(one.scores, other.scores)
    assert [column.key for column in one.measured] == [column.key for column in other.measured]


def scores(distance):
    return {"hd95/road": distance, "sum:tp@9/road/side": 4.0, "missing": 1.0}


def read_csv(folder):
    with (folder / "cases.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("task", ["multiclass", "multilabel"])
def test_rows_come_back_as_they_were_and_sorted(tmp_path, task):
    fields = {"loss": 0.1 + 0.2, "loss_terms": ((0.1 + 0.2, 9.0), (np.inf, 0.0)), "scores": scores(np.inf)}
    rows = random_rows(7, 3, task=task, changed_pixels={"fill": 3, "open": 0}, **fields)
    undefined = {"scores": scores(np.nan), "loss": np.nan, "loss_terms": ((0.0, 0.0),)}
    rows.append(case_row("a", rows[0].counts * 2**40, **undefined))
    rows.append(case_row("v", rows[0].counts, scores=scores(2.0), depth=3, spacing=(2.5, 0.3, 1.0)))
    spec = class_spec(3, task, ignore_index=9)
    write_cases(tmp_path, rows[::-1], spec)
    back = read_cases(tmp_path)
    assert [row.case_id for row in back] == sorted(row.case_id for row in rows)
    for one, other in zip(back, sorted(rows, key=lambda row: row.case_id), strict=True):
        assert_same(one, other)
    assert read_spec(tmp_path / "cases.parquet") == spec


def test_two_writings_in_any_order_give_the_same_bytes(tmp_path):
    rows = random_rows(9, loss=0.3, changed_pixels={"b": 1, "a": 2})
    for name, order in (("one", rows), ("two", rows[::-1])):
        (tmp_path / name).mkdir()
        write_cases(tmp_path / name, order, class_spec())
    for file in ("cases.parquet", "cases.csv"):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()


@pytest.mark.parametrize(("bound", "value"), [("BLOCK", 3), ("CELLS", 3 * 9)])
def test_groups_of_rows_join_to_the_same_content(tmp_path, monkeypatch, bound, value):
    rows = random_rows(10, extra={"x": 0.5})
    write_cases(tmp_path, rows, class_spec())
    text = (tmp_path / "cases.csv").read_bytes()
    monkeypatch.setattr(module, bound, value)
    write_cases(tmp_path, rows, class_spec())
    assert [len(part) for part in module.as_table(rows).parts()] == [3, 3, 3, 1]
    assert (tmp_path / "cases.csv").read_bytes() == text
    assert [row.case_id for row in read_cases(tmp_path)] == [row.case_id for row in rows]


def test_columns_hold_the_counts_scores_and_statuses(tmp_path):
    # sky: tp 6, fp 0, fn 2; road: target only in prediction (2 pixels); car: in neither
    rows = [case_row("x", [[6, 2, 0], [0, 0, 0], [0, 0, 0]], loss=1 / 3, changed_pixels={"fill": 7})]
    write_cases(tmp_path, rows, class_spec())
    (line,) = pq.read_table(tmp_path / "cases.parquet").to_pylist()
    assert [line[f"{name}_sky"] for name in ("tp", "fp", "fn", "support")] == [6, 0, 2, 8]
    assert [line[f"status_{name}"] for name in ("sky", "road", "car")] == ["ok", "target_empty", "both_empty"]
    assert [line[f"iou_{name}"] for name in ("sky", "road", "car")] == [0.75, 0.0, None]
    assert line["mean_iou"] == 0.375
    assert line["confusion"] == [6, 2, 0, 0, 0, 0, 0, 0, 0]
    (text,) = read_csv(tmp_path)
    assert (text["loss"], text["iou_car"], text["fn_sky"], text["changed_fill"]) == (repr(1 / 3), "", "2", "7")
    assert "confusion" not in text


def test_a_volume_its_spacing_and_the_unit_of_distances_are_columns(tmp_path):
    places = {"a": {"depth": 7, "spacing": (2.5, 0.5, 0.5), "unit": "mm"}, "b": {"spacing": (1, 1)}, "c": {}}
    write_cases(tmp_path, [case_row(name, np.eye(3), **place) for name, place in places.items()], class_spec())
    names = ("depth", "height", "width", "spacing", "unit")
    assert [[row[name] for name in names] for row in read_csv(tmp_path)] == [
        ["7", "4", "5", "2.5 0.5 0.5", "mm"], ["", "4", "5", "1 1", ""], ["", "4", "5", "", "pixels"],
    ]  # fmt: skip
    assert [(row.depth, row.height, row.width) for row in read_cases(tmp_path)] == [(7, 4, 5), *[(None, 4, 5)] * 2]
    assert pq.read_table(tmp_path / "cases.parquet")["unit"].to_pylist() == ["mm", None, "pixels"]
    assert [row.unit for row in read_cases(tmp_path)] == ["mm", "", ""]


def test_the_column_order_is_fixed(tmp_path):
    write_cases(tmp_path, random_rows(2, 2, changed_pixels={"z": 1, "a": 1}, extra={"hd": 1.0}), class_spec(2))
    per_class = [f"{p}_{n}" for p in ("tp", "fp", "fn", "support", "iou", "dice", "status") for n in ("sky", "road")]
    fixed = ["case_id", "height", "width", "depth", "spacing", "unit", "loss"]
    means = ["mean_iou", "mean_dice", "pixel_accuracy"]
    names = [*fixed, *means, *per_class, "changed_z", "changed_a", "extra_hd"]
    assert list(read_csv(tmp_path)[0]) == names
    assert pq.read_schema(tmp_path / "cases.parquet").names == [*names, "confusion"]


def test_text_that_a_spreadsheet_would_run_is_made_harmless_in_the_csv_and_other_text_survives(tmp_path):
    formulas, plain = ["\tx", "+x", "-x", "=1+1", "@SUM(A1)"], 'a,"b"\n地図'
    write_cases(tmp_path, [case_row(name, np.eye(3)) for name in (*formulas, plain)], class_spec())
    assert [row["case_id"] for row in read_csv(tmp_path)] == [*(f"'{name}" for name in formulas), plain]
    assert [row.case_id for row in read_cases(tmp_path)] == [*formulas, plain]


def test_no_rows_give_files_with_columns_only(tmp_path):
    write_cases(tmp_path, [], class_spec())
    assert read_cases(tmp_path) == []
    assert read_csv(tmp_path) == []
    assert read_spec(tmp_path) == class_spec()


def test_a_case_that_occurs_twice_is_refused_and_nothing_is_written(tmp_path):
    rows = [case_row(name, np.eye(3)) for name in ("b", "a", "b")]
    with pytest.raises(InputError, match="`rows` to hold each case once, got twice: b"):
        write_cases(tmp_path, rows, class_spec())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("counts", [np.eye(2, dtype=np.int64), np.eye(3), np.ones((3, 2, 2), np.int64)], ids=range(3))
def test_counts_of_other_classes_or_kinds_are_refused(tmp_path, counts):
    row = module.CaseRow(case_id="x", height=1, width=1, counts=counts)
    with pytest.raises(InputError, match=r"`counts` to be int64 \(3, 3\), got others in x"):
        write_cases(tmp_path, [row], class_spec())


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("nsd@0.5/road/left", ("nsd@0.5", "road/left", False)),
        ("sum:area/", ("area", "", True)),
        ("pq/sum:x/y", ("pq", "sum:x/y", False)),
    ],
)
def test_a_name_reads_back_as_its_column(name, key):
    assert (decode_key(name), encode_key(key)) == (key, name)
