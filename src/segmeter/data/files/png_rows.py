"""Undoes the filters of PNG rows in compiled loops, for `png` (PNG specification, third edition, section 9).

Label maps are mostly flat, where residuals are 0. A Paeth row then copies the row above for as long as the pixel on the
left equals the one above it. With a == c the predictor is b, and a residual of 0 keeps a == c. Where the row above is
flat, b == c, the predictor is a, and the pixel on the left continues. Both cases are tested for eight bytes at a time;
the plain recurrence does the rest.

Indices are unsigned, so that numba adds no test for negative ones. Rows are given by their start, because slicing an
array takes as long as half a row.
"""

from typing import Any

import numpy as np

from segmeter.jit import borrowing_part, inlined_part, kernel

_EIGHT = np.uintp(8)
_ONE = np.uintp(1)
_EVEN = np.uint64(0x00FF_00FF_00FF_00FF)  # the bytes of a word that stand at even places
_BITS = np.uint64(8)
_BYTE = np.uint64(0xFF)
_LANES = np.uint64(0x0001_0001_0001_0001)
_BYTES = np.uint64(0x0101_0101_0101_0101)


@kernel
def undo_filters(stream: Any, pixels: Any, height: int, row_bytes: int, pixel_bytes: int) -> Any:
    """Undo the filter of each row.

    Parameters
    ----------
    stream : (height * (1 + row_bytes),) uint8
        The inflated rows, each led by the number of its filter.
    pixels : (height * row_bytes,) uint8
        Filled with the rows.
    height, row_bytes
        Sizes, each at least 1.
    pixel_bytes
        1 or 2.

    Returns
    -------
    bool
        False where a row names an unknown filter.
    """
    width, step, goal = np.uintp(row_bytes), np.uintp(pixel_bytes), np.uintp(0)
    above = np.zeros(width, np.uint8)
    if not undo_row(stream, np.uintp(0), pixels, goal, above, np.uintp(0), width, step):
        return False
    for y in range(np.uintp(1), np.uintp(height)):
        goal += width
        if not undo_row(stream, y * (_ONE + width), pixels, goal, pixels, goal - width, width, step):
            return False
    return True


@borrowing_part
def undo_row(stream: Any, source: Any, pixels: Any, goal: Any, above: Any, over: Any, width: Any, step: Any) -> Any:
    """Undo the filter of a row.

    Parameters
    ----------
    stream, source
        The filter's number and then the residuals are ``stream[source : source + 1 + width]``.
    pixels, goal
        The row is written to ``pixels[goal : goal + width]``.
    above, over
        The row above it is ``above[over : over + width]``.
    width, step
        Bytes of a row and of a pixel.

    Returns
    -------
    bool
        False where the filter is unknown.
    """
    kind, line, known = stream[source], source + _ONE, True
    if kind == 0:
        copy(stream, line, pixels, goal, width)
    elif kind == 1:
        _undo_sub(stream[line : line + width], pixels[goal : goal + width], step)
    elif kind == 2:
        _undo_up(stream, line, pixels, goal, above, over, width)
    elif kind == 3:
        _undo_average(stream, line, pixels, goal, above, over, width, step)
    elif kind == 4:
        _undo_paeth(stream, line, pixels, goal, above, over, width, step)
    else:
        known = False
    return known


@borrowing_part
def word_at(content: Any, at: Any) -> Any:
    """Return eight bytes as a number, the first in its low bits; the compiler makes one load of it."""
    word = np.uint64(0)
    for k in range(8):
        word |= np.uint64(content[at + np.uintp(k)]) << np.uint64(8 * k)
    return word


@borrowing_part
def _put_word(content: Any, at: Any, word: Any) -> None:
    """Write what `word_at` reads, in one store."""
    for k in range(8):
        content[at + np.uintp(k)] = np.uint8((word >> np.uint64(8 * k)) & _BYTE)


@borrowing_part
def copy(stream: Any, line: Any, pixels: Any, goal: Any, width: Any) -> None:
    """Copy bytes in a loop, because assigning a slice takes many times as long."""
    for x in range(width):
        pixels[goal + x] = stream[line + x]


@borrowing_part
def _undo_up(stream: Any, line: Any, pixels: Any, goal: Any, above: Any, over: Any, width: Any) -> None:
    for x in range(width):
        pixels[goal + x] = stream[line + x] + above[over + x]


