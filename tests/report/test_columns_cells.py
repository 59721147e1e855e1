"""Cells of the confusion matrix -> their cases, against a loop."""

import numpy as np
import pytest

from segmeter.report.columns import CellLists


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
