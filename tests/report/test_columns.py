"""Columns through the block and back: what the page reads is what was measured, to the digits that it shows."""

import numpy as np
import pytest

from segmeter.report import columns
from segmeter.report.columns import CaseColumn, CellLists, pack_page

from .conftest import unpack_page


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
