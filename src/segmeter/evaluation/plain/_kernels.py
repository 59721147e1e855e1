"""The compiled loop behind `pairs`: filtered rows of two PNGs -> counts, while the rows are in the first-level cache.

Rows of label maps are mostly equal to the row above. Words of eight pixels that stay as they are in both maps are only
counted when they change or the map ends, once for all the rows that they have stayed. Where few words stay, as in
noise, the pairs of each row are counted one by one.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from segmeter.data.files.deflate.linked import crc32
from segmeter.data.files.png_rows import undo_row
from segmeter.evaluation.plain._changes import Tally, add_all, change_row
from segmeter.jit import borrowing_part, inlined_part, kernel
from segmeter.metrics.pixels.confusion_kernels import AGAIN, WAYS, encode_pairs, tally_plain, tally_runs

Array = NDArray[Any]

_ONE, _TWO, _FOUR, _EIGHT = np.uintp(1), np.uintp(2), np.uintp(4), np.uintp(8)
_STRIDE = 64  # pixels to whose multiple rows are filled up: what is compared at once
_FEW, _MANY = (
    np.uintp(4),
    np.uintp(2),
)  # begun below a fourth of the words that change, ended above half of them: measured


@kernel
def count_rows(first: Array, second: Array, width: int, ignore: int, counts: Array) -> tuple[bool, int]:
    """Count the pairs of pixels of two images.

    Parameters
    ----------
    first, second : (H * (1 + W),) uint8
        The inflated rows of target and labels, each led by the number of its filter; fewer than 2**32 pixels.
    width
        W.
    ignore
        The value of the target that is left out; 0 where there is none.
    counts : (K, K) int64
        Filled; K is at most 254.

    Returns
    -------
    done : bool
        False where a filter is unknown or a value is outside the classes.
    checksum : int
        The CRC-32 of the target's pixels.
    """
    classes, height = len(counts), first.size // (1 + width)
    size = (classes + 2) * (classes + 1)
    table = np.zeros(WAYS * size, np.uint32)
    known, checksum = _tally_rows(first, second, width, ignore, classes, table)
    if not known:
        return False, 0
    counted: Any = 0
    for row in range(classes + 1):
        for column in range(classes):
            cell = row * (classes + 1) + column
            total = np.int64(0)
            for way in range(WAYS):
                total += table[way * size + cell]
            if cell == 0:
                total -= height * (_filled(width) - width)
            if row < classes:
                counts[row, column] = total
            counted += total
    return counted == height * width, checksum


@inlined_part
def _filled(width: Any) -> Any:
    return (width + _STRIDE - 1) // _STRIDE * _STRIDE


@kernel
def _tally_rows(first: Array, second: Array, width: int, ignore: int, classes: int, table: Array) -> tuple[bool, Any]:
    """Add the pairs of all rows, filled up with pixels of 0 at their ends, to the sub-tables; the target's checksum."""
    height, checksum = first.size // (1 + width), np.uint32(0)
    filled, columns, at = np.uintp(_filled(width)), np.uintp(width), np.uintp(0)
    count, pixels = filled // _EIGHT, np.zeros(_FOUR * filled, np.uint8)
    since, blocks = np.zeros(count, np.uint32), np.empty(count // _EIGHT, np.uint32)
    tally = Tally(pixels, pixels.view(np.uint64), since, blocks, _number_values(classes, ignore), table)
    joint = np.empty(filled // _FOUR, np.uint64)
    staying: Any = False  # whether words are counted when they change; else each row is
    runs_pay: Any = True
    now, other = np.uintp(0), _TWO * count  # the words where the current rows start, and the other ones
    for y in range(height):
        row = np.uint32(y)
        if staying:
            changed = change_row(tally, first, at, columns, now, now, other, row)
            also = change_row(tally, second, at, columns, now, now + count, other, row)
            if changed < 0 or also < 0:
                return False, 0
            if np.uintp(changed + also) * _MANY > count:
                staying = False
                add_all(tally, now, row + np.uint32(1))
        else:
            now, other = other, now
            start, above = now * _EIGHT, other * _EIGHT
            if not undo_row(first, at, pixels, start, pixels, above, columns, _ONE):
                return False, 0
            if not undo_row(second, at, pixels, start + filled, pixels, above + filled, columns, _ONE):
                return False, 0
            runs_pay = _count_row(
                pixels[start : start + _TWO * filled], joint, classes, ignore, table, runs_pay or y % AGAIN == 0
            )
            staying = _count_changes(tally.words, now, other, count) * _FEW < count
            since[:] = y + 1
        checksum = crc32(checksum, pixels.ctypes.data + now * _EIGHT, columns)  # while the row is in the cache
        at += _ONE + columns
    if staying:
        add_all(tally, now, np.uint32(height))
    return True, np.int64(checksum)


@kernel
def _count_row(pixels: Array, joint: Array, classes: int, ignore: int, table: Array, by_runs: bool) -> bool:
    """Count the pairs of a row of target and labels; whether it has enough runs for looking for them to pay."""
    filled, size = pixels.size // 2, np.uint64(table.size // WAYS)
    encode_pairs(pixels[:filled], pixels[filled:], joint.view(np.uint16), classes, ignore)
    if by_runs:
        return bool(tally_runs(joint, table, size) * 64 >= 5 * filled)
    tally_plain(joint, table, size)
    return False


@kernel
def _number_values(classes: int, ignore: int) -> Array:
    """(2, 256): what a value of the target, and one of the labels, adds to a pair's number in a table."""
    numbers = np.empty((2, 256), np.uint64)
    for value in range(256):
        row = value if value < classes else classes if value == ignore else classes + 1
        numbers[0, value] = row * (classes + 1)
        numbers[1, value] = min(value, classes)
    return numbers


@borrowing_part
def _count_changes(words: Array, now: Any, before: Any, count: Any) -> Any:
    """How many words are not those of the row before, in target or labels."""
    changes = np.uintp(0)
    for k in range(np.uintp(count)):
        target = words[now + k] ^ words[before + k]
        changes += (target | (words[now + count + k] ^ words[before + count + k])) != 0
    return changes
