"""The compiled loops behind `error_types`; imported on the first use, as numba takes a moment to load.

Every wrong pixel is a false positive of one class and a false negative of another, so a list of them for each side
holds all classes, and only wrong pixels look around themselves.
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

    Pixels of the first map that hold no class do not count. What the place before has found is mostly within reach too;
    else only blocks that are known to hold what is looked for are searched.
    """
    nothing, found = held.shape[0], np.zeros(places.size, np.bool_)
    last: Any = np.int64(-1)
    for n in range(places.size):
        y, x = places[n] >> ROW, places[n] & COLUMN
        k = classes[y, x]
        if last >= 0:
            j, i = last >> ROW, last & COLUMN
            down = abs(j - y)
            if not (down < reach.size and abs(i - x) <= reach[down] and holds(j, i, k, first, second, both, nothing)):
                last = -1
        if last < 0:
            last = search(y, x, k, first, second, both, nothing, reach, held)
        found[n] = last >= 0
    return found


@inlined_part
def holds(j: int, i: int, k: int, first: NDArray[Any], second: NDArray[Any], both: bool, nothing: int) -> Any:
    """Say whether both maps hold the class k in a pixel, or neither does and the first one holds another."""
    if both:
        return first[j, i] == k and second[j, i] == k
    return first[j, i] != k and second[j, i] != k and first[j, i] != nothing


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


@kernel
def count_types(target: NDArray[Any], labels: NDArray[Any], num_classes: int, width: int) -> tuple[IntArray, IntArray]:
    """Count the wrong pixels of each class by type.

    `target` is `num_classes` where a pixel is ignored; so is `labels` where it holds no class.

    Returns
    -------
    Wrong pixels (K, 2, 3): false positives, false negatives; boundary, extent, segment. And right ones (K,).
    """
    counts = np.zeros((num_classes, 2, 3), np.int64)
    right, wrong, has_right, has_other = survey(target, labels, num_classes, find_shift(width))
    near = find_boundary(wrong, target, labels, target, width, has_right, has_other)
    add_types(counts[:, 1], wrong, target, near, find_met(wrong, target, labels, num_classes))
    made_up = wrong[has_class(wrong, labels, num_classes)]
    near = find_boundary(made_up, target, labels, labels, width, has_right, has_other)
    add_types(counts[:, 0], made_up, labels, near, find_met(made_up, labels, target, num_classes))
    return counts, right


@kernel
def survey(
    target: NDArray[Any], labels: NDArray[Any], num_classes: int, shift: int
) -> tuple[IntArray, IntArray, BoolArray, BoolArray]:
    """Count the right pixels, list the wrong ones, and mark the blocks that hold true positives and true negatives.

    Returns
    -------
    Right pixels (K,), the places of wrong ones that are not ignored, row by row, and the marks (K, rows of blocks,
    columns of blocks).
    """
    height, length = target.shape
    shape = (((height - 1) >> shift) + 1, ((length - 1) >> shift) + 1)
    right, wrong, n = np.zeros(num_classes, np.int64), np.empty(target.size, np.int64), 0
    has_right = np.zeros((num_classes, *shape), np.bool_)
    involved = np.zeros((num_classes, *shape), np.int32)
    counted = np.zeros(shape, np.int32)
    for y in range(height):
        for x in range(length):
            truth, found, row, column = target[y, x], labels[y, x], y >> shift, x >> shift
            if truth == num_classes:
                continue
            counted[row, column] += 1
            involved[truth, row, column] += 1
            if found == truth:
                right[truth] += 1
                has_right[truth, row, column] = True
                continue
            wrong[n] = (y << ROW) + x
            n += 1
            if found != num_classes:
                involved[found, row, column] += 1
    return right, wrong[:n], has_right, involved < counted


@kernel
def has_class(places: IntArray, classes: NDArray[Any], num_classes: int) -> BoolArray:
    """Say which places hold a class."""
    known = np.empty(places.size, np.bool_)
    for n in range(places.size):
        known[n] = classes[places[n] >> ROW, places[n] & COLUMN] != num_classes
    return known


@kernel
def add_types(counts: IntArray, places: IntArray, classes: NDArray[Any], near: BoolArray, met: BoolArray) -> None:
    """Add the wrong pixels of one side to its counts (K, 3)."""
    for n in range(places.size):
        kind = 0 if near[n] else 1 if met[n] else 2
        counts[classes[places[n] >> ROW, places[n] & COLUMN], kind] += 1


@kernel
def find_boundary(
    wrong: IntArray,
    target: NDArray[Any],
    labels: NDArray[Any],
    classes: NDArray[Any],
    width: int,
    has_right: BoolArray,
    has_other: BoolArray,
) -> BoolArray:
    """Say which wrong pixels, by their class in `classes`, are errors of the boundary.

    They are within reach of wrong pixels of the same class that have both true positives and true negatives within
    reach, and connected to some of either.
    """
    reach, shift, num_classes = find_reach(width), find_shift(width), has_right.shape[0]
    near = look_around(wrong, classes, target, labels, True, reach, has_right)
    near[near] = look_around(wrong[near], classes, target, labels, False, reach, has_other)
    values = np.full(target.shape, num_classes, classes.dtype)
    has_seed = np.zeros(has_right.shape, np.bool_)
    for place in wrong[near]:
        y, x = place >> ROW, place & COLUMN
        values[y, x] = classes[y, x]
        has_seed[classes[y, x], y >> shift, x >> shift] = True
    rest = ~near
    near[rest] = look_around(wrong[rest], classes, values, values, True, reach, has_seed)
    near[near] = adjoin_both(wrong[near], classes, target, labels, num_classes)
    return near


