"""Packs a page's facts about its cases into one compressed block, which scripts read as typed arrays.

A column holds one value per case. The page makes a table column, a filter, a histogram and an axis of it without
further code. For each cell of the confusion matrix, a list names the cases with such pixels.
"""

import base64
import itertools
import json
import zlib
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from segmeter.report.figures import clean

Better = Literal["higher", "lower"]
Kind = Literal["score", "number", "count", "choice", "text"]

SCORE_STEPS = 10_000  # A score is kept with four decimals, as it is shown.
_UNDEFINED_SCORE = 65_535
_KEPT_BITS = 16  # Of the 23 bits of a float's fraction, 16 are kept: five digits, and the rest compresses away.
_LARGEST = 2**31 - 1
# A page has room for DATA_BYTES of numbers, which compress to about half. A run with many cases gets CASE_BYTES per
# case if that is more: enough for scores, sizes, means of measures, and the IoU of 20 classes. No run gets more than
# MOST_BYTES.
DATA_BYTES = 3_600_000
CASE_BYTES = 120
MOST_BYTES = 12_000_000
MOST_ENTRIES = 150_000  # A page lists at most this many pairs of a confusion matrix's cell and a case.


@dataclass(frozen=True)
class CaseColumn:
    """One value per case, and the facts that a page needs to show it.

    Parameters
    ----------
    key
        Unique in a page.
    label
        The name that the reader sees, with the class if there is one.
    values
        Floats (NaN is undefined, inf a failure), whole numbers (negative is undefined) or texts ("" is none).
    kind
        "score": a number in [0, 1], kept with four decimals; "number": any number, kept with five digits; "count": an
        exact whole number; "choice": one of a few texts, which the page offers as a filter; "text": any text.
    group
        The heading under which the reader chooses it.
    unit
        Shown with the label; "" for none.
    better
        Which values are better, if that is known.
    of_class, short
        The class that the value belongs to, and the name of the measure, for the table by class of the case view.
    shown
        Whether the table shows it before the reader chooses.
    order
        The texts of a choice in order; () sorts them alphabetically.
    """

    key: str
    label: str
    values: Sequence[Any] | NDArray[Any]
    kind: Kind
    group: str
    _: KW_ONLY
    unit: str = ""
    better: Better | None = None
    of_class: int | None = None
    short: str = ""
    shown: bool = False
    order: tuple[str, ...] = ()


