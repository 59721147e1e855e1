"""The compiled loops behind `error_types`; imported on the first use, as numba takes a moment to load.

Every wrong pixel is a false positive of one class and a false negative of another, so a list of them for each side
holds all classes, and only wrong pixels look around themselves.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from segmeter.jit import inlined_part, kernel
from segmeter.metrics.arrays import BoolArray, IntArray
from segmeter.metrics.pixels._near_kernels import COLUMN, ROW, find_reach, find_shift, holds, look_around


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
