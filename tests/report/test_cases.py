"""Columns of a page: the numbers of cases.csv, what is found or missed, slices, and how the page's block has them."""

from dataclasses import replace

import numpy as np
import pytest

from segmeter.metrics.cases import table as stored_rows
from segmeter.metrics.cases.stored import case_table
from segmeter.metrics.cases.table import CaseRow, MeasureColumn, as_table
from segmeter.metrics.config.measures import InstancesConfig, SurfaceConfig
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.summary.summarise import summarise
from segmeter.report import columns
from segmeter.report.cases import board_of, case_columns, slice_columns
from segmeter.report.columns import CaseColumn, CellLists, pack_page
from tests.data.crafted import BINARY

from .conftest import make_rows, row_of, unpack_page


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


def column(kind, values, key="x"):
    return CaseColumn(key=key, label="", values=values, kind=kind, group="")


def back(kind, values):
    return unpack_page(pack_page({}, [column(kind, values)]))["columns"][0]


def test_numbers_keep_the_digits_that_a_page_shows(rng):
    scores = np.concatenate([rng.random(100), [0, 1, np.nan]])
    np.testing.assert_allclose(back("score", scores)["values"], scores, atol=5.0001e-5)
    numbers = np.concatenate([np.exp(rng.normal(0, 9, 200)), [0, np.inf, -np.inf, np.nan, -3.5]])
    np.testing.assert_allclose(back("number", numbers)["values"], numbers, rtol=1e-5)
    for largest in (2**31 - 1, 2**31, 2**53 - 1):
        assert back("count", [0, -1, largest])["values"].tolist() == [0, -1, largest]


@pytest.mark.parametrize("count", [0, 127, 128], ids="{} more".format)
def test_texts_and_choices_come_back_in_any_language(count):
    texts = ["größer", "</script>", "", "\u202egnp", "größer", "\udce4", *(f"{k:03}" for k in range(count))]
    clean = ["?" if text == "\udce4" else text for text in texts]
    assert back("text", texts)["values"] == clean
    found = back("choice", texts)
    assert [found["names"][k] if k >= 0 else "" for k in found["values"]] == clean


def test_arrays_and_the_facts_of_columns_stand_beside_them():
    given = CaseColumn(key="iou/2", label="IoU of car", values=[0.5], kind="score", group="IoU by class", of_class=2)
    found = unpack_page(pack_page({"n": 3}, [given], {"cells": np.array([1, 2, 3])}))
    told = {"key": "iou/2", "label": "IoU of car", "kind": "score", "group": "IoU by class", "of": 2, "shown": False}
    assert {name: found["columns"][0][name] for name in told} == told
    assert found["n"] == 3
    assert found["arrays"]["cells"]["values"].tolist() == [1, 2, 3]


@pytest.fixture
def fits(monkeypatch):
    """Splits columns as a page of some bytes does."""

    def split(given, most):
        monkeypatch.setattr(columns, "DATA_BYTES", most)
        monkeypatch.setattr(columns, "MOST_BYTES", 0)
        return columns.part_columns(given)

    return split


def test_groups_that_do_not_fit_are_left_out_whole(fits):
    groups = {"a": 2, "b": 3, "a again": 1, "c": 1}  # columns, 20 bytes each
    given = [
        CaseColumn(key=f"{group}{k}", label="", values=[0.5] * 10, kind="score", group=group.partition(" ")[0])
        for group, count in groups.items()
        for k in range(count)
    ]
    kept, left = fits(given, 70)
    assert [each.key for each in kept] == ["a0", "a1", "a again0"]
    assert [each.key for each in left] == ["b0", "b1", "b2", "c0"]


def test_what_says_nothing_of_a_case_takes_no_room(fits):
    nothing = [column("score", [np.nan] * 9), column("number", [np.nan] * 9), column("count", [0] * 9)]
    texts = [column("text", ["a"] * 9), column("choice", ["missed"] * 9)]
    assert fits([*nothing, *texts], 0) == ([*nothing, *texts], [])
    for kind, value, size in (("score", 0.0, 2), ("number", np.inf, 4), ("count", 7, 4)):
        one = [column(kind, [value])]
        assert fits(one, size) == (one, [])
        assert fits(one, size - 1) == ([], one)


def lists_of(counts, *, step, **options):
    """Taken some at a time."""
    found = CellLists(counts.shape[1], **options)
    for start in range(0, len(counts), step):
        found.add(counts[start : start + step])
    return found.arrays()


def listed(found):
    """By cell the listed (case, pixels)."""
    lists, start = {}, 0
    for cell, kept in zip(found["cells"], found["cell_kept"], strict=True):
        stop = start + kept
        pairs = zip(found["cell_indices"][start:stop], found["cell_pixels"][start:stop], strict=True)
        lists[int(cell)], start = [(int(i), int(count)) for i, count in pairs], stop
    return lists


def by_loop(counts):
    lists = {}
    for i, table in enumerate(counts):
        for row, column in np.argwhere(table):
            if row != column:
                lists.setdefault(int(row * len(table) + column), []).append((i, int(table[row, column])))
    return {cell: sorted(found, key=lambda pair: (-pair[1], pair[0])) for cell, found in sorted(lists.items())}


@pytest.mark.parametrize("step", [1, 7, 50])
def test_every_cell_lists_its_cases_by_pixels_and_too_many_are_cut_alike_and_counted(rng, step):
    """The same ones, dropped early or at the end. Mutation seen to fail: `cell_cases` by what is kept."""
    counts = rng.integers(0, 4, (50, 3, 4))  # the last column is of no class
    found, whole = lists_of(counts, step=step, most=60), by_loop(counts[..., :3])
    assert listed(lists_of(counts, step=step)) == whole
    assert found["cell_kept"].sum() <= 60
    assert found["cell_kept"].max() == 10
    assert listed(found) == {cell: cases[:10] for cell, cases in whole.items()}
    assert found["cell_cases"].tolist() == [len(cases) for cases in whole.values()]
    assert not len(lists_of(np.diag([3, 2, 1])[None], step=step)["cells"])


def test_what_is_held_does_not_grow_with_the_cases(rng):
    found = CellLists(3, most=60)
    for _ in range(100):
        found.add(rng.integers(0, 4, (10, 3, 3)))
        assert sum(len(part[0]) for part in found._parts) <= 2 * 60
