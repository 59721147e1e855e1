"""Confusion matrices of cases -> for each cell off the diagonal the cases that have such pixels."""

import numpy as np
from numpy.typing import NDArray

MOST_ENTRIES = 150_000  # pairs of cell and case that a page holds


class CellLists:
    """Lists which cases have pixels of one class predicted as another, those with the most pixels first.

    Where there are more than `most` pairs of cell and case, each cell keeps the same number of cases at the most. That
    number only falls while cases come, so that what is over it is dropped at once: memory does not grow with the cases.

    Parameters
    ----------
    num_classes
        K.
    most
        Pairs that are kept in all.
    """

    def __init__(self, num_classes: int, *, most: int = MOST_ENTRIES) -> None:
        self._size = num_classes
        self._most = most
        self._cases = 0
        self._counts = np.zeros(num_classes**2, np.int64)  # of cases, by cell
        self._parts = [(np.empty(0, np.int64),) * 3]  # cell, case and pixels

    def add(self, counts: NDArray[np.int64]) -> None:
        """Take the matrices (N, K, K) of the next N cases; of (N, K, K + 1) the last column is left out."""
        case, row, column = np.nonzero(counts[..., : self._size])
        off = row != column
        case, row, column = case[off], row[off], column[off]
        cell = row * self._size + column
        self._counts += np.bincount(cell, minlength=len(self._counts))
        self._parts.append((cell, case + self._cases, counts[case, row, column]))
        self._cases += len(counts)
        if sum(len(part[0]) for part in self._parts) > 2 * self._most:
            self._cut()

    def arrays(self) -> dict[str, NDArray[np.int64]]:
        """Lay the lists out for a page.

        Returns
        -------
        dict
            ``cells`` (M, the cell's number ``target * K + predicted``), ``cell_cases`` (M, how many cases have any),
            ``cell_kept`` (M, how many of them are listed), and ``cell_indices`` and ``cell_pixels``, cell after cell.
        """
        self._cut()
        ((cell, case, pixels),) = self._parts
        cells, kept = np.unique(cell, return_counts=True)
        return {
            "cells": cells,
            "cell_cases": self._counts[cells],
            "cell_kept": kept,
            "cell_indices": case,
            "cell_pixels": pixels,
        }

    def _cut(self) -> None:
        cell, case, pixels = (np.concatenate(parts) for parts in zip(*self._parts, strict=True))
        order = np.lexsort((case, -pixels, cell))
        cell = cell[order]
        first = np.searchsorted(cell, cell)  # of the same cell
        kept = np.arange(len(cell)) - first < _limit(self._counts, self._most)
        self._parts = [(cell[kept], case[order][kept], pixels[order][kept])]


def _limit(count: NDArray[np.int64], most: int) -> int:
    """The largest number per cell with which all cells together keep at most `most`, and at least 1."""
    low, high = 1, int(count.max(initial=1))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if np.minimum(count, middle).sum() <= most else (low, middle - 1)
    return low
