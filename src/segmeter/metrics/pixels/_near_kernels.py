"""What lies within reach of many places of a map: the compiled search behind `error_types`.

A place asks first for what its neighbours have found, and then only in blocks that are known to hold what it looks for.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from segmeter.jit import inlined_part, kernel
from segmeter.metrics.arrays import BoolArray, IntArray

LEAST_SHIFT = 3  # blocks have an edge of 2^shift pixels, at least half the width of the boundary
ROW = 32  # a place is y * 2^32 + x
COLUMN = (1 << ROW) - 1


@kernel
def find_reach(width: int) -> IntArray:
    """How far a row extends at each vertical distance (width + 1,), within a distance that rounds to `width`."""
    reach = np.empty(width + 1, np.int64)
    for dy in range(width + 1):
        reach[dy] = int(np.sqrt((width + 0.5) ** 2 - dy * dy))
    return reach


@kernel
def find_shift(width: int) -> int:
    """The edge of the blocks as a power of two, of at least half a width."""
    shift = LEAST_SHIFT
    while 2 << shift < width:
        shift += 1
    return shift


@kernel
def look_around(
    places: IntArray,
    classes: NDArray[Any],
    first: NDArray[Any],
    second: NDArray[Any],
    both: bool,
    reach: IntArray,
    held: BoolArray,
) -> BoolArray:
    """Say of each place whether, within reach, `both` maps hold its class in one pixel, or neither does in another.

    Pixels of the first map that hold no class do not count. What the pixel on the left or above has found is mostly
    within reach too; where one of them has found nothing, only what it could not reach is looked at.
    """
    length, nothing = first.shape[1], held.shape[0]
    hits = np.full(length + 1, -1, np.int64)  # by column, the place that was found last; one more column on the left
    misses = np.full(length + 1, -2, np.int64)  # by column, the place that has found nothing last; -1 precedes (0, 0)
    found = np.zeros(places.size, np.bool_)
    for n in range(places.size):
        y, x = places[n] >> ROW, places[n] & COLUMN
        k, hit = classes[y, x], hits[x]
        if not is_hit(hit, y, x, k, first, second, both, nothing, reach):
            hit = hits[x + 1]
            if not is_hit(hit, y, x, k, first, second, both, nothing, reach):
                if misses[x] == places[n] - 1 and classes[y, x - 1] == k:
                    hit = search_edge(y, x, True, k, first, second, both, nothing, reach)
                elif misses[x + 1] == places[n] - (1 << ROW) and classes[y - 1, x] == k:
                    hit = search_edge(y, x, False, k, first, second, both, nothing, reach)
                else:
                    hit = search(y, x, k, first, second, both, nothing, reach, held)
        found[n] = hit >= 0
        if found[n]:
            hits[x + 1] = hit
        else:
            misses[x + 1] = places[n]
    return found


@inlined_part
def holds(j: int, i: int, k: int, first: NDArray[Any], second: NDArray[Any], both: bool, nothing: int) -> Any:
    """Say whether both maps hold the class k in a pixel, or neither does and the first one holds another."""
    if both:
        return first[j, i] == k and second[j, i] == k
    return first[j, i] != k and second[j, i] != k and first[j, i] != nothing


@inlined_part
def is_hit(
    place: int,
    y: int,
    x: int,
    k: int,
    first: NDArray[Any],
    second: NDArray[Any],
    both: bool,
    nothing: int,
    reach: IntArray,
) -> Any:
    """Say whether a place is within reach of (y, x), and one that is looked for; -1 is none."""
    j, i = place >> ROW, place & COLUMN
    down = abs(j - y)
    near = place >= 0 and down < reach.size and abs(i - x) <= reach[down]
    return near and holds(j, i, k, first, second, both, nothing)


@kernel
def search_edge(
    y: int,
    x: int,
    on_right: bool,
    k: int,
    first: NDArray[Any],
    second: NDArray[Any],
    both: bool,
    nothing: int,
    reach: IntArray,
) -> int:
    """Find what is within reach of (y, x) and not of its neighbour on the left, or above; its place, or -1."""
    height, length = first.shape
    for along in range(1 - reach.size, reach.size):
        across = reach[abs(along)]
        j, i = (y + along, x + across) if on_right else (y + across, x + along)
        if 0 <= j < height and 0 <= i < length and holds(j, i, k, first, second, both, nothing):
            return (j << ROW) + i
    return -1


@kernel
def search(
    y: int,
    x: int,
    k: int,
    first: NDArray[Any],
    second: NDArray[Any],
    both: bool,
    nothing: int,
    reach: IntArray,
    held: BoolArray,
) -> int:
    """Find a pixel within reach, its place, or -1; only blocks that hold one are searched.

    From the row of (y, x) outwards and from the right, so that what is found stays within reach of the next pixels.
    """
    width, shift = reach.size - 1, find_shift(reach.size - 1)
    top, bottom = max(0, y - width) >> shift, min(first.shape[0] - 1, y + width) >> shift
    left, right = max(0, x - width) >> shift, min(first.shape[1] - 1, x + width) >> shift
    for step in range(1, 2 * (bottom - top + 1) + 2):
        row = (y >> shift) + (step // 2 if step % 2 else -(step // 2))
        if not top <= row <= bottom:
            continue
        for column in range(right, left - 1, -1):
            if held[k, row, column]:
                place = search_block(row, column, y, x, k, first, second, both, nothing, reach)
                if place >= 0:
                    return place
    return -1


@kernel
def search_block(
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
) -> int:
    """Find a pixel of a block within reach of (y, x); its place, or -1."""
    width, shift = reach.size - 1, find_shift(reach.size - 1)
    for j in range(max(row << shift, y - width), min((row + 1) << shift, y + width + 1, first.shape[0])):
        across = reach[abs(j - y)]
        begin, end = max(column << shift, x - across), min((column + 1) << shift, x + across + 1, first.shape[1])
        for i in range(end - 1, begin - 1, -1):
            if holds(j, i, k, first, second, both, nothing):
                return (j << ROW) + i
    return -1