def pack_page(
    facts: dict[str, Any], columns: Sequence[CaseColumn], arrays: dict[str, NDArray[Any]] | None = None
) -> str:
    """Pack facts, columns and further arrays into one text: Base64 of compressed bytes.

    The bytes are the length of a header (uint32, little-endian), the header as JSON in UTF-8, and the numbers. For each
    array the header has its type, offset (from the end of the header, a multiple of 8) and length. ``columns`` lists
    the facts of the columns, and ``arrays`` has the further arrays of whole numbers by name. Texts are in the header.
    """
    parts: list[bytes] = []
    header = facts | {
        "columns": [_describe(column, parts) for column in columns],
        "arrays": {name: _put(_whole(values), parts) for name, values in (arrays or {}).items()},
    }
    text = json.dumps(header, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode("utf-8", "replace")
    text += b" " * (-(len(text) + 4) % 8)
    content = len(text).to_bytes(4, "little") + text + b"".join(parts)
    return base64.b64encode(zlib.compress(content, 9)).decode()


def part_columns(columns: Sequence[CaseColumn]) -> tuple[list[CaseColumn], list[CaseColumn]]:
    """Split columns, the most important first, into those for the page and those that would make it too large.

    Neighbours of one group stay together, so that no table of a case's classes has gaps. Texts and choices are always
    kept and don't count. Undefined values and zeros don't count either, as they compress to almost nothing: with many
    classes, a case contains only a few.
    """
    free_bytes = max(DATA_BYTES, min(MOST_BYTES, CASE_BYTES * len(columns[0].values)))
    kept, left_out = list[CaseColumn](), list[CaseColumn]()
    for _, neighbours in itertools.groupby(columns, key=lambda column: column.group):
        group, size = list(neighbours), 0
        for column in group:
            if column.kind != "text" and column.kind != "choice":
                values = np.asarray(column.values)
                filled = values > 0 if column.kind == "count" else ~np.isnan(values)
                size += int(np.count_nonzero(filled)) * (2 if column.kind == "score" else 4)
        fits = size <= free_bytes
        (kept if fits else left_out).extend(group)
        free_bytes -= size if fits else 0
    return kept, left_out


def _describe(column: CaseColumn, parts: list[bytes]) -> dict[str, Any]:
    names = ("key", "label", "kind", "group", "unit", "better", "short", "shown")
    facts = {name: getattr(column, name) for name in names} | {"of": column.of_class}
    if column.kind == "text":
        return facts | {"values": [clean(value) for value in column.values]}
    if column.kind == "choice":
        cleaned = {text: clean(text) for text in set(column.values)}
        choices = [clean(text) for text in column.order] or sorted(set(cleaned.values()) - {""})
        numbers = {"": -1} | {choice: number for number, choice in enumerate(choices)}
        facts["names"] = choices
        dtype = np.int8 if len(choices) < 128 else np.int32
        return facts | _put(np.array([numbers[cleaned[text]] for text in column.values], dtype), parts)
    values = np.asarray(column.values)
    if column.kind == "count":
        values = _whole(values)
    elif column.kind == "number":  # round to the nearest number with fewer bits, but keep infinity and NaN
        single = values.astype(np.float64).astype(np.float32)
        dropped_bits = 23 - _KEPT_BITS
        rounded = (single.view(np.uint32) + (1 << (dropped_bits - 1))) >> dropped_bits << dropped_bits
        values = np.where(np.isfinite(single), rounded.view(np.float32), single)
    else:
        floats = values.astype(np.float64)
        undefined = np.isnan(floats)
        values = np.where(undefined, _UNDEFINED_SCORE, score_steps(np.where(undefined, 0, floats))).astype(np.uint16)
    return facts | _put(values, parts)


def score_steps(values: NDArray[np.float64]) -> NDArray[np.int64]:
    """Round defined scores to the whole steps that a page keeps."""
    return np.rint(values * SCORE_STEPS).astype(np.int64)


def _whole(values: NDArray[Any]) -> NDArray[Any]:
    """Convert whole numbers to a type that scripts have: int32, or float64, which is exact up to 2**53."""
    return values.astype(np.float64 if values.max(initial=0) > _LARGEST else np.int32)


def _put(values: NDArray[Any], parts: list[bytes]) -> dict[str, Any]:
    offset = sum(map(len, parts))
    content = np.ascontiguousarray(values, values.dtype.newbyteorder("<")).tobytes()
    parts.append(content + b"\0" * (-len(content) % 8))
    return {"type": values.dtype.name, "offset": offset, "length": len(values)}


class CellLists:
    """Lists the cases in which pixels of one class were predicted as another, those with the most pixels first.

    If there are more than `most` pairs of cell and case, all cells get the same limit of cases. The limit only falls as
    cases are added, so the excess can be dropped early, and memory does not grow with the number of cases.

    Parameters
    ----------
    num_classes
        K.
    most
        Limit of the pairs in all cells together.
    """

    def __init__(self, num_classes: int, *, most: int = MOST_ENTRIES) -> None:
        self._size = num_classes
        self._most = most
        self._num_cases = 0
        self._cases_by_cell = np.zeros(num_classes**2, np.int64)
        self._parts = [(np.empty(0, np.int64),) * 3]  # arrays of cell, case and pixels

    def add(self, counts: NDArray[np.int64]) -> None:
        """Add the matrices (N, K, K) of the next N cases; the last column of (N, K, K + 1) is ignored."""
        case, row, column = np.nonzero(counts[..., : self._size])
        confused = row != column
        case, row, column = case[confused], row[confused], column[confused]
        cell = row * self._size + column
        self._cases_by_cell += np.bincount(cell, minlength=len(self._cases_by_cell))
        self._parts.append((cell, case + self._num_cases, counts[case, row, column]))
        self._num_cases += len(counts)
        if sum(len(part[0]) for part in self._parts) > 2 * self._most:
            self._cut()

    def arrays(self) -> dict[str, NDArray[np.int64]]:
        """Return the lists as arrays for a page.

        Returns
        -------
        dict
            ``cells`` (M, the cell's number ``target * K + predicted``), ``cell_cases`` (M, how many cases have such
            pixels), ``cell_kept`` (M, how many of them are listed), and ``cell_indices`` and ``cell_pixels``, the cases
            and their pixels, cell after cell.
        """
        self._cut()
        ((cell, case, pixels),) = self._parts
        cells, listed = np.unique(cell, return_counts=True)
        lists = {"cells": cells, "cell_cases": self._cases_by_cell[cells], "cell_kept": listed}
        return lists | {"cell_indices": case, "cell_pixels": pixels}

    def _cut(self) -> None:
        cell, case, pixels = (np.concatenate(parts) for parts in zip(*self._parts, strict=True))
        order = np.lexsort((case, -pixels, cell))
        cell = cell[order]
        rank = np.arange(len(cell)) - np.searchsorted(cell, cell)  # within the cell
        # the largest limit per cell, at least 1, with which all cells together keep at most `most` pairs
        by_cell = self._cases_by_cell
        limits = range(1, int(by_cell.max(initial=1)) + 1)
        limit = bisect_right(limits, self._most, key=lambda limit: int(np.minimum(by_cell, limit).sum()))
        kept = rank < max(1, limit)
        self._parts = [(cell[kept], case[order][kept], pixels[order][kept])]
