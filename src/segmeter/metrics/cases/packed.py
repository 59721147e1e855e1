"""Rows of a run in progress -> the same rows, compressed in memory."""

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import NamedTuple, overload

import numpy as np

from segmeter.metrics.cases.columns import ColumnKey, MeasureColumn
from segmeter.metrics.cases.table import CaseRow, Head

PLAIN_BYTES = 1 << 24  # of rows that are kept uncompressed: short runs need no packing
EXTRA_BYTES = 128  # of an uncompressed score and its name

_NOTHING: Mapping[str, int] = {}
_NO_COUNTS = np.empty((0, 0), np.int64)

_KEPT = tuple(each.name for each in fields(CaseRow) if each.name not in ("counts", "measured", "extra"))
_Names = tuple[tuple[ColumnKey, ...], tuple[str, ...]]


class _Packed(NamedTuple):
    row: CaseRow
    counts: bytes
    shape: tuple[int, ...]
    names: _Names  # of what `values` holds; cases with the same ones share one tuple
    values: bytes  # of the measures, then the extra scores


class RowStore(Sequence[CaseRow]):
    """A growing sequence of rows, compressed without loss from the first 16 MB on.

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
        self._names: dict[_Names, _Names] = {}

    def append(self, row: CaseRow) -> None:
        """Keep a row."""
        self._plain += row.counts.nbytes + EXTRA_BYTES * (len(row.measured) + len(row.extra))
        if self._plain <= PLAIN_BYTES:
            self._packed.append(replace(row, counts=np.array(row.counts)))
            return
        counts = zlib.compress(np.ascontiguousarray(row.counts, np.int64).tobytes(), 1)
        names = tuple(column.key for column in row.measured), tuple(row.extra)
        values = np.array([*(column.value for column in row.measured), *row.extra.values()], np.float64).tobytes()
        changed = row.changed_pixels or _NOTHING
        light = replace(row, counts=_NO_COUNTS, changed_pixels=changed, measured=(), extra=_NOTHING)
        self._packed.append(_Packed(light, counts, row.counts.shape, self._names.setdefault(names, names), values))

    def heads(self) -> Iterator[Head]:
        """Id, shape and dtype of the counts of each row, without unpacking it."""
        for packed in self._packed:
            if isinstance(packed, CaseRow):
                yield packed.case_id, packed.counts.shape, packed.counts.dtype
            else:
                yield packed.row.case_id, packed.shape, _NO_COUNTS.dtype

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
    keys, names = packed.names
    values = np.frombuffer(packed.values, np.float64).tolist()
    measured = tuple(
        MeasureColumn(metric, region, value, summed)
        for (metric, region, summed), value in zip(keys, values[: len(keys)], strict=True)
    )
    extra = dict(zip(names, values[len(keys) :], strict=True))
    kept = {name: getattr(packed.row, name) for name in _KEPT}  # `replace` takes several times as long
    return CaseRow(**kept, counts=counts, measured=measured, extra=extra)
