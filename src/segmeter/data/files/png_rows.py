"""The compiled loops behind `png`: filtered rows -> bytes (PNG specification, third edition, section 9).

Label maps are mostly flat, where the residuals are 0. A Paeth row then copies the row above for as long as the pixel
on the left equals the one above it: with a == c the predictor is b, and a residual of 0 keeps a == c. Where the row
above is flat, b == c, the predictor is a, and the pixel on the left goes on. Eight bytes at a time are tested for
either, and the plain recurrence does the rest.

Indices are unsigned, so that numba adds no test for negative ones.
"""

from typing import Any

import numpy as np

from segmeter.jit import inlined_part, kernel

_EIGHT = np.uintp(8)
_ONE = np.uintp(1)
_TWO = np.uintp(2)
_EVEN = np.uint64(0x00FF_00FF_00FF_00FF)  # the bytes of a word that stand at even places
_BITS = np.uint64(8)
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
    if pixel_bytes == 1:
        return _undo_rows(stream, pixels, height, np.uintp(row_bytes), _ONE)
    return _undo_rows(stream, pixels, height, np.uintp(row_bytes), _TWO)


@inlined_part
def _undo_rows(stream: Any, pixels: Any, height: int, width: Any, step: Any) -> Any:
    """A constant step, so that the compiler sees which bytes of a row are already in its registers."""
    source, goal = np.uintp(0), np.uintp(0)
    above = np.zeros(width, np.uint8)
    for _ in range(height):
        kind = stream[source]
        line = stream[source + _ONE : source + _ONE + width]
        row = pixels[goal : goal + width]
        if not undo_row(kind, line, row, above, step):
            return False
        above = row
        source += _ONE + width
        goal += width
    return True


@inlined_part
def undo_row(kind: Any, line: Any, row: Any, above: Any, step: Any) -> Any:
    """Fill `row` from the residuals `line` and the row above, all (W,) uint8; False where the filter is unknown."""
    known = True
    if kind == 0:
        _copy(line, row)
    elif kind == 1:
        _undo_sub(line, row, step)
    elif kind == 2:
        _undo_up(line, row, above)
    elif kind == 3:
        _undo_average(line, row, above, step)
    elif kind == 4:
        _undo_paeth(line, row, above, step)
    else:
        known = False
    return known


@inlined_part
def _words(line: Any, step: Any) -> Any:
    """What follows the first pixel's bytes, eight bytes at a time, as far as whole words go."""
    count = (line.size - min(np.int64(step), line.size)) // 8
    return line[step : step + np.uintp(8 * count)].view(np.uint64)


@kernel
def _copy(line: Any, row: Any) -> None:
    for x in range(row.size):
        row[x] = line[x]


@kernel
def _undo_up(line: Any, row: Any, above: Any) -> None:
    for x in range(row.size):
        row[x] = line[x] + above[x]


@inlined_part
def _undo_sub(line: Any, row: Any, step: Any) -> Any:
    width = np.uintp(row.size)
    x = min(step, width)
    row[:x] = line[:x]
    if step == _ONE:
        x = _undo_sub_words(line, row)
    while x < width:
        row[x] = line[x] + row[x - step]
        x += _ONE


@kernel
def _undo_sub_words(line: Any, row: Any) -> Any:
    """Undo Sub for what follows the first byte, as far as whole words go; where that is.

    Only the sums of whole words wait for one another: they are added up between two loops that are vectorised. Every
    other byte stands in a lane of 16 bits, where the sum of all lower lanes is at most 9 * 255 with what comes before,
    so that no lane overflows.
    """
    source, goal, left = _words(line, _ONE), _words(row, _ONE), np.uint64(line[0])
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
    """In each lane, the sum of it and all lower ones."""
    lanes += lanes << np.uint64(16)
    return lanes + (lanes << np.uint64(32))


@inlined_part
def _undo_average(line: Any, row: Any, above: Any, step: Any) -> None:
    width = np.uintp(row.size)
    x = np.uintp(0)
    while x < step and x < width:
        row[x] = line[x] + (above[x] >> np.uint8(1))
        x += _ONE
    while x < width:
        row[x] = line[x] + np.uint8((np.uint32(row[x - step]) + np.uint32(above[x])) >> _ONE)
        x += _ONE


@inlined_part
def _undo_paeth(line: Any, row: Any, above: Any, step: Any) -> None:
    width = np.uintp(row.size)
    x = np.uintp(0)
    while x < step and x < width:
        row[x] = line[x] + above[x]
        x += _ONE
    over, i = _words(above, step), np.uintp(0)
    for word in _words(line, step):
        if word == 0 and row[x - _ONE] == above[x - _ONE] and row[x - step] == above[x - step]:
            for k in range(8):
                row[x + np.uintp(k)] = above[x + np.uintp(k)]
        elif step == _ONE and word == 0 and over[i] == np.uint64(above[x - _ONE]) * _BYTES:
            left = row[x - _ONE]
            for k in range(8):
                row[x + np.uintp(k)] = left
        else:
            for k in range(8):
                _undo_paeth_byte(line, row, above, x + np.uintp(k), step)
        x += _EIGHT
        i += _ONE
    while x < width:
        _undo_paeth_byte(line, row, above, x, step)
        x += _ONE


@inlined_part
def _undo_paeth_byte(line: Any, row: Any, above: Any, x: Any, step: Any) -> None:
    a, b, c = np.int32(row[x - step]), np.int32(above[x]), np.int32(above[x - step])
    to_a, to_b, to_c = abs(b - c), abs(a - c), abs(a + b - c - c)
    nearest = b if to_b <= to_c else c
    best = a if to_a <= to_b and to_a <= to_c else nearest
    row[x] = line[x] + np.uint8(best)
