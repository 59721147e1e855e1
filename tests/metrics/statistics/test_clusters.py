"""Clusters from case ids and tables, and what looks grouped; CSV, TSV and Parquet give the same."""

import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from segmeter.errors import InputError
from segmeter.metrics.statistics.clusters import (
    cluster_labels,
    column_names,
    effective_units,
    find_grouping,
    is_cluster,
    read_column,
    sum_by,
    take_cases,
    warn_of_few,
)

IDS = ["p01_a_001", "p01_a_002", "p02_b_001"]


@pytest.mark.parametrize(
    ("cluster", "labels"),
    [
        (None, None),
        ("prefix:_", ["p01_a", "p01_a", "p02_b"]),
        ("prefix:_0", ["p01_a", "p01_a", "p02_b"]),
        (r"^(p\d+)_", ["p01", "p01", "p02"]),
        (r"^p(\d)(\d)", ["0\x1f1", "0\x1f1", "0\x1f2"]),
    ],
)
def test_labels_come_from_the_case_ids(cluster: str | None, labels: list[str] | None) -> None:
    assert cluster_labels(IDS, cluster) == labels


def test_labels_come_from_a_table(tmp_path: Path) -> None:
    table = tmp_path / "patients.csv"
    rows = [("case_id", "age", "patient"), *((case, "50", f"x{i // 2}") for i, case in enumerate([*IDS, "other"]))]
    table.write_text("\ufeff" + "\n".join(map(",".join, rows)), encoding="utf-8")
    assert cluster_labels(IDS[::-1], f"{table}:patient") == ["x1", "x0", "x0"]
    with pytest.raises(InputError, match=r"a row for every case .* got 2 without: 'q', 'r'"):
        cluster_labels([*IDS, "q", "r"], f"{table}:patient")
    with pytest.raises(InputError, match=r"to name a table, got .*nowhere.csv .*No such file"):
        cluster_labels(IDS, f"{tmp_path / 'nowhere.csv'}:patient")


@pytest.mark.parametrize("cluster", ["prefix:-", "prefix:p", r"^(q\d)"])
def test_case_ids_without_a_cluster_are_refused(cluster: str) -> None:
    with pytest.raises(InputError, match=f"{re.escape(cluster)}.*'p01_a_001'"):
        cluster_labels(IDS, cluster)


def test_what_is_a_cluster() -> None:
    assert all(map(is_cluster, (None, "prefix:_", "a/b.csv:who", "(p)")))
    assert not any(map(is_cluster, ("prefix:", "p[", "p")))


@pytest.mark.parametrize(
    ("case_ids", "found"),
    [
        (["p01_003", "p01_004", "p02_001", "p02_002"], ("prefix:_", 2)),
        (["a-1_1", "a-1_2", "a-2_1", "a-2_2"], ("prefix:_", 2)),
        (["p1/s1", "p1/s2", "p2/s1", "p3/s1"], ("prefix:/", 3)),
        (["p01_left_1", "p01_right_1", "p02_left_1", "p02_right_1"], ("^([^_]+)[_]", 2)),
        (["case_1", "case_2", "case_3", "case_4"], None),
        (["a_1", "b_1", "c_1", "d_1", "d_2"], None),
        (["p01_1", "p01_2", "p02_1", "overview"], None),
        (["1", "2"], None),
        ([], None),
    ],
    ids=range(9),
)
def test_what_looks_grouped(case_ids: list[str], found: tuple[str, int] | None) -> None:
    assert find_grouping(case_ids) == found


def test_a_suggested_expression_is_quoted_for_the_shell() -> None:
    ids = [f"p{i}_{side}_1" for i in range(40) for side in ("left", "right")]
    assert """set 'metrics.cluster="^([^_]+)[_]"'.""" in (warn_of_few(ids, len(ids), {}, None) or "")


def test_effective_units_are_those_of_equal_sizes() -> None:
    sizes = np.array([[7, 1, 0], [7, 1, 0], [7, 0, 0], [7, 98, 0]])
    np.testing.assert_allclose([effective_units(column) for column in sizes.T], [4, 10_000 / 9606, np.nan], rtol=1e-12)


@pytest.mark.parametrize(
    ("units", "effective", "named"),
    [(60, 49.9, True), (60, 50.0, False), (20, 9.9, True), (20, 10.0, False), (60, None, False)],
)
def test_few_effective_units_are_named(units: int, effective: float | None, named: bool) -> None:
    warning = warn_of_few([f"c{i}" for i in range(units)], units, {"car": effective}, None) or ""
    assert ("car" in warning) == named


@pytest.mark.parametrize("kind", [np.uint8, np.float64])
def test_sums_are_of_the_numbers_of_each_cluster(kind: type) -> None:
    found = sum_by(np.array([1, 0, 1]), 2, np.array([200, 3, 100], kind))
    assert found.dtype == (np.int64 if kind is np.uint8 else np.float64)
    assert found.tolist() == [3, 300]


def test_eyes_are_clusters_by_the_rule_that_splits_them():
    names = [f"Image_{number:02}{side}" for number in range(3) for side in "LR"]
    labels = [name[:-1] for name in names]
    assert find_grouping(names) == ("pair", 3)
    assert cluster_labels(names, "pair") == cluster_labels(names, "prefix:8") == labels


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
    assert column_names(path) == ["ward", "age"]
    assert read_column(path, "ward", key="slices") == {"a": "x", "c": "y"}
    assert read_column(path, "age", key="slices") == {"a": "1.5", "b": "2.0"}


@pytest.mark.parametrize(
    ("content", "column", "message"),
    [
        ("case_id,ward\na,x\na,y\n", "ward", "to give each case one value, got two for 'a'"),
        ("case_id,ward\na,x\n", "wrad", "case_id and wrad, got .*Did you mean 'ward'"),
        ("name,ward\na,x\n", "ward", "case_id and ward, got .*name, ward"),
        ("", "ward", "case_id and ward, got .*cases.csv with none"),
        ("case_id,town,ward\na,x,y\n\nb,x, z,y\n", "ward", "cases.csv .line 4 has 4 cells, and the header 3"),
        ("case_id,town,ward\na,x\n", "ward", "line 2 has 2 cells, and the header 3"),
        ("case_id,ward,ward\na,x,y\n", "ward", "to name a table, got .*cases.csv .'ward' twice"),
        ("case_id,ward,case_id\na,x,b\n", "ward", "'case_id' twice"),
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
    with pytest.raises(InputError, match=r"cases.parquet .'ward' twice"):
        read_column(path, "ward", key="slices")


@pytest.mark.parametrize("name", ["cases.csv", "cases.parquet"])
@pytest.mark.parametrize("content", [None, b"\xff\xfe\x00no table"], ids=["missing", "damaged"])
def test_what_is_no_table_is_refused(name: str, content: bytes | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match="`slices` to name a table"):
        read_column(tmp_path / name, "ward", key="slices")


def test_cases_without_a_value_are_named() -> None:
    with pytest.raises(InputError, match="to tell all, got 2 without: 'b', 'c'"):
        take_cases(["x", None, None], ["a", "b", "c"], key="slices", rule="to tell all")


def test_equal_values_are_one_object() -> None:
    values = take_cases((f"ward {n}" for n in (1, 1, 2)), ["a", "b", "cc"], key="slices", rule="")
    assert values == ["ward 1", "ward 1", "ward 2"]
    assert values[0] is values[1]
