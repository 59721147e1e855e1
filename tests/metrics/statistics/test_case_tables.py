"""Tables of facts about cases: CSV, TSV and Parquet give the same, and what is missing or told twice is named."""

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from segmeter.errors import InputError
from segmeter.metrics.statistics.clusters import column_names, read_column, take_cases


def write(folder: Path, form: str) -> Path:
    path = folder / f"cases.{form}"
    if form == "parquet":
        pq.write_table(pa.table({"case_id": ["a", "b", "c"], "ward": ["x", None, "y"], "age": [1.5, 2.0, None]}), path)
    else:
        rows = [["case_id", "ward", "age"], ["a", "x", "1.5"], ["b", "", "2.0"], ["c", "y", ""]]
        path.write_text("\n".join({"csv": ",", "tsv": "\t"}[form].join(row) for row in rows) + "\n")
    return path


@pytest.mark.parametrize("form", ["csv", "tsv", "parquet"])
def test_every_form_gives_the_same_and_empty_cells_are_no_value(form: str, tmp_path: Path) -> None:
    path = write(tmp_path, form)
    assert column_names(path, key="slices") == ["ward", "age"]
    assert read_column(path, "ward", key="slices") == {"a": "x", "c": "y"}
    assert read_column(path, "age", key="slices") == {"a": "1.5", "b": "2.0"}


@pytest.mark.parametrize(
    ("content", "column", "message"),
    [
        ("case_id,ward\na,x\na,y\n", "ward", "to give each case one value, got two for 'a'"),
        ("case_id,ward\na,x\n", "wrad", "case_id and wrad, got .*Did you mean 'ward'"),
        ("name,ward\na,x\n", "ward", "case_id and ward, got .*name, ward"),
        ("", "ward", "got .*cases.csv .Empty CSV file"),
        ("case_id,town,ward\na,x,y\n\nb,x, z,y\n", "ward", "cases.csv .*Row #3: Expected 3 columns, got 4: b,x, z,y"),
        ("case_id,town,ward\na,x\n", "ward", "Row #2: Expected 3 columns, got 2: a,x"),
        ("case_id,ward,ward\na,x,y\n", "ward", "differ in name, got 'ward' twice in .*cases.csv. Rename"),
        ("case_id,ward,case_id\na,x,b\n", "ward", "got 'case_id' twice"),
    ],
)
def test_what_a_table_lacks_or_says_twice_is_named(content: str, column: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "cases.csv"
    path.write_text(content)
    with pytest.raises(InputError, match=message) as caught:
        read_column(path, column, key="slices")
    assert str(caught.value).count("expected") == 1  # the line itself, not a line about it


def test_columns_of_one_name_are_refused_in_parquet(tmp_path: Path) -> None:
    path = tmp_path / "cases.parquet"
    pq.write_table(pa.table([["a"], ["x"], ["y"]], names=["case_id", "ward", "ward"]), path)
    with pytest.raises(InputError, match=r"'ward' twice in .*cases.parquet"):
        read_column(path, "ward", key="slices")


@pytest.mark.parametrize("name", ["cases.csv", "cases.parquet"])
def test_what_is_no_table_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="`slices` to name a table"):
        read_column(tmp_path / name, "ward", key="slices")
    (tmp_path / name).write_bytes(b"\xff\xfe\x00no table")
    with pytest.raises(InputError, match="`slices` to name a table"):
        read_column(tmp_path / name, "ward", key="slices")
    (tmp_path / name).unlink()
    os.mkfifo(tmp_path / name)  # not waited for
    with pytest.raises(InputError, match=r"`slices` to name a table, got .* \(not a regular file\)"):
        read_column(tmp_path / name, "ward", key="slices")


def test_cases_without_a_value_are_named() -> None:
    with pytest.raises(InputError, match="to tell all, got 2 without: 'b', 'c'"):
        take_cases({"a": "x"}.get, ["a", "b", "c"], key="slices", rule="to tell all")


def test_equal_values_are_one_object() -> None:
    values = take_cases(lambda case_id: f"ward {len(case_id)}", ["a", "b", "cc"], key="slices", rule="")
    assert values == ["ward 1", "ward 1", "ward 2"]
    assert values[0] is values[1]
