"""Packs a page's facts about its cases into one compressed block, which scripts read as typed arrays.

A column is one value per case: a table column, a filter, a histogram and an axis of the page, without further code
there. The lists of a confusion matrix's cells say which cases are behind each confusion.
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

SCORE_STEPS = 10_000  # a score is kept with four decimals, as it is shown
_UNDEFINED_SCORE = 65_535
_KEPT_BITS = 16  # of the 23 of a number's fraction: five digits, in three bytes that compress
_LARGEST = 2**31 - 1
DATA_BYTES = 3_600_000  # of the columns' numbers before they are compressed, to about half
CASE_BYTES = 120  # of each case where that is more: its scores, sizes, means of measures, and the IoU of 20 classes
MOST_BYTES = 12_000_000  # of any run
MOST_ENTRIES = 150_000  # pairs of cell and case that a page holds


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
        "score": a number in [0, 1], kept with four decimals; "number": any, kept with five digits; "count": whole,
        exact; "choice": one of a few texts, which the page offers as a filter; "text": any text.
    group
        The heading under which the reader chooses it.
    unit
        Shown with the label; "" for none.
    better
        Which values are better, if that is known.
    of_class, short
        The class that the value belongs to, and the name of the measure; the case view has a table by class.
    shown
        Whether the table shows it before the reader chooses.
    order
        The texts of a choice in order; by default alphabetical.
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
    the facts of the columns, and ``arrays`` the other arrays, of whole numbers, by name. Texts are in the header.
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
    kept and don't count. Neither do undefined values and zeros, which compress to almost nothing: a case contains few
    of many classes.
    """
    most_bytes = max(DATA_BYTES, min(MOST_BYTES, CASE_BYTES * len(columns[0].values)))
    kept, left = list[CaseColumn](), list[CaseColumn]()
    for _, neighbours in itertools.groupby(columns, key=lambda column: column.group):
        group, size = list(neighbours), 0
        for column in group:
            if column.kind != "text" and column.kind != "choice":
                values = np.asarray(column.values)
                told = values > 0 if column.kind == "count" else ~np.isnan(values)
                size += int(np.count_nonzero(told)) * (2 if column.kind == "score" else 4)
        fits = size <= most_bytes
        (kept if fits else left).extend(group)
        most_bytes -= size if fits else 0
    return kept, left


def _describe(column: CaseColumn, parts: list[bytes]) -> dict[str, Any]:
    kept = ("key", "label", "kind", "group", "unit", "better", "short", "shown")
    facts = {name: getattr(column, name) for name in kept} | {"of": column.of_class}
    if column.kind == "text":
        return facts | {"values": [clean(value) for value in column.values]}
    if column.kind == "choice":
        shown = {text: clean(text) for text in set(column.values)}
        names = [clean(text) for text in column.order] or sorted(set(shown.values()) - {""})
        place = {"": -1} | {name: index for index, name in enumerate(names)}
        facts["names"] = names
        kind = np.int8 if len(names) < 128 else np.int32
        return facts | _put(np.array([place[shown[text]] for text in column.values], kind), parts)
    values = np.asarray(column.values)
    if column.kind == "count":
        values = _whole(values)
    elif column.kind == "number":  # rounded to the nearest with fewer bits; infinite and undefined ones stay
        single, dropped = values.astype(np.float64).astype(np.float32), 23 - _KEPT_BITS
        rounded = (single.view(np.uint32) + (1 << (dropped - 1))) >> dropped << dropped
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
    """Lists the cases in which pixels of one class were predicted as another, the cases with the most pixels first.

    With more than `most` pairs of cell and case, every cell keeps at most the same number of cases. That number only
    falls as cases are added, so the excess is dropped at once and memory does not grow with the cases.

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
        self._cases = 0
        self._counts = np.zeros(num_classes**2, np.int64)  # of cases, by cell
        self._parts = [(np.empty(0, np.int64),) * 3]  # cell, case and pixels

    def add(self, counts: NDArray[np.int64]) -> None:
        """Add the matrices (N, K, K) of the next N cases; the last column of (N, K, K + 1) is ignored."""
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
        """Return the lists as arrays for a page.

        Returns
        -------
        dict
            ``cells`` (M, the cell's number ``target * K + predicted``), ``cell_cases`` (M, how many cases have any),
            ``cell_kept`` (M, how many of them are listed), and ``cell_indices`` and ``cell_pixels``, cell after cell.
        """
        self._cut()
        ((cell, case, pixels),) = self._parts
        cells, kept = np.unique(cell, return_counts=True)
        found = {"cells": cells, "cell_cases": self._counts[cells], "cell_kept": kept}
        return found | {"cell_indices": case, "cell_pixels": pixels}

    def _cut(self) -> None:
        cell, case, pixels = (np.concatenate(parts) for parts in zip(*self._parts, strict=True))
        order = np.lexsort((case, -pixels, cell))
        cell = cell[order]
        place = np.arange(len(cell)) - np.searchsorted(cell, cell)  # among those of the same cell
        # the largest limit per cell, at least 1, with which all cells together keep at most `most` pairs
        limits = range(1, int(self._counts.max(initial=1)) + 1)
        most = bisect_right(limits, self._most, key=lambda limit: int(np.minimum(self._counts, limit).sum()))
        kept = place < max(1, most)
        self._parts = [(cell[kept], case[order][kept], pixels[order][kept])]
