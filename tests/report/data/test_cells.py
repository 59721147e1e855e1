"""Cells of the confusion matrix -> their cases, against a loop."""

import numpy as np

from segmeter.classes import ClassSpec
from segmeter.metrics.cases.table import CaseRow
from segmeter.report.data.cells import cell_cases


def rows_of(counts):
    return [CaseRow(case_id=f"{i:03}", height=1, width=1, counts=table) for i, table in enumerate(counts)]


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


def test_every_cell_lists_its_cases_by_pixels(rng, spec):
    counts = rng.integers(0, 4, (50, 3, 3)) * rng.integers(0, 2, (50, 3, 3))
    found = cell_cases(rows_of(counts), spec)
    assert listed(found) == by_loop(counts)


def test_too_many_are_cut_alike_and_counted(rng, spec):
    counts = rng.integers(0, 4, (50, 3, 3))
    found, whole = cell_cases(rows_of(counts), spec, most=60), by_loop(counts)
    assert found["cell_kept"].sum() <= 60
    assert found["cell_kept"].max() == 10
    assert listed(found) == {cell: cases[:10] for cell, cases in whole.items()}
    assert found["cell_cases"].tolist() == [len(cases) for cases in whole.values()]


def test_a_perfect_run_and_multilabel_have_no_cells(spec):
    found = cell_cases(rows_of([np.diag([3, 2, 1])]), spec)
    assert not len(found["cells"])
    labels = ClassSpec(task="multilabel", names=("a",), colours=((9, 9, 9),))
    assert cell_cases(rows_of([np.ones((1, 2, 2), np.int64)]), labels) == {}
