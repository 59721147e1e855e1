"""Rows that wait for the end of a run, in a fraction of their memory."""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, overload

import numpy as np

from segmeter.metrics.cases.table import CaseRow

PLAIN_BYTES = 1 << 24  # of rows that are kept as they are: short runs need no packing
EXTRA_BYTES = 128  # that a further score and its name take so

_NOTHING: Mapping[str, int] = {}
_NO_COUNTS = np.empty((0, 0), np.int64)


class _Packed(NamedTuple):
    row: CaseRow
    counts: bytes
    shape: tuple[int, ...]
    names: tuple[str, ...]  # of the extra scores; cases with the same ones share one tuple
    values: bytes


class RowStore(Sequence[CaseRow]):
    """A growing sequence of rows that keeps them, but for the first 16 MB, compressed, exactly.

    A confusion matrix is mostly zeros and small numbers: 19 classes take about 700 bytes instead of 3300. Further
    scores take 8 bytes each. Hand the store to `write_cases` and `summarise` like a list; rows are unpacked as they are
    read, some thousands at a time.

    Examples
    --------
    >>> store = RowStore()
    >>> store.append(CaseRow(case_id="a", height=1, width=2, counts=np.array([[1, 0], [1, 0]])))
    >>> store[0].counts
    array([[1, 0],
           [1, 0]])
    """

    def __init__(self) -> None:
        self._packed: list[_Packed | CaseRow] = []
        self._plain = 0
        self._names: dict[tuple[str, ...], tuple[str, ...]] = {}

    def append(self, row: CaseRow) -> None:
        """Keep a row."""
        self._plain += row.counts.nbytes + EXTRA_BYTES * len(row.extra)
        if self._plain <= PLAIN_BYTES:
            self._packed.append(replace(row, counts=np.array(row.counts)))
            return
        counts = zlib.compress(np.ascontiguousarray(row.counts, np.int64).tobytes(), 1)
        names = tuple(row.extra)
        values = np.fromiter(row.extra.values(), np.float64, len(names)).tobytes()
        light = replace(row, counts=_NO_COUNTS, changed_pixels=row.changed_pixels or _NOTHING, extra=_NOTHING)
        self._packed.append(_Packed(light, counts, row.counts.shape, self._names.setdefault(names, names), values))

    def __len__(self) -> int:
        return len(self._packed)

    @overload
    def __getitem__(self, index: int) -> CaseRow: ...
    @overload
    def __getitem__(self, index: slice) -> list[CaseRow]: ...
    def __getitem__(self, index: int | slice) -> CaseRow | list[CaseRow]:
        if isinstance(index, slice):
            return [_unpack(packed) for packed in self._packed[index]]
        return _unpack(self._packed[index])


def _unpack(packed: _Packed | CaseRow) -> CaseRow:
    if isinstance(packed, CaseRow):
        return packed
    counts = np.frombuffer(zlib.decompress(packed.counts), np.int64).reshape(packed.shape)
    extra = dict(zip(packed.names, np.frombuffer(packed.values, np.float64).tolist(), strict=True))
    return replace(packed.row, counts=counts, extra=extra)