@inlined_part
def _words(line: Any) -> Any:
    """Return what follows the first byte as words of eight bytes."""
    count = (line.size - 1) // 8
    return line[_ONE : np.uintp(1 + 8 * count)].view(np.uint64)


@borrowing_part
def _undo_sub(line: Any, row: Any, step: Any) -> Any:
    width = np.uintp(row.size)
    x = np.uintp(0)
    while x < step and x < width:
        row[x] = line[x]
        x += _ONE
    if step == _ONE:
        x = _undo_sub_words(line, row)
    while x < width:
        row[x] = line[x] + row[x - step]
        x += _ONE


@borrowing_part
def _undo_sub_words(line: Any, row: Any) -> Any:
    """Undo Sub in whole words after the first byte, and return where they end.

    Only the sums of whole words depend on each other: they are added between two vectorised loops. Every other byte
    stands in a lane of 16 bits, where the sum of all lower lanes is at most 9 * 255, so no lane overflows.
    """
    source, goal, left = _words(line), _words(row), np.uint64(line[0])
    for i in range(source.size):
        goal[i] = _sum_lanes((source[i] & _EVEN) + ((source[i] >> _BITS) & _EVEN)) >> np.uint64(48)
    for i in range(source.size):
        left, goal[i] = (left + goal[i]) & np.uint64(0xFF), left
    for i in range(source.size):
        odd = (source[i] >> _BITS) & _EVEN
        whole = _sum_lanes((source[i] & _EVEN) + odd) + goal[i] * _LANES
        goal[i] = ((whole - odd) & _EVEN) | ((whole & _EVEN) << _BITS)
    return _ONE + np.uintp(source.size) * _EIGHT


@inlined_part
def _sum_lanes(lanes: Any) -> Any:
    """Return, in each lane, the sum of it and all lower ones."""
    lanes += lanes << np.uint64(16)
    return lanes + (lanes << np.uint64(32))


@borrowing_part
def _undo_average(stream: Any, line: Any, pixels: Any, goal: Any, above: Any, over: Any, width: Any, step: Any) -> None:
    x = np.uintp(0)
    while x < step and x < width:
        pixels[goal + x] = stream[line + x] + (above[over + x] >> np.uint8(1))
        x += _ONE
    while x < width:
        mean = (np.uint32(pixels[goal + x - step]) + np.uint32(above[over + x])) >> _ONE
        pixels[goal + x] = stream[line + x] + np.uint8(mean)
        x += _ONE


@borrowing_part
def _undo_paeth(stream: Any, line: Any, pixels: Any, goal: Any, above: Any, over: Any, width: Any, step: Any) -> None:
    x = np.uintp(0)
    while x < step and x < width:
        pixels[goal + x] = stream[line + x] + above[over + x]
        x += _ONE
    while x + _EIGHT <= width:
        is_zero, new, old = word_at(stream, line + x) == 0, goal + x, over + x
        if is_zero and pixels[new - _ONE] == above[old - _ONE] and pixels[new - step] == above[old - step]:
            _put_word(pixels, new, word_at(above, old))
        elif step == _ONE and is_zero and word_at(above, old) == np.uint64(above[old - _ONE]) * _BYTES:
            _put_word(pixels, new, np.uint64(pixels[new - _ONE]) * _BYTES)
        else:
            for k in range(8):
                _undo_paeth_byte(stream, line, pixels, goal, above, over, x + np.uintp(k), step)
        x += _EIGHT
    while x < width:
        _undo_paeth_byte(stream, line, pixels, goal, above, over, x, step)
        x += _ONE


@borrowing_part
def _undo_paeth_byte(stream: Any, line: Any, pixels: Any, goal: Any, above: Any, over: Any, x: Any, step: Any) -> None:
    a, b, c = pixels[goal + x - step], above[over + x], above[over + x - step]
    if a == c:  # these two cases are the rule in label maps, and a branch waits for nothing
        best = b
    elif b == c:
        best = a
    else:
        best = _nearest(np.int32(a), np.int32(b), np.int32(c))
    pixels[goal + x] = stream[line + x] + best


@inlined_part
def _nearest(a: Any, b: Any, c: Any) -> Any:
    to_a, to_b, to_c = abs(b - c), abs(a - c), abs(a + b - c - c)
    nearest = b if to_b <= to_c else c
    return np.uint8(a if to_a <= to_b and to_a <= to_c else nearest)
