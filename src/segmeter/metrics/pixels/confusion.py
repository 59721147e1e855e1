"""Counts pixels by target and predicted class, exactly and in integers. All scores of overlap begin here."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from segmeter.checks import expected, whole_number
from segmeter.classes import ClassSpec
from segmeter.errors import InputError
from segmeter.metrics.arrays import IntArray, check_maps, name_foreign, validated_num_classes, without_channel

LabelArray = NDArray[Any]

PLAIN_PIXELS = 20_000_000  # Count this many pixels with NumPy before loading the compiled loop, which takes longer.
_plainly_counted = 0  # Pixels so far. Approximate: threads update it without a lock.
MOST_COMPILED = 254  # classes: (K + 2) * (K + 1) must fit uint16 for the compiled loop
_COMPILED_CHUNK = 1 << 31  # The compiled loop counts this many pixels at a time, as its counters are uint32.
_PLAIN_CHUNK = 1 << 16  # NumPy counts this many pixels at a time.
_VOID, _FOREIGN = 65535, 65534  # These stand for ignored and foreign values of dtypes other than uint8 and uint16.
_NO_IGNORE = 0  # 0 is always a class, so the kernels never compare with it.


def confusion_matrix(
    target: LabelArray,
    labels: LabelArray,
    *,
    num_classes: int,
    ignore_index: int | None = None,
    count_invalid: bool = False,
) -> IntArray:
    """Count the pixels of each (target class, predicted class) pair.

    Pixels whose target is `ignore_index` are left out, whatever is predicted there.

    Parameters
    ----------
    target, labels : (...), integer or bool
        Reference and predicted class maps of one shape. uint8 and uint16 are counted as they are; wider integers are
        counted exactly, but slower. bool is read as the classes 0 and 1. With two classes, one map may have a channel
        axis that the other lacks: (B, 1, H, W) beside (B, H, W).
    num_classes
        K, background included, 1 to 65534.
    ignore_index
        Value of `target` that marks pixels to leave out; not a class. None leaves out nothing.
    count_invalid
        Whether predicted values outside the classes are counted, in a last column, instead of refused.

    Returns
    -------
    (K, K), or (K, K + 1) with `count_invalid`, int64. Rows are the target's classes, columns the predicted ones.

    Raises
    ------
    InputError
        Shapes differ, a dtype is not integer, or a counted pixel is outside the classes, in `target`, or in `labels`
        without `count_invalid`. The message names the values and how many pixels have them.

    Examples
    --------
    >>> target = np.array([[0, 1, 1, 255]], np.uint8)
    >>> labels = np.array([[0, 1, 0, 1]], np.uint8)
    >>> confusion_matrix(target, labels, num_classes=2, ignore_index=255)
    array([[1, 0],
           [1, 1]])
    """
    where = "confusion_matrix"
    if whole_number(where, "num_classes", num_classes) == 2:
        target, labels = without_channel(target, labels), without_channel(labels, target)
    check_maps(where, target, labels, "labels", kinds="iub")
    num_classes, ignore_index = validated_num_classes(where, num_classes, ignore_index, most=_FOREIGN)
    return _count(where, target, labels, num_classes, ignore_index, count_invalid=count_invalid)[0]


def multilabel_counts(target: LabelArray, labels: LabelArray, *, ignore_index: int | None = None) -> IntArray:
    """Count, per class, the pixels of each (target, predicted) pair of absent and present.

    Parameters
    ----------
    target, labels : (K, ...), integer or bool
        One plane of 0 and 1 per class. Pixels of a plane of `target` that equal `ignore_index` are left out there.
    ignore_index
        Any value but 0 and 1, or None.

    Returns
    -------
    (K, 2, 2), int64. ``[k, 1, 1]`` are class k's true positives, ``[k, 0, 1]`` its false positives.

    Raises
    ------
    InputError
        As `confusion_matrix`, naming the class.
    """
    return _count_planes(target, labels, ignore_index)[0]


def _count_planes(target: LabelArray, labels: LabelArray, ignore_index: int | None) -> tuple[IntArray, bool]:
    where = "multilabel_counts"
    check_maps(where, target, labels, "labels", kinds="iub")
    _, ignore_index = validated_num_classes(where, 2, ignore_index)
    if target.ndim < 2:
        raise InputError(expected(where, "target", "to have a class axis and pixel axes", target.shape))
    counts = np.empty((len(target), 2, 2), np.int64)
    any_hidden = False
    for k, (plane, predicted) in enumerate(zip(target, labels, strict=True)):
        counts[k], hidden = _count(f"{where}: class {k}", plane, predicted, 2, ignore_index)
        any_hidden = any_hidden or hidden
    return counts, any_hidden


def count_case(target: LabelArray, labels: LabelArray, spec: ClassSpec) -> IntArray:
    """Count a case in the way of its task.

    Parameters
    ----------
    target, labels : (...), for multilabel (K, ...), integer or bool
        As for `confusion_matrix` and `multilabel_counts`.
    spec
        The classes, and the value of the target that marks pixels to leave out.

    Returns
    -------
    int64 of ``spec.counts_shape``.

    Raises
    ------
    InputError
        As `confusion_matrix` and `multilabel_counts`.
    """
    return count_case_and_hidden(target, labels, spec)[0]


def count_case_and_hidden(target: LabelArray, labels: LabelArray, spec: ClassSpec) -> tuple[IntArray, bool]:
    """Count as `count_case` does, and tell whether labels are outside the classes where the target is ignored."""
    if spec.is_multilabel:
        return _count_planes(target, labels, spec.ignore_index)
    where = "confusion_matrix"
    check_maps(where, target, labels, "labels", kinds="iub")
    return _count(where, target, labels, spec.num_classes, spec.ignore_index, count_invalid=spec.count_invalid)


def _count(
    where: str,
    target: LabelArray,
    labels: LabelArray,
    num_classes: int,
    ignore_index: int | None,
    *,
    count_invalid: bool = False,
) -> tuple[IntArray, bool]:
    """Return the counts (K, K) or (K, K + 1), and whether ignored pixels hide labels outside the classes."""
    global _plainly_counted
    rows, ignore = _narrow(target, num_classes, ignore_index)
    columns, _ = _narrow(labels, num_classes, None)
    if rows.dtype != columns.dtype:
        rows, columns = rows.astype(np.uint16), columns.astype(np.uint16)
    rows, columns = np.ascontiguousarray(rows).reshape(-1), np.ascontiguousarray(columns).reshape(-1)
    k = num_classes
    pairs = np.zeros((k + 2) * (k + 1), np.int64)
    if k > MOST_COMPILED or _plainly_counted + rows.size <= PLAIN_PIXELS:
        _plainly_counted += rows.size
        count, step = _count_plainly, max(_PLAIN_CHUNK, pairs.size)
    else:
        from segmeter.metrics.pixels._kernels import count_pairs  # numba takes a moment to load

        count, step = count_pairs, _COMPILED_CHUNK
    for start in range(0, rows.size, step):
        part = slice(start, start + step)
        pairs += count(rows[part], columns[part], k, ignore)
    table = pairs.reshape(k + 2, k + 1)  # row K is ignored, row K + 1 and column K are outside the classes
    if table[k + 1].any() or (not count_invalid and table[:k, k].any()):
        valid = np.ones(target.shape, bool) if ignore_index is None else target != ignore_index
        problems = []
        for argument, array in (("target", target), ("labels", labels))[: 1 if count_invalid else 2]:
            foreign = array[valid & ((array < 0) | (array >= num_classes))]
            if foreign.size:
                has_void = ignore_index is not None
                problems.append(name_foreign(where, argument, foreign, num_classes, has_void=has_void))
        raise InputError(problems)
    return np.ascontiguousarray(table[:k, : k + count_invalid]), bool(table[k, k]) and not count_invalid


def _count_plainly(target: LabelArray, labels: LabelArray, num_classes: int, ignore: int) -> IntArray:
    """Count as the compiled loop does, ((K + 2) * (K + 1),), for any number of classes."""
    rows = np.minimum(target, num_classes, dtype=np.intp)
    rows += (rows == num_classes) & (target != ignore)
    rows *= num_classes + 1
    rows += np.minimum(labels, num_classes, dtype=np.intp)
    return np.bincount(rows, minlength=(num_classes + 2) * (num_classes + 1))


def _narrow(array: LabelArray, num_classes: int, ignore_index: int | None) -> tuple[NDArray[Any], int]:
    """Return the map as uint8 or uint16, and the ignore value in it; no foreign value becomes a class."""
    ignore = _NO_IGNORE if ignore_index is None else ignore_index
    if array.dtype == np.bool_:
        array = array.view(np.uint8)
    if array.dtype in (np.uint8, np.uint16):
        return array, ignore if 0 <= ignore <= np.iinfo(array.dtype).max else _NO_IGNORE
    narrow = array.astype(np.uint16)
    narrow[(array < 0) | (array >= num_classes)] = _FOREIGN
    if ignore_index is not None:
        narrow[array == ignore_index] = _VOID
    return narrow, _VOID
