"""The compiled loops for rows that mostly equal the row above: only words that change are touched.

The current row of either map is changed in place, a word of eight pixels at a time. Before a word changes in one of the
maps, its pairs are counted, once for all the rows that they have stood.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from segmeter.data.files.png_rows import undo_row, word_at
from segmeter.jit import borrowing_part, inlined_part, trailing_zeros
from segmeter.metrics.pixels.confusion_kernels import WAYS

Array = NDArray[Any]

_ONE, _EIGHT, _BLOCK = np.uintp(1), np.uintp(8), np.uintp(64)
_NONE, _BIT, _BITS, _WORD, _TOP = (np.uint64(n) for n in (0, 1, 8, 64, 56))
_BYTE = np.uint64(0xFF)
_LOW_BITS = np.uint64(0x7F7F_7F7F_7F7F_7F7F)  # of each byte all but the highest, so that no sum runs over
_UP, _PAETH = 2, 4  # numbers of filters


class Tally(NamedTuple):
    """What rows are counted with; W is the width filled up to whole blocks of 64 pixels.

    Parameters
    ----------
    pixels : (4 * W,) uint8
        The current rows of target and labels, and room for two others.
    words : (W / 2,) uint64
        The same memory.
    since : (W / 8,) uint32
        The row since which a word of the current rows has stood.
    blocks : (W / 64,) uint32
        Overwritten.
    numbers : (2, 256) uint64
        What a value of the target, and one of the labels, adds to a pair's number.
    table : (WAYS * size,) uint32
        Sub-tables of the pairs by their numbers.
    """

    pixels: Array
    words: Array
    since: Array
    blocks: Array
    numbers: Array
    table: Array


@borrowing_part
def change_row(tally: Tally, stream: Array, at: Any, width: Any, now: Any, goal: Any, room: Any, row: Any) -> Any:
    """Undo the filter of one map's next row in place.

    Parameters
    ----------
    tally
        What is counted with.
    stream, at
        The filter's number and the residuals are ``stream[at : at + 1 + width]``.
    width
        Pixels of a row.
    now, goal
        The words where the current row of the target starts, with that of the labels behind it; and where this map's
        does.
    room
        The word from where another row may be written.
    row
        The number of this row.

    Returns
    -------
    int
        How many words are the first of both maps to change in this row; -1 where the filter is unknown.
    """
    kind, line = stream[at], at + _ONE
    if kind == _UP:
        return _undo_up(tally, stream, line, width, now, goal, row)
    if kind == _PAETH:
        return _undo_paeth(tally, stream, line, width, now, goal, row)
    pixels, words, changes = tally.pixels, tally.words, np.intp(0)
    if not undo_row(stream, at, pixels, room * _EIGHT, pixels, goal * _EIGHT, width, _ONE):
        return np.intp(-1)
    for k in range(np.uintp(tally.since.size)):
        if words[room + k] != words[goal + k]:
            changes += _replace(tally, now, goal, k, words[room + k], row)
    return changes


@borrowing_part
def _undo_up(tally: Tally, stream: Array, line: Any, width: Any, now: Any, goal: Any, row: Any) -> Any:
    words, blocks, changes = tally.words, tally.blocks, np.intp(0)
    count: Any = np.uintp(0)
    whole, last = width // _BLOCK, width // _EIGHT
    for i in range(whole):  # list the blocks that change without a branch, which would often be guessed wrong
        blocks[count] = i
        count += np.uintp(_has_residual(stream, line + i * _BLOCK))
    if whole * _EIGHT < last:
        blocks[count] = whole
        count += _ONE
    for i in range(count):
        start = np.uintp(blocks[i]) * _EIGHT
        rest = _mark_residuals(stream, line + start * _EIGHT, min(_EIGHT, last - start))
        while rest:
            k = start + np.uintp(trailing_zeros(rest))
            rest &= rest - _BIT
            word = _add_bytes(words[goal + k], word_at(stream, line + k * _EIGHT))
            changes += _replace(tally, now, goal, k, word, row)
    if last * _EIGHT < width:
        word = _add_bytes(words[goal + last], _last_word(stream, line, last, width))
        changes += _replace(tally, now, goal, last, word, row)
    return changes


@borrowing_part
def _undo_paeth(tally: Tally, stream: Array, line: Any, width: Any, now: Any, goal: Any, row: Any) -> Any:
    """Undo Paeth: where left and corner are equal, a residual of 0 leaves the pixel as it is, and them equal."""
    words, changes, left, corner = tally.words, np.intp(0), _NONE, _NONE
    whole = width // _EIGHT
    for start in range(np.uintp(0), whole, _EIGHT):
        end = min(start + _EIGHT, whole)
        if left == corner and end == start + _EIGHT and not _has_residual(stream, line + start * _EIGHT):
            continue
        rest = _mark_residuals(stream, line + start * _EIGHT, end - start)
        k: Any = start
        while k < end and (rest or left != corner):
            if left == corner:
                k = start + np.uintp(trailing_zeros(rest))
            old = words[goal + k]
            word = _undo_paeth_word(word_at(stream, line + k * _EIGHT), old, left, corner, _WORD)
            changes += _replace(tally, now, goal, k, word, row)
            left, corner = word >> _TOP, old >> _TOP
            rest &= ~(_BIT << np.uint64(k - start))
            k += _ONE
    if whole * _EIGHT < width:
        bits = _BITS * np.uint64(width - whole * _EIGHT)
        residuals = _last_word(stream, line, whole, width)
        word = _undo_paeth_word(residuals, words[goal + whole], left, corner, bits)
        changes += _replace(tally, now, goal, whole, word, row)
    return changes


@borrowing_part
def _undo_paeth_word(residuals: Any, old: Any, left: Any, corner: Any, bits: Any) -> Any:
    """The lowest bits of a word whose row above is `old`; the others are those of `old`."""
    word, place = old, _NONE
    if left == corner:
        if not residuals:
            return word
        place += trailing_zeros(residuals) & _TOP
    while place < bits:
        above = (old >> place) & _BYTE
        best = _nearest(np.int64(left), np.int64(above), np.int64(corner))
        left, corner = (((residuals >> place) & _BYTE) + best) & _BYTE, above
        word ^= (left ^ above) << place
        place += _BITS
    return word


@inlined_part
def _nearest(a: Any, b: Any, c: Any) -> Any:
    to_a, to_b, to_c = abs(b - c), abs(a - c), abs(a + b - c - c)
    nearest = b if to_b <= to_c else c
    return np.uint64(a if to_a <= to_b and to_a <= to_c else nearest)


@borrowing_part
def _has_residual(stream: Array, at: Any) -> Any:
    """Whether one of 64 residuals is not 0."""
    found = _NONE
    for k in range(8):
        found |= word_at(stream, at + np.uintp(8 * k))
    return found != 0


@borrowing_part
def _mark_residuals(stream: Array, at: Any, count: Any) -> Any:
    """A bit for each of up to eight words, set where one of its residuals is not 0."""
    found = _NONE
    for k in range(count):
        found |= np.uint64(word_at(stream, at + k * _EIGHT) != 0) << np.uint64(k)
    return found


@borrowing_part
def _last_word(stream: Array, line: Any, k: Any, width: Any) -> Any:
    """The residuals of the word that reaches beyond the row, where they are 0."""
    found = _NONE
    for x in range(k * _EIGHT, width):
        found |= np.uint64(stream[line + x]) << (_BITS * np.uint64(x - k * _EIGHT))
    return found


@inlined_part
def _add_bytes(word: Any, other: Any) -> Any:
    return ((word & _LOW_BITS) + (other & _LOW_BITS)) ^ ((word ^ other) & ~_LOW_BITS)


@borrowing_part
def _replace(tally: Tally, now: Any, goal: Any, k: Any, word: Any, row: Any) -> Any:
    """Count the pairs of a word as often as they stood, and change it in one map; whether it had stood at all."""
    words, since = tally.words, tally.since
    rows = row - since[k]
    _add(words[now + k], words[now + np.uintp(since.size) + k], rows, tally.numbers, tally.table)
    since[k] = row
    words[goal + k] = word
    return np.intp(rows != 0)


@borrowing_part
def add_all(tally: Tally, now: Any, row: Any) -> None:
    """Count all words of the current rows, as often as they stood before `row`."""
    words, since, count = tally.words, tally.since, np.uintp(tally.since.size)
    for k in range(count):
        _add(words[now + k], words[now + count + k], row - since[k], tally.numbers, tally.table)


@borrowing_part
def _add(target: Any, labels: Any, rows: Any, numbers: Array, table: Array) -> None:
    """Add eight pairs `rows` times, each in the sub-table of its place."""
    size = np.uint64(table.size // WAYS)
    for k in range(8):
        place = np.uint64(8 * k)
        row, column = (target >> place) & _BYTE, (labels >> place) & _BYTE
        table[numbers[0, row] + numbers[1, column] + np.uint64(k) * size] += rows
