"""The compiled loops behind `error_types`; imported on the first use, as numba takes a moment to load.

Every wrong pixel is a false positive of one class and a false negative of another, so a list of them for each side
holds all classes, and only wrong pixels look around themselves.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from segmeter.jit import kernel
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
    part_labels, root_labels = connect(labels, num_classes)
    part_target, root_target = connect(target, num_classes)
    met_labels = np.zeros(root_labels.size, np.bool_)
    met_target = np.zeros(root_target.size, np.bool_)
    right = count_right(target, labels, num_classes, part_labels, part_target, met_labels, met_target)
    for number in range(met_labels.size):  # a part is met where its root is
        met_labels[root_labels[number]] |= met_labels[number]
    for number in range(met_target.size):
        met_target[root_target[number]] |= met_target[number]
    has_right, has_other = find_right_blocks(target, labels, num_classes, find_shift(width))
    wrong = list_wrong(target, labels, target, num_classes)
    made_up = list_wrong(target, labels, labels, num_classes)
    near = find_boundary(made_up, target, labels, labels, width, has_right, has_other)
    add_types(counts[:, 0], made_up, labels, near, part_labels, root_labels, met_labels)
    near = find_boundary(wrong, target, labels, target, width, has_right, has_other)
    add_types(counts[:, 1], wrong, target, near, part_target, root_target, met_target)
    return counts, right


@kernel
def list_wrong(target: NDArray[Any], labels: NDArray[Any], classes: NDArray[Any], num_classes: int) -> IntArray:
    """The places of wrong pixels that have a class in `classes`, row by row."""
    places = np.empty(np.sum(target != labels), np.int64)
    n = 0
    for y in range(target.shape[0]):
        for x in range(target.shape[1]):
            if target[y, x] != labels[y, x] and target[y, x] != num_classes and classes[y, x] != num_classes:
                places[n] = (y << ROW) + x
                n += 1
    return places[:n]


@kernel
def count_right(
    target: NDArray[Any],
    labels: NDArray[Any],
    num_classes: int,
    part_labels: NDArray[np.int32],
    part_target: NDArray[np.int32],
    met_labels: BoolArray,
    met_target: BoolArray,
) -> IntArray:
    """Count the right pixels of each class, and mark the parts of both maps that contain some."""
    right = np.zeros(num_classes, np.int64)
    for y in range(target.shape[0]):
        for x in range(target.shape[1]):
            truth = target[y, x]
            if truth == labels[y, x] and truth != num_classes:
                right[truth] += 1
                met_labels[part_labels[y, x]] = True
                met_target[part_target[y, x]] = True
    return right


@kernel
def add_types(
    counts: IntArray,
    places: IntArray,
    classes: NDArray[Any],
    near: BoolArray,
    part: NDArray[np.int32],
    root: NDArray[np.int32],
    met: BoolArray,
) -> None:
    """Add the wrong pixels of one side to its counts (K, 3)."""
    for n in range(places.size):
        y, x = places[n] >> ROW, places[n] & COLUMN
        kind = 0 if near[n] else 1 if met[root[part[y, x]]] else 2
        counts[classes[y, x], kind] += 1


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
    seeds = wrong[look_around(wrong, classes, target, labels, True, reach, has_right)]
    seeds = seeds[look_around(seeds, classes, target, labels, False, reach, has_other)]
    values = np.full(target.shape, num_classes, classes.dtype)
    has_seed = np.zeros(has_right.shape, np.bool_)
    for place in seeds:
        y, x = place >> ROW, place & COLUMN
        values[y, x] = classes[y, x]
        has_seed[classes[y, x], y >> shift, x >> shift] = True
    near = look_around(wrong, classes, values, values, True, reach, has_seed)
    near[near] = adjoin_both(wrong[near], classes, target, labels, num_classes)
    return near


@kernel
def find_right_blocks(
    target: NDArray[Any], labels: NDArray[Any], num_classes: int, shift: int
) -> tuple[BoolArray, BoolArray]:
    """Mark the square blocks (K, rows of blocks, columns of blocks) that hold true positives, and true negatives."""
    height, length = target.shape
    shape = (((height - 1) >> shift) + 1, ((length - 1) >> shift) + 1)
    right = np.zeros((num_classes, *shape), np.bool_)
    involved = np.zeros((num_classes, *shape), np.int64)
    counted = np.zeros(shape, np.int64)
    for y in range(height):
        for x in range(length):
            truth, found, row, column = target[y, x], labels[y, x], y >> shift, x >> shift
            if truth == num_classes:
                continue
            counted[row, column] += 1
            involved[truth, row, column] += 1
            if found == truth:
                right[truth, row, column] = True
            elif found != num_classes:
                involved[found, row, column] += 1
    return right, involved < counted


@kernel
def adjoin_both(
    places: IntArray, classes: NDArray[Any], target: NDArray[Any], labels: NDArray[Any], num_classes: int
) -> BoolArray:
    """Say which places are connected, through places of their class, to a TP and to a TN; corners included."""
    height, length = target.shape
    number = np.full(target.shape, -1, np.int32)
    root = np.arange(places.size).astype(np.int32)
    by_tp, by_tn = np.zeros(places.size, np.bool_), np.zeros(places.size, np.bool_)
    for n in range(places.size):
        y, x = places[n] >> ROW, places[n] & COLUMN
        k, own = classes[y, x], n
        number[y, x] = n
        for j, i in ((y, x - 1), (y - 1, x + 1), (y - 1, x), (y - 1, x - 1)):
            if j >= 0 and 0 <= i < length and number[j, i] >= 0 and classes[j, i] == k:
                own = join(root, own, number[j, i])
        if by_tp[own] and by_tn[own]:
            continue
        for j in range(max(0, y - 1), min(height, y + 2)):
            for i in range(max(0, x - 1), min(length, x + 2)):
                by_tp[own] |= holds(j, i, k, target, labels, True, num_classes)
                by_tn[own] |= holds(j, i, k, target, labels, False, num_classes)
    for n in range(places.size):
        root[n] = root[root[n]]  # smaller numbers are settled
        by_tp[root[n]] |= by_tp[n]
        by_tn[root[n]] |= by_tn[n]
    return by_tp[root] & by_tn[root]


@kernel
def connect(values: NDArray[Any], nothing: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Number the connected pixels of equal value, corners included; pixels of value `nothing` keep number 0.

    Returns
    -------
    A number per pixel (H, W), and the number that stands for all of its component, per number.
    """
    height, length = values.shape
    part = np.zeros((height, length), np.int32)
    root = np.zeros(height * length + 1, np.int32)
    last = 0
    for y in range(height):
        for x in range(length):
            value = values[y, x]
            if value == nothing:
                continue
            above = y > 0
            if x > 0 and values[y, x - 1] == value:
                part[y, x] = part[y, x - 1]
                if above and x + 1 < length and values[y - 1, x + 1] == value and values[y - 1, x] != value:
                    join(root, part[y, x], part[y - 1, x + 1])
            elif above and values[y - 1, x] == value:
                part[y, x] = part[y - 1, x]
            elif above and x > 0 and values[y - 1, x - 1] == value:
                part[y, x] = part[y - 1, x - 1]
                if x + 1 < length and values[y - 1, x + 1] == value:
                    join(root, part[y, x], part[y - 1, x + 1])
            elif above and x + 1 < length and values[y - 1, x + 1] == value:
                part[y, x] = part[y - 1, x + 1]
            else:
                last += 1
                root[last] = last
                part[y, x] = last
    for number in range(1, last + 1):
        root[number] = root[root[number]]  # smaller numbers are settled
    return part, root[: last + 1]


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
