"""Compiled loops that count pixels and sort errors by type. Import them on first use: numba takes a moment to load."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from segmeter.jit import inlined_part, kernel
from segmeter.metrics.arrays import BoolArray, IntArray

Map = NDArray[Any]

BLOCK = 4096  # Encode this many pixels at a time: the pairs (8 KiB) stay in the first-level cache.
WAYS = 8  # sub-histograms: neighbours are mostly equal, so a single counter would wait for its own last write
_LOW, _REPEAT = np.uint64(0xFFFF), np.uint64(0x0001_0001_0001_0001)


@kernel
def encode_pairs(target: Map, labels: Map, pairs: Map, num_classes: int, ignore: int) -> None:
    """Write row * (K + 1) + column per pixel; row K is ignored, row K + 1 and column K are outside the classes."""
    classes, void, width = np.uint16(num_classes), np.uint16(ignore), np.uint16(num_classes + 1)
    for i in range(pairs.size):
        row, column = np.uint16(target[i]), np.uint16(labels[i])
        if row >= classes:
            row = classes if row == void else width
        pairs[i] = row * width + min(column, classes)


@kernel
def count_pairs(target: Map, labels: Map, num_classes: int, ignore: int) -> Map:
    """Count (target, labels) pairs of fewer than 2**32 pixels and at most `confusion.MOST_COMPILED` classes.

    Flat arrays, both uint8 or both uint16. Returns int64 ((K + 2) * (K + 1),).
    """
    size = np.uint64((num_classes + 2) * (num_classes + 1))
    table, words = np.zeros(WAYS * size, np.uint32), np.empty(BLOCK // 4, np.uint64)
    pairs = words.view(np.uint16)
    same, run = np.uint64(0), np.uint32(0)  # four equal pairs and how many came: the usual case inside an object
    in_blocks = target.size - target.size % BLOCK
    for start in range(0, in_blocks, BLOCK):
        encode_pairs(target[start : start + BLOCK], labels[start : start + BLOCK], pairs, num_classes, ignore)
        for i in range(words.size // 2):  # loads of four pairs each are faster than one for every pair
            first, second = words[2 * i], words[2 * i + 1]
            if first == second and first == same:
                run += np.uint32(8)
                continue
            if first == second and first == (first & _LOW) * _REPEAT:
                table[same & _LOW] += run
                same, run = first, np.uint32(8)
                continue
            for j in range(4):
                shift, place = np.uint64(16 * j), np.uint64(j) * size
                table[((first >> shift) & _LOW) + place] += np.uint32(1)
                table[((second >> shift) & _LOW) + place + np.uint64(4) * size] += np.uint32(1)
    table[same & _LOW] += run
    rest = pairs[: target.size - in_blocks]
    encode_pairs(target[in_blocks:], labels[in_blocks:], rest, num_classes, ignore)
    for pair in rest:
        table[pair] += np.uint32(1)
    total = np.zeros(size, np.int64)
    for way in range(WAYS):
        for pair in range(size):
            total[pair] += table[way * size + pair]
    return total


_ROW = 32
_COLUMN = (1 << _ROW) - 1


@kernel
def survey(
    target: NDArray[Any], labels: NDArray[Any], num_classes: int, shift: int
) -> tuple[IntArray, IntArray, BoolArray, BoolArray]:
    """Count correct pixels, list wrong ones, and mark the blocks that contain true positives and true negatives.

    `target` is `num_classes` where a pixel is ignored, and `labels` where it is no class.

    Returns
    -------
    Correct pixels (K,), the places of the wrong pixels that are not ignored, row by row, and the marks (K, rows of
    blocks, columns of blocks). Blocks have an edge of 2^shift pixels.
    """
    height, length = target.shape
    shape = (((height - 1) >> shift) + 1, ((length - 1) >> shift) + 1)
    right, wrong, n = np.zeros(num_classes, np.int64), np.empty(target.size, np.int64), 0
    has_right = np.zeros((num_classes, *shape), np.bool_)
    involved = np.zeros((num_classes, *shape), np.int32)
    counted = np.zeros(shape, np.int32)
    for y in range(height):
        for x in range(length):
            truth, predicted = target[y, x], labels[y, x]
            row, column = y >> shift, x >> shift
            if truth == num_classes:
                continue
            counted[row, column] += 1
            involved[truth, row, column] += 1
            if predicted == truth:
                right[truth] += 1
                has_right[truth, row, column] = True
                continue
            wrong[n] = y * length + x
            n += 1
            if predicted != num_classes:
                involved[predicted, row, column] += 1
    return right, wrong[:n], has_right, involved < counted


@kernel
def look_around(
    places: IntArray,
    classes: NDArray[Any],
    first: NDArray[Any],
    second: NDArray[Any],
    both: bool,
    reach: IntArray,
    shift: int,
    marked: BoolArray,
) -> BoolArray:
    """Tell for each place whether a pixel within reach has its class in both maps, or, unless `both`, in neither.

    Pixels of the first map without a class do not count. `reach` is how far a row extends at each vertical distance.
    The pixel found for the previous place is usually within reach too. Otherwise the marked blocks are searched,
    outwards from the row of the place and from the right, so that the pixel found stays within reach longest.
    """
    nothing, length = marked.shape[0], classes.shape[1]
    found = np.zeros(places.size, np.bool_)
    last: Any = np.int64(-1)
    y = 0
    for n in range(places.size):
        while places[n] >= (y + 1) * length:
            y += 1
        x = places[n] - y * length
        k = classes[y, x]
        if last >= 0:
            j, i = last >> _ROW, last & _COLUMN
            down = abs(j - y)
            if not (down < reach.size and abs(i - x) <= reach[down] and _holds(j, i, k, first, second, both, nothing)):
                last = np.int64(-1)
        if last < 0:
            width = reach.size - 1
            top, bottom = max(0, y - width) >> shift, min(first.shape[0] - 1, y + width) >> shift
            left, right = max(0, x - width) >> shift, min(length - 1, x + width) >> shift
            for step in range(1, 2 * (bottom - top + 1) + 2):
                row = (y >> shift) + (step // 2 if step % 2 else -(step // 2))
                if last >= 0 or not top <= row <= bottom:
                    continue
                for column in range(right, left - 1, -1):
                    if last < 0 and marked[k, row, column]:
                        last = _search_block(row, column, y, x, k, first, second, both, nothing, reach, shift)
        found[n] = last >= 0
    return found


@inlined_part
def _holds(j: int, i: int, k: int, first: NDArray[Any], second: NDArray[Any], both: bool, nothing: int) -> Any:
    """Tell whether a pixel is of class k in both maps, or in neither while the first one has another class."""
    if both:
        return first[j, i] == k and second[j, i] == k
    return first[j, i] != k and second[j, i] != k and first[j, i] != nothing


@kernel
def _search_block(
    row: int,
    column: int,
    y: int,
    x: int,
    k: int,
    first: NDArray[Any],
    second: NDArray[Any],
    both: bool,
    nothing: int,
    reach: IntArray,
    shift: int,
) -> int:
    """Find a pixel of a block within reach of (y, x), and return its own y * 2^32 + x; -1 if there is none."""
    width = reach.size - 1
    for j in range(max(row << shift, y - width), min((row + 1) << shift, y + width + 1, first.shape[0])):
        across = reach[abs(j - y)]
        begin, end = max(column << shift, x - across), min((column + 1) << shift, x + across + 1, first.shape[1])
        for i in range(end - 1, begin - 1, -1):
            if _holds(j, i, k, first, second, both, nothing):
                return (j << _ROW) + i
    return -1
