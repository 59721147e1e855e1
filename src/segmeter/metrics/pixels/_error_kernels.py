"""The compiled loops behind `error_types`; imported on the first use, as numba takes a moment to load.

Every wrong pixel is a false positive of one class and a false negative of another, so one map for each side holds all
classes. Only wrong pixels look around themselves, and only into blocks that are known to hold what they look for.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from segmeter.jit import kernel
from segmeter.metrics.arrays import BoolArray, IntArray

LEAST_SHIFT = 4  # blocks have an edge of 2^shift pixels, at least the width of the boundary


@kernel
def count_types(target: NDArray[Any], labels: NDArray[Any], num_classes: int, width: int) -> tuple[IntArray, IntArray]:
    """Count the wrong pixels of each class by type.

    `target` is `num_classes` where a pixel is ignored; so is `labels` where it holds no class.

    Returns
    -------
    Wrong pixels (K, 2, 3): false positives, false negatives; boundary, extent, segment. And right ones (K,).
    """
    near_fp, near_fn = find_boundary(target, labels, num_classes, width)
    counts = np.zeros((num_classes, 2, 3), np.int64)
    right = np.zeros(num_classes, np.int64)
    part_labels, root_labels = connect(labels, num_classes)
    part_target, root_target = connect(target, num_classes)
    met_labels = np.zeros(root_labels.size, np.bool_)
    met_target = np.zeros(root_target.size, np.bool_)
    for y in range(target.shape[0]):
        seen_labels = seen_target = 0  # the component of the pixel before, as long stretches are of one
        for x in range(target.shape[1]):
            truth = target[y, x]
            if truth != labels[y, x] or truth == num_classes:
                continue
            right[truth] += 1
            if part_labels[y, x] != seen_labels or part_target[y, x] != seen_target:
                seen_labels, seen_target = part_labels[y, x], part_target[y, x]
                met_labels[root_labels[seen_labels]] = True
                met_target[root_target[seen_target]] = True
    for y in range(target.shape[0]):
        for x in range(target.shape[1]):
            truth, found = target[y, x], labels[y, x]
            wrong = truth != found and truth != num_classes
            if not wrong:
                continue
            if found != num_classes:
                met = met_labels[root_labels[part_labels[y, x]]]
                counts[found, 0, 0 if near_fp[y, x] else 1 if met else 2] += 1
            met = met_target[root_target[part_target[y, x]]]
            counts[truth, 1, 0 if near_fn[y, x] else 1 if met else 2] += 1
    return counts, right


@kernel
def find_boundary(
    target: NDArray[Any], labels: NDArray[Any], num_classes: int, width: int
) -> tuple[BoolArray, BoolArray]:
    """Mark the false positives and the false negatives (H, W) that are errors of the boundary, for all classes."""
    reach, shift = find_reach(width), find_shift(width)
    right = np.where(target == labels, target, target.dtype.type(num_classes))
    has_right = find_blocks(right, num_classes, shift)
    has_other = find_other_blocks(target, labels, num_classes, shift)
    near_fp = mark_near(target, labels, labels, right, reach, has_right, has_other)
    near_fn = mark_near(target, labels, target, right, reach, has_right, has_other)
    drop_detached(target, labels, labels, num_classes, near_fp)
    drop_detached(target, labels, target, num_classes, near_fn)
    return near_fp, near_fn


@kernel
def find_reach(width: int) -> IntArray:
    """How far a row extends at each vertical distance (width + 1,), within a distance that rounds to `width`."""
    reach = np.empty(width + 1, np.int64)
    for dy in range(width + 1):
        reach[dy] = int(np.sqrt((width + 0.5) ** 2 - dy * dy))
    return reach


@kernel
def find_shift(width: int) -> int:
    """The edge of the blocks as a power of two, of at least a width."""
    shift = LEAST_SHIFT
    while 1 << shift < width:
        shift += 1
    return shift


@kernel
def find_blocks(values: NDArray[Any], num_classes: int, shift: int) -> BoolArray:
    """Mark the square blocks (K, rows of blocks, columns of blocks) in which a class occurs."""
    height, length = values.shape
    held = np.zeros((num_classes, ((height - 1) >> shift) + 1, ((length - 1) >> shift) + 1), np.bool_)
    for y in range(height):
        for x in range(length):
            if values[y, x] != num_classes:
                held[values[y, x], y >> shift, x >> shift] = True
    return held


@kernel
def find_other_blocks(target: NDArray[Any], labels: NDArray[Any], num_classes: int, shift: int) -> BoolArray:
    """Mark the blocks that contain a true negative of a class, shaped as `find_blocks`."""
    height, length = target.shape
    involved = np.zeros((num_classes, ((height - 1) >> shift) + 1, ((length - 1) >> shift) + 1), np.int64)
    counted = np.zeros(involved.shape[1:], np.int64)
    for y in range(height):
        for x in range(length):
            truth, found = target[y, x], labels[y, x]
            if truth == num_classes:
                continue
            counted[y >> shift, x >> shift] += 1
            involved[truth, y >> shift, x >> shift] += 1
            if found != truth and found != num_classes:
                involved[found, y >> shift, x >> shift] += 1
    return involved < counted


@kernel
def mark_near(
    target: NDArray[Any],
    labels: NDArray[Any],
    classes: NDArray[Any],
    right: NDArray[Any],
    reach: IntArray,
    has_right: BoolArray,
    has_other: BoolArray,
) -> BoolArray:
    """Mark wrong pixels, by their class in `classes`, within reach of ones with both TP and TN within reach."""
    num_classes = has_right.shape[0]
    seeds = np.full(target.shape, num_classes, classes.dtype)
    for y in range(target.shape[0]):
        for x in range(target.shape[1]):
            k = classes[y, x]
            wrong = target[y, x] != labels[y, x] and target[y, x] != num_classes and k != num_classes
            if wrong and meets(right, y, x, k, reach, has_right) and avoids(target, labels, y, x, k, reach, has_other):
                seeds[y, x] = k
    has_seed = find_blocks(seeds, num_classes, find_shift(reach.size - 1))
    near = np.zeros(target.shape, np.bool_)
    for y in range(target.shape[0]):
        for x in range(target.shape[1]):
            k = classes[y, x]
            wrong = target[y, x] != labels[y, x] and target[y, x] != num_classes and k != num_classes
            near[y, x] = wrong and (seeds[y, x] == k or meets(seeds, y, x, k, reach, has_seed))
    return near


@kernel
def meets(values: NDArray[Any], y: int, x: int, k: int, reach: IntArray, held: BoolArray) -> bool:
    """Say whether the class k is among the values within reach of a pixel; only blocks that hold it are searched."""
    height, length = values.shape
    width = reach.size - 1
    shift = find_shift(width)
    for row in range(max(0, y - width) >> shift, (min(height - 1, y + width) >> shift) + 1):
        for column in range(max(0, x - width) >> shift, (min(length - 1, x + width) >> shift) + 1):
            if not held[k, row, column]:
                continue
            for j in range(max(row << shift, y - width), min((row + 1) << shift, y + width + 1, height)):
                across = reach[abs(j - y)]
                for i in range(max(column << shift, x - across), min((column + 1) << shift, x + across + 1, length)):
                    if values[j, i] == k:
                        return True
    return False


@kernel
def avoids(
    target: NDArray[Any], labels: NDArray[Any], y: int, x: int, k: int, reach: IntArray, held: BoolArray
) -> bool:
    """Say whether a true negative of the class k is within reach of a pixel, as `meets`."""
    height, length = target.shape
    width, nothing = reach.size - 1, held.shape[0]
    shift = find_shift(width)
    for row in range(max(0, y - width) >> shift, (min(height - 1, y + width) >> shift) + 1):
        for column in range(max(0, x - width) >> shift, (min(length - 1, x + width) >> shift) + 1):
            if not held[k, row, column]:
                continue
            for j in range(max(row << shift, y - width), min((row + 1) << shift, y + width + 1, height)):
                across = reach[abs(j - y)]
                for i in range(max(column << shift, x - across), min((column + 1) << shift, x + across + 1, length)):
                    if target[j, i] != k and labels[j, i] != k and target[j, i] != nothing:
                        return True
    return False


@kernel
def drop_detached(
    target: NDArray[Any], labels: NDArray[Any], classes: NDArray[Any], num_classes: int, near: BoolArray
) -> None:
    """Unmark the connected parts of marked pixels of one of `classes` that no TP or no TN adjoins, corners included."""
    marked = np.full(target.shape, num_classes, classes.dtype)
    for y in range(target.shape[0]):
        for x in range(target.shape[1]):
            if near[y, x]:
                marked[y, x] = classes[y, x]
    part, root = connect(marked, num_classes)
    by_tp, by_tn = np.zeros(root.size, np.bool_), np.zeros(root.size, np.bool_)
    for y in range(target.shape[0]):
        for x in range(target.shape[1]):
            if not near[y, x]:
                continue
            k, place = marked[y, x], root[part[y, x]]
            for j in range(max(0, y - 1), min(target.shape[0], y + 2)):
                for i in range(max(0, x - 1), min(target.shape[1], x + 2)):
                    by_tp[place] |= target[j, i] == k and labels[j, i] == k
                    by_tn[place] |= target[j, i] != k and labels[j, i] != k and target[j, i] != num_classes
    for y in range(target.shape[0]):
        for x in range(target.shape[1]):
            if near[y, x]:
                near[y, x] = by_tp[root[part[y, x]]] and by_tn[root[part[y, x]]]


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
def join(root: NDArray[np.int32], first: int, second: int) -> None:
    """Let the smaller root of two numbers stand for both."""
    while root[first] != first:
        first = root[first]
    while root[second] != second:
        second = root[second]
    if first < second:
        root[second] = first
    else:
        root[first] = second
