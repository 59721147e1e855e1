"""Rows -> columns: the numbers of cases.csv, what is found, missed or absent, and which slice each case is in."""

from dataclasses import replace

import numpy as np
import pytest

from segmeter.metrics.cases import table as stored_rows
from segmeter.metrics.cases.stored import case_table
from segmeter.metrics.cases.table import CaseRow, MeasureColumn, as_table
from segmeter.metrics.config.measures import InstancesConfig, SurfaceConfig
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.summary.summarise import summarise
from segmeter.report.cases import board_of, case_columns, slice_columns
from segmeter.report.columns import CellLists
from tests.data.crafted import BINARY

from .conftest import make_rows, row_of


def columns_of(rows, spec, **config):
    summary = summarise(rows, spec, MetricsConfig(bootstrap=0, **config))
    return lay_out(rows, spec, summary)


def lay_out(rows, spec, summary, **options):
    table = as_table(rows)
    return {column.key: column for column in case_columns(board_of(table, spec, summary), table, summary, **options)}


@pytest.fixture(autouse=True)
def parts_of_two(monkeypatch):
    monkeypatch.setattr(stored_rows, "BLOCK", 2)


def test_scores_are_those_of_the_table_of_cases(rng, spec):
    rows = make_rows(rng, spec, "abcd")
    found, table = columns_of(rows, spec, groups={"green": ("ground", "tree")}), case_table(rows, spec)
    for key in ("mean_dice", "pixel_accuracy"):
        np.testing.assert_array_equal(found[key].values, table[key].to_numpy())
    np.testing.assert_array_equal(found["headline"].values, table["mean_iou"].to_numpy())
    for k, name in enumerate(spec.names):
        np.testing.assert_array_equal(found[f"iou/{k}"].values, table[f"iou_{name}"].to_numpy())
        np.testing.assert_array_equal(found[f"support/{k}"].values, table[f"support_{name}"].to_numpy())
        assert found[f"iou/{k}"].of_class == k
    counts = rows[0].counts  # a group is scored as one region
    inside = counts[:2, :2].sum()
    either = counts[:2].sum() + counts[:, :2].sum() - inside
    assert found["group/0"].values[0] == pytest.approx(inside / either)


def test_a_volume_has_its_depth_in_its_size_and_pixels_outside_the_classes_are_counted(rng, spec):
    (row,) = make_rows(rng, spec, "a")
    row = replace(row, depth=40, counts=np.pad(row.counts, ((0, 0), (0, 1)), constant_values=3))
    found = columns_of([row], spec.replace(count_invalid=True))
    assert found["size"].values == ["40 × 12 × 16"]  # noqa: RUF001
    assert found["pixels"].values.tolist() == [16 * 12 * 40]
    assert found["invalid"].values.tolist() == [9]


def test_what_became_of_a_class_is_said_in_words(spec):
    counts = np.array([[5, 0, 0], [2, 0, 0], [0, 0, 0]])  # tree is missed, there is no car
    found = columns_of([CaseRow(case_id="a", height=1, width=7, counts=counts)], spec)
    assert [found[f"status/{k}"].values for k in range(3)] == [["found"], ["missed"], ["absent"]]
    found = columns_of([CaseRow(case_id="a", height=1, width=7, counts=counts.T)], spec)
    assert found["status/1"].values == ["false alarm"]
    assert found["weakest"].values == ["tree"]


def test_measures_further_scores_steps_and_clusters_have_columns_and_a_case_without_them_is_undefined(rng, spec):
    rows = make_rows(rng, spec, ["p1_a", "p2_b", "p3_c"])
    for i in range(2):
        measured = (MeasureColumn("hd95", "tree", 1.5 + i), MeasureColumn("hd95", "car", float("inf")))
        rows[i] = replace(rows[i], measured=measured, extra={"missing": float(i)}, changed_pixels={"fill": i})
    rows[2] = replace(rows[2], loss=None)
    found = columns_of(rows, spec, cluster="prefix:_")
    np.testing.assert_array_equal(found["measure/hd95/tree"].values, [1.5, 2.5, np.nan])
    assert (found["measure/hd95/tree"].better, found["measure/hd95/tree"].of_class) == ("lower", 1)
    np.testing.assert_array_equal(found["measure/hd95/mean"].values, [np.inf, np.inf, np.nan])
    assert list(found).index("measure/hd95/mean") < list(found).index("iou/0")  # kept where the classes are too much
    np.testing.assert_array_equal(found["extra/missing"].values, [0, 1, np.nan])
    assert found["changed/fill"].values.tolist() == [0, 1, -1]
    assert list(found["cluster"].values) == ["p1", "p2", "p3"]
    np.testing.assert_array_equal(found["loss"].values, [rows[0].loss, rows[1].loss, np.nan])


@pytest.mark.parametrize("terms", [(), ((0.0, 0.0),)], ids=["none", "nan"])
def test_a_loss_that_every_case_lacks_is_shown_where_one_was_computed(rng, spec, terms):
    rows = [replace(row, loss=np.nan if terms else None, loss_terms=terms) for row in make_rows(rng, spec, "abc")]
    column = columns_of(rows, spec).get("loss")
    np.testing.assert_equal(column and column.values.tolist(), [np.nan] * 3 if terms else None)


