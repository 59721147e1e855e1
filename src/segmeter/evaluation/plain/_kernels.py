"""The compiled loop behind `pairs`: filtered rows of two PNGs -> counts, while the rows are in the first-level cache.

Rows of label maps are mostly equal to the row above. Words of eight pixels that stay as they are in both maps are only
counted when they change or the map ends, once for all the rows that they have stayed. Where few words stay, as in
noise, the pairs of each row are counted one by one.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from segmeter.data.files.png_rows import copy, undo_row
from segmeter.jit import borrowing_part, inlined_part, kernel
from segmeter.metrics.pixels.confusion_kernels import AGAIN, WAYS, encode_pairs, tally_plain, tally_runs

Array = NDArray[Any]

_ONE, _TWO, _FOUR, _EIGHT = np.uintp(1), np.uintp(2), np.uintp(4), np.uintp(8)
_BYTE = np.uint64(0xFF)
_REPEAT = np.uint64(0x0101_0101_0101_0101)
_STRIDE = 64  # pixels to whose multiple rows are filled up: what is compared at once
_FEW, _MANY = (
    np.uintp(4),
    np.uintp(2),
)  # begun below a fourth of the words that change, ended above half of them: measured


@kernel
def count_rows(first: Array, second: Array, ignore: int, samples: Array, counts: Array) -> bool:
    """Count the pairs of pixels of two images.

    Parameters
    ----------
    first, second : (H * (1 + W),) uint8
        The inflated rows of target and labels, each led by the number of its filter; fewer than 2**32 pixels.
    ignore
        The value of the target that is left out; 0 where there is none.
    samples : (H, W) uint8
        Filled with the target; it may start where `first` does, as no row is needed once it is counted.
    counts : (K, K) int64
        Filled; K is at most 254.

    Returns
    -------
    bool
        False where a filter is unknown or a value is outside the classes.
    """
    classes = len(counts)
    size = (classes + 2) * (classes + 1)
    table = np.zeros(WAYS * size, np.uint32)
    height, width = samples.shape
    if not _tally(first, second, ignore, classes, samples, table):
        return False
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
    return bool(counted == height * width)


@inlined_part
def _filled(width: Any) -> Any:
    return (width + _STRIDE - 1) // _STRIDE * _STRIDE


@kernel
def _tally(first: Array, second: Array, ignore: int, classes: int, samples: Array, table: Array) -> bool:
    """Add the pairs of all rows, filled up with pixels of 0 at their ends, to the sub-tables."""
    height, width = samples.shape
    filled, columns, at = np.uintp(_filled(width)), np.uintp(width), np.uintp(0)
    count, kept = filled // _EIGHT, samples.reshape(-1)
    pixels = np.zeros(_FOUR * filled, np.uint8)  # target, labels, and the two of the row before; or the other way round
    words = pixels.view(np.uint64)
    changed, since = np.zeros(count, np.uint64), np.zeros(count, np.uint32)
    joint = np.empty(filled // _FOUR, np.uint64)
    pairs, size = joint.view(np.uint16), np.uint64(table.size // WAYS)
    numbers = _number_values(classes, ignore)
    staying: Any = False  # whether words are counted when they change; else each row is
    runs_pay: Any = True
    now, before = np.uintp(0), _TWO
    for y in range(height):
        start, half = now * filled, (now + _ONE) * filled
        if not undo_row(first, at, pixels, start, pixels, before * filled, columns, _ONE):
            return False
        if not undo_row(second, at, pixels, half, pixels, (before + _ONE) * filled, columns, _ONE):
            return False
        at += _ONE + columns
        copy(pixels, start, kept, np.uintp(y) * columns, columns)
        changes = _compare(words, now * count, before * count, changed)
        if staying:
            if changes:
                _add_changed(words, before * count, changed, since, np.uint32(y), numbers, table)
            if changes * _MANY > count:
                staying = False
                _add_all(words, now * count, since, np.uint32(y + 1), numbers, table)
        else:
            encode_pairs(pixels[start:half], pixels[half : half + filled], pairs, classes, ignore)
            if runs_pay or y % AGAIN == 0:
                runs_pay = tally_runs(joint, table, size) * 64 >= 5 * filled
            else:
                tally_plain(joint, table, size)
            staying = changes * _FEW < count
            since[:] = y + 1
        now, before = before, now
    if staying:
        _add_all(words, before * count, since, np.uint32(height), numbers, table)
    return True


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
def _compare(words: Array, now: Any, before: Any, changed: Array) -> Any:
    """Mark the words that are not those of the row before, in target or labels, and count them."""
    count, changes = np.uintp(changed.size), np.uintp(0)
    for k in range(count):
        target = words[now + k] ^ words[before + k]
        changed[k] = target | (words[now + count + k] ^ words[before + count + k])
        changes += changed[k] != 0
    return changes


@borrowing_part
def _add_changed(
    words: Array, before: Any, changed: Array, since: Array, row: Any, numbers: Array, table: Array
) -> None:
    """Add the words of the row before that end here, as often as they stood."""
    count = np.uintp(changed.size)
    for start in range(np.uintp(0), count, _EIGHT):
        ended = np.uint64(0)
        for k in range(8):
            ended |= changed[start + np.uintp(k)]
        if ended:
            for k in range(start, start + _EIGHT):
                if changed[k]:
                    _add(words[before + k], words[before + count + k], row - since[k], numbers, table)
                    since[k] = row


@borrowing_part
def _add_all(words: Array, now: Any, since: Array, row: Any, numbers: Array, table: Array) -> None:
    """Add all words of a row, as often as they stood before `row`."""
    count = np.uintp(since.size)
    for k in range(count):
        _add(words[now + k], words[now + count + k], row - since[k], numbers, table)


@borrowing_part
def _add(target: Any, labels: Any, rows: Any, numbers: Array, table: Array) -> None:
    """Add eight pairs `rows` times: in the first sub-table where they are equal, else each in that of its place."""
    row, column = target & _BYTE, labels & _BYTE
    if target == row * _REPEAT and labels == column * _REPEAT:
        table[numbers[0, row] + numbers[1, column]] += np.uint32(8) * rows
    else:
        size = np.uint64(table.size // WAYS)
        for k in range(8):
            place = np.uint64(8 * k)
            row, column = (target >> place) & _BYTE, (labels >> place) & _BYTE
            table[numbers[0, row] + numbers[1, column] + np.uint64(k) * size] += rows
