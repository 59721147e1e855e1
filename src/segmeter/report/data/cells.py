"""Confusion matrices of cases -> for each cell off the diagonal the cases that have such pixels."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from segmeter.classes import ClassSpec
from segmeter.metrics.cases.table import CaseRow, in_groups

MOST_ENTRIES = 150_000  # pairs of cell and case that a page holds


def cell_cases(rows: Sequence[CaseRow], spec: ClassSpec, *, most: int = MOST_ENTRIES) -> dict[str, NDArray[np.int64]]:
    """List which cases have pixels of one class predicted as another, those with the most pixels first.

    Where there are more than `most` pairs of cell and case, each cell keeps the same number of cases at the most.

    Returns
    -------
    dict
        ``cells`` (M, the cell's number ``target * K + predicted``), ``cell_cases`` (M, how many cases have any),
        ``cell_kept`` (M, how many of them are listed), and ``cell_indices`` and ``cell_pixels``, cell after cell.
        Empty for multilabel, where no pixel has one class only.
    """
    if spec.is_multilabel:
        return {}
    cell, case, pixels = _entries(rows, spec)
    order = np.lexsort((case, -pixels, cell))
    cell, case, pixels = cell[order], case[order], pixels[order]
    cells, start, count = np.unique(cell, return_index=True, return_counts=True)
    limit = _limit(count, most)
    place = np.arange(len(cell)) - np.repeat(start, count)
    kept = place < limit
    return {
        "cells": cells,
        "cell_cases": count,
        "cell_kept": np.minimum(count, limit),
        "cell_indices": case[kept],
        "cell_pixels": pixels[kept],
    }


def _entries(rows: Sequence[CaseRow], spec: ClassSpec) -> tuple[NDArray[np.int64], ...]:
    size = spec.num_classes
    diagonal = np.arange(size) * (size + 1)
    found: list[tuple[NDArray[np.int64], ...]] = []
    done = 0
    for group in in_groups(rows):
        counts = np.stack([row.counts for row in group]).reshape(len(group), size * size)
        counts[:, diagonal] = 0
        case, cell = np.nonzero(counts)
        found.append((cell, case + done, counts[case, cell]))
        done += len(group)
    cell, case, pixels = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return cell, case, pixels


def _limit(count: NDArray[np.int64], most: int) -> int:
    """The largest number per cell with which all cells together keep at most `most`, and at least 1."""
    low, high = 1, int(count.max(initial=1))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if np.minimum(count, middle).sum() <= most else (low, middle - 1)
    return low
