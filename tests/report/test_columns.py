"""Columns through the block and back: what the page reads is what was measured, to the digits that it shows."""

import numpy as np
import pytest

from segmeter.report.columns import CaseColumn, CellLists, pack_page, within

from .conftest import unpack_page


def column(kind, values, key="x"):
    return CaseColumn(key=key, label="", values=values, kind=kind, group="")


def back(kind, values):
    return unpack_page(pack_page({}, [column(kind, values)]))["columns"][0]


def test_scores_keep_four_decimals_and_undefined(rng):
    values = np.concatenate([rng.random(100), [0, 1, np.nan]])
    np.testing.assert_allclose(back("score", values)["values"], values, atol=5.0001e-5)


def test_numbers_keep_five_digits_and_infinity(rng):
    values = np.concatenate([np.exp(rng.normal(0, 9, 200)), [0, np.inf, -np.inf, np.nan, -3.5]])
    np.testing.assert_allclose(back("number", values)["values"], values, rtol=1e-5)


@pytest.mark.parametrize("largest", [2**31 - 1, 2**31, 2**53 - 1])
def test_counts_are_exact(largest):
    values = [0, -1, largest]
    assert back("count", values)["values"].tolist() == values


def test_texts_and_choices_come_back_in_any_language():
    texts = ["größer", "</script>", "", "\u202egnp", "größer", "\udce4"]
    clean = [*texts[:-1], "?"]
    assert back("text", texts)["values"] == clean
    found = back("choice", texts)
    assert [found["names"][k] if k >= 0 else "" for k in found["values"]] == clean


def test_arrays_stand_beside_columns():
    found = unpack_page(pack_page({"n": 3}, [column("count", [1])], {"cells": np.array([1, 2, 3])}))
    assert found["n"] == 3
    assert found["arrays"]["cells"]["values"].tolist() == [1, 2, 3]


def test_groups_that_do_not_fit_are_left_out_whole():
    """Mutation seen to fail: single columns left out, which leaves gaps in a case's table of classes."""
    groups = {"a": 2, "b": 3, "a again": 1, "c": 1}  # columns, 20 bytes each
    columns = [
        CaseColumn(key=f"{group}{k}", label="", values=[0.5] * 10, kind="score", group=group.partition(" ")[0])
        for group, count in groups.items()
        for k in range(count)
    ]
    kept, left = within(columns, 70)
    assert [each.key for each in kept] == ["a0", "a1", "a again0"]
    assert [each.key for each in left] == ["b0", "b1", "b2", "c0"]


def test_what_says_nothing_of_a_case_takes_no_room():
    nothing = [column("score", [np.nan] * 9), column("number", [np.nan] * 9), column("count", [0] * 9)]
    texts = [column("text", ["a"] * 9), column("choice", ["missed"] * 9)]
    assert within([*nothing, *texts], 0) == ([*nothing, *texts], [])
    for kind, value, size in (("score", 0.0, 2), ("number", np.inf, 4), ("count", 7, 4)):
        one = [column(kind, [value])]
        assert within(one, size) == (one, [])
        assert within(one, size - 1) == ([], one)


@pytest.mark.parametrize("count", [127, 128])
def test_choices_of_few_and_of_many_texts_come_back(count):
    texts = [f"{k:03}" for k in range(count)]
    found = back("choice", [*texts, ""])
    assert [found["names"][k] for k in found["values"][:-1]] == texts
    assert found["values"][-1] == -1


def test_the_facts_of_a_column_come_back():
    given = CaseColumn(key="iou/2", label="IoU of car", values=[0.5], kind="score", group="IoU by class", of_class=2)
    found = unpack_page(pack_page({}, [given]))["columns"][0]
    told = {"key": "iou/2", "label": "IoU of car", "kind": "score", "group": "IoU by class", "of": 2, "shown": False}
    assert {name: found[name] for name in told} == told


def lists_of(counts, *, step=7, **options):
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


def test_every_cell_lists_its_cases_by_pixels(rng):
    counts = rng.integers(0, 4, (50, 3, 3)) * rng.integers(0, 2, (50, 3, 3))
    assert listed(lists_of(counts)) == by_loop(counts)


@pytest.mark.parametrize("step", [1, 7, 50])
def test_too_many_are_cut_alike_and_counted(rng, step):
    """The same ones, dropped early or at the end. Mutation seen to fail: `cell_cases` by what is kept."""
    counts = rng.integers(0, 4, (50, 3, 3))
    found, whole = lists_of(counts, step=step, most=60), by_loop(counts)
    assert found["cell_kept"].sum() <= 60
    assert found["cell_kept"].max() == 10
    assert listed(found) == {cell: cases[:10] for cell, cases in whole.items()}
    assert found["cell_cases"].tolist() == [len(cases) for cases in whole.values()]


def test_what_is_held_does_not_grow_with_the_cases(rng):
    found = CellLists(3, most=60)
    for _ in range(100):
        found.add(rng.integers(0, 4, (10, 3, 3)))
        assert sum(len(part[0]) for part in found._parts) <= 2 * 60


def test_predictions_of_no_class_are_in_no_cell(rng):
    counts = rng.integers(0, 4, (20, 3, 4))
    found = CellLists(3)
    found.add(counts)
    assert listed(found.arrays()) == by_loop(counts[..., :3])


def test_a_perfect_run_has_no_cells():
    assert not len(lists_of(np.diag([3, 2, 1])[None])["cells"])
