"""Rows of a run in progress -> the same rows, compressed in memory."""

import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from struct import Struct
from typing import NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from segmeter.metrics.cases.columns import ColumnKey, MeasureColumn
from segmeter.metrics.cases.table import CaseRow, Head

PLAIN_BYTES = 1 << 24  # of rows that are kept uncompressed: short runs need no packing
EXTRA_BYTES = 128  # of an uncompressed score and its name

_NOTHING: Mapping[str, int] = {}
_INT64 = np.dtype(np.int64)
_HEAD = Struct("<6qd")  # height, width, depth, both checksums, whether there is a loss, the loss
_ABSENT = -1  # in place of None


class _Common(NamedTuple):
    """What most rows of a run have in common, so that it is kept once."""

    shape: tuple[int, ...]  # of the counts
    keys: tuple[ColumnKey, ...]  # of the measures
    extra: tuple[str, ...]
    changed: tuple[str, ...]
    terms: int
    spacing: tuple[float, ...] | None
    unit: str


class RowStore(Sequence[CaseRow]):
    """A growing sequence of rows, compressed without loss from the first 16 MB on.

    A confusion matrix is mostly zeros and small numbers: a row of 19 classes takes about 600 bytes instead of 3700.
    Hand the store to `write_cases` and `summarise` like a list; rows are unpacked as they are read, some thousands at a
    time.

    Examples
    --------
    >>> store = RowStore()
    >>> store.append(CaseRow(case_id="a", height=1, width=2, counts=np.array([[1, 0], [1, 0]])))
    >>> store[0].counts
    array([[1, 0],
           [1, 0]])
    """

    def __init__(self) -> None:
        self._plain: list[CaseRow] = []
        self._plain_bytes = 0
        self._ids: list[str] = []  # of the rows after these; lists side by side, as an object for each takes more
        self._common: list[_Common] = []
        self._packed: list[bytes] = []
        self._known: dict[_Common, _Common] = {}

    def append(self, row: CaseRow) -> None:
        """Keep a row."""
        spacing = None if row.spacing is None else tuple(row.spacing)  # a list has no hash
        self._plain_bytes += row.counts.nbytes + EXTRA_BYTES * (len(row.measured) + len(row.extra))
        if self._plain_bytes <= PLAIN_BYTES:
            self._plain.append(replace(row, counts=np.array(row.counts), spacing=spacing))
            return
        common = _Common(
            shape=row.counts.shape,
            keys=tuple(column.key for column in row.measured),
            extra=tuple(row.extra),
            changed=tuple(row.changed_pixels),
            terms=len(row.loss_terms),
            spacing=spacing,
            unit=row.unit,
        )
        packed = _pack(row)  # before anything is kept of a row that can't be packed
        self._ids.append(row.case_id)
        self._common.append(self._known.setdefault(common, common))
        self._packed.append(packed)

    def heads(self) -> Iterator[Head]:
        """Id, shape and dtype of the counts of each row, without unpacking it."""
        yield from ((row.case_id, row.counts.shape, row.counts.dtype) for row in self._plain)
        yield from ((case_id, one.shape, _INT64) for case_id, one in zip(self._ids, self._common, strict=True))

    def __len__(self) -> int:
        return len(self._plain) + len(self._packed)

    @overload
    def __getitem__(self, index: int) -> CaseRow: ...
    @overload
    def __getitem__(self, index: slice) -> list[CaseRow]: ...
    def __getitem__(self, index: int | slice) -> CaseRow | list[CaseRow]:
        places = range(len(self))[index]
        return self._row(places) if isinstance(places, int) else [self._row(place) for place in places]

    def _row(self, place: int) -> CaseRow:
        if place < len(self._plain):
            return self._plain[place]
        place -= len(self._plain)
        return _unpack(self._ids[place], self._common[place], self._packed[place])


def _pack(row: CaseRow) -> bytes:
    """All that is a row's own but its id: numbers, counts and objects."""
    known = (_ABSENT if one is None else one for one in (row.depth, row.target_crc32, row.objects_crc32))
    head = _HEAD.pack(row.height, row.width, *known, row.loss is not None, 0.0 if row.loss is None else row.loss)
    floats = [*(one for pair in row.loss_terms for one in pair), *(column.value for column in row.measured)]
    numbers = np.array([*floats, *row.extra.values()], np.float64)
    changed = np.array([*row.changed_pixels.values()], np.int64)
    counts = np.ascontiguousarray(row.counts, np.int64).reshape(-1).view(np.uint8).reshape(-1, 8)
    planes = counts.T.tobytes()  # small numbers have most bytes 0, which are so side by side
    return zlib.compress(b"".join((head, changed.tobytes(), numbers.tobytes(), planes, row.objects)), 1)


def _unpack(case_id: str, common: _Common, packed: bytes) -> CaseRow:
    content = zlib.decompress(packed)
    height, width, depth, target, objects, has_loss, loss = _HEAD.unpack_from(content)
    changed, end = _numbers(content, np.int64, len(common.changed), _HEAD.size)
    count = 2 * common.terms + len(common.keys) + len(common.extra)
    values, end = _numbers(content, np.float64, count, end)
    planes, end = _numbers(content, np.uint8, 8 * math.prod(common.shape), end)
    counts = np.ascontiguousarray(planes.reshape(8, -1).T).view(np.int64).reshape(common.shape)
    numbers = iter(values.tolist())
    return CaseRow(
        case_id=case_id,
        height=height,
        width=width,
        counts=counts,
        loss=loss if has_loss else None,
        loss_terms=tuple((next(numbers), next(numbers)) for _ in range(common.terms)),
        changed_pixels=dict(zip(common.changed, changed.tolist(), strict=True)) if common.changed else _NOTHING,
        measured=tuple(MeasureColumn(metric, region, next(numbers), added) for metric, region, added in common.keys),
        extra=dict(zip(common.extra, numbers, strict=True)) if common.extra else {},
        depth=None if depth == _ABSENT else depth,
        spacing=common.spacing,
        unit=common.unit,
        objects=content[end:],
        target_crc32=None if target == _ABSENT else target,
        objects_crc32=None if objects == _ABSENT else objects,
    )


def _numbers(content: bytes, dtype: type[np.generic], count: int, start: int) -> tuple[NDArray[np.generic], int]:
    """Some numbers of the content, and where they end."""
    end = start + count * np.dtype(dtype).itemsize
    return np.frombuffer(content, dtype, count, start), end