@kernel
def adjoin_both(
    places: IntArray, classes: NDArray[Any], target: NDArray[Any], labels: NDArray[Any], num_classes: int
) -> BoolArray:
    """Say which places are connected, through places of their class, to a TP and to a TN; corners included."""
    height, length = target.shape
    part = connect_places(places, classes)
    by_tp, by_tn = np.zeros(places.size, np.bool_), np.zeros(places.size, np.bool_)
    for n in range(places.size):
        own, y, x = part[n], places[n] >> ROW, places[n] & COLUMN
        if by_tp[own] and by_tn[own]:
            continue
        k = classes[y, x]
        for j in range(max(0, y - 1), min(height, y + 2)):
            for i in range(max(0, x - 1), min(length, x + 2)):
                by_tp[own] |= holds(j, i, k, target, labels, True, num_classes)
                by_tn[own] |= holds(j, i, k, target, labels, False, num_classes)
    return (by_tp & by_tn)[part]


@kernel
def connect_places(places: IntArray, classes: NDArray[Any]) -> NDArray[np.int32]:
    """Number the connected places of equal class, corners included, each component by one of its places."""
    root = np.arange(places.size).astype(np.int32)
    last = np.full(classes.shape[1] + 2, -1, np.int64)  # by column and one more on each side, the place seen last
    above = -1  # the place that was seen last in the column of the place before
    for n in range(places.size):
        place, x = places[n], places[n] & COLUMN
        k, up = classes[place >> ROW, x], place - (1 << ROW)
        corner = above if n > 0 and places[n - 1] == place - 1 else last[x]
        above, last[x + 1] = last[x + 1], n
        if is_at(above, up, k, places, classes):  # the others know this one
            root[n] = root[above]
            continue
        if is_at(n - 1, place - 1, k, places, classes):
            root[n] = root[n - 1]
        elif is_at(corner, up - 1, k, places, classes):
            root[n] = root[corner]
        if is_at(last[x + 2], up + 1, k, places, classes):
            join(root, n, last[x + 2])
    for n in range(places.size):
        root[n] = root[root[n]]  # smaller numbers are settled
    return root


@inlined_part
def is_at(n: int, place: int, k: int, places: IntArray, classes: NDArray[Any]) -> Any:
    """Say whether the n-th place is this one, and of class k."""
    return n >= 0 and places[n] == place and classes[place >> ROW, place & COLUMN] == k


@kernel
def find_met(places: IntArray, values: NDArray[Any], other: NDArray[Any], nothing: int) -> BoolArray:
    """Say of each place, row by row, whether the other map has its value too somewhere in its component.

    A component is of connected pixels of equal value in `values`, corners included; none is of the value `nothing`.
    """
    height, length = values.shape
    part = np.empty(places.size, np.int32)
    root = np.empty(values.size, np.int32)  # memory that is not touched costs nothing
    met = np.empty(values.size, np.bool_)
    rows = np.empty((2, length), np.int32)  # the numbers of this row and of the one above
    last, n = 0, 0
    for y in range(height):
        above, here = 1 - y % 2, y % 2
        for x in range(length):
            value = values[y, x]
            if value == nothing:
                continue
            on_right = y > 0 and x + 1 < length and values[y - 1, x + 1] == value
            if x > 0 and values[y, x - 1] == value:
                number = rows[here, x - 1]
                if on_right and values[y - 1, x] != value:
                    join(root, number, rows[above, x + 1])
            elif y > 0 and values[y - 1, x] == value:
                number = rows[above, x]
            elif y > 0 and x > 0 and values[y - 1, x - 1] == value:
                number = rows[above, x - 1]
                if on_right:
                    join(root, number, rows[above, x + 1])
            elif on_right:
                number = rows[above, x + 1]
            else:
                number = np.int32(last)
                root[last], met[last] = last, False
                last += 1
            rows[here, x] = number
            if other[y, x] == value:
                met[number] = True
            elif n < places.size and places[n] == (y << ROW) + x:
                part[n] = number
                n += 1
    for number in range(last):
        root[number] = root[root[number]]  # smaller numbers are settled
        met[root[number]] |= met[number]
    return met[root[part]]


@kernel
def join(root: NDArray[np.int32], first: int, second: int) -> int:
    """Let the smaller root of two numbers stand for both, and give it."""
    while root[first] != first:
        root[first] = root[root[first]]
        first = root[first]
    while root[second] != second:
        root[second] = root[root[second]]
        second = root[second]
    smaller = min(first, second)
    root[first] = root[second] = smaller
    return smaller