def test_numbers_of_objects_have_columns_where_they_add_up(rng, spec):
    config = MetricsConfig(bootstrap=0, measures=(InstancesConfig(),))
    rows = []
    for row in make_rows(rng, spec, "abc"):
        target, lost = (np.kron(each, np.ones((2, 2), np.uint8)) for each in rng.integers(0, 3, (2, 6, 8), np.uint8))
        labels = np.where(lost == 0, 0, target)
        rows.append(replace(row, measured=row_of("", target, labels, spec, config).measured))
    summary = summarise(rows, spec, config)
    found = lay_out(rows, spec, summary)
    for metric, better in (("fn", "lower"), ("tp", "higher")):
        column = found[f"measure/{metric}/car"]
        assert column.values.sum() == summary["measures"][metric]["car"]["dataset"] > 0
        assert (column.kind, column.better, column.of_class) == ("count", better, 2)
    summary["measures"]["fn"]["car"]["dataset"] += 1
    columns = lay_out(rows, spec, summary)
    assert "measure/fn/car" not in columns
    assert "measure/fn/tree" in columns


def test_the_object_heads_a_binary_run_and_a_score_that_was_set_any_with_its_direction_and_unit(rng, spec):
    binary = columns_of(make_rows(rng, BINARY, "ab"), BINARY)
    np.testing.assert_array_equal(binary["headline"].values, binary["iou/1"].values)
    assert (binary["headline"].label, "weakest" in binary) == ("IoU of cell", False)
    made = enumerate(make_rows(rng, spec, "abc"))
    rows = [replace(row, measured=(MeasureColumn("hd95", "car", 2.0 + i),)) for i, row in made]
    column = list(columns_of(rows, spec, headline="hd95/car", measures=(SurfaceConfig(),)).values())[1]
    assert (column.key, column.label, column.kind, column.better) == ("headline", "HD95 of car", "number", "lower")
    assert (column.unit, column.values.tolist()) == ("pixels", [2, 3, 4])


def test_cells_are_given_the_counts_of_all_cases(rng, spec):
    rows = make_rows(rng, spec, "abcde")
    cells, wanted = CellLists(3), CellLists(3)
    lay_out(rows, spec, summarise(rows, spec, MetricsConfig(bootstrap=0)), cells=cells)
    wanted.add(np.stack([row.counts for row in rows]))
    for name, values in wanted.arrays().items():
        np.testing.assert_array_equal(cells.arrays()[name], values)


@pytest.fixture
def sliced(tmp_path, rng, spec):
    """Rows, their table of facts, and the slices of their summary."""
    rows = make_rows(rng, spec, "abcdef")
    table = tmp_path / "facts.csv"
    lines = [f"{row.case_id},{'xy'[i % 2]},{i}" for i, row in enumerate(rows)]
    table.write_text("\n".join(["case_id,ward,dose", *lines]))
    options = {"slice_by": ("ward", "thirds(dose)", "share/wood"), "groups": {"wood": ("tree", "car")}}
    return rows, table, summarise(rows, spec, MetricsConfig(bootstrap=0, slices=str(table), **options))


def slices_of(sliced, spec, **hashes):
    board, found = board_of(as_table(sliced[0]), spec, sliced[2]), sliced[2]["slices"]
    return slice_columns(board, hashes or found["hashes"], table=found["table"])


def test_each_case_has_the_slice_that_was_counted(sliced, spec):
    columns, lost = slices_of(sliced, spec)
    assert not lost
    assert [column.key for column in columns] == ["slice/ward", "slice/thirds(dose)", "slice/share/wood"]
    assert columns[0].values == list("xyxyxy")
    assert columns[1].order == ("below 1.667", "1.667 to 3.333", "above 3.333")
    by = sliced[2]["slices"]["by"]
    for column in columns:
        for label, entry in by[column.label].items():
            assert list(column.values).count(label) == entry["n"]


def test_a_table_that_lacks_cases_or_swapped_them_and_a_run_without_a_hash_give_no_slice(sliced, spec):
    """Where two cases were swapped, each slice still has as many."""
    columns, (line,) = slices_of(sliced, spec, ward=None)
    assert not columns
    assert line.endswith(".csv is gone or has changed, or an older version wrote the run.")
    table = sliced[1]
    table.write_text(table.read_text().replace("a,x,", "a,y,").replace("b,y,", "b,x,"))
    columns, lost = slices_of(sliced, spec)
    assert "by ward can't" in lost[0]
    assert [column.key for column in columns] == ["slice/thirds(dose)", "slice/share/wood"]
    table.write_text("case_id,ward,dose\na,x,1\n")
    columns, lost = slices_of(sliced, spec)
    assert [column.key for column in columns] == ["slice/share/wood"]
    assert "by ward, thirds(dose) can't" in lost[0]
