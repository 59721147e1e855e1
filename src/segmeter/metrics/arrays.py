"""Checks pairs of maps, and calculates with numbers that may be undefined or infinite.

NaN is undefined and never counts as 0. Infinity is a failure, and no arithmetic turns it into NaN.
"""

import math
from collections.abc import Sequence
from numbers import Real
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from segmeter.checks import expected, real_numbers, shorten, shown, whole_number
from segmeter.errors import InputError

BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]


def divide(numerator: NDArray[Any], denominator: NDArray[Any]) -> FloatArray:
    """Divide; the ratio is NaN where the denominator is 0."""
    quotient = np.empty(np.broadcast(numerator, denominator).shape)
    with np.errstate(divide="ignore", invalid="ignore"):  # twice as fast as leaving out zeros first
        np.divide(numerator, denominator, out=quotient)
    np.copyto(quotient, np.nan, where=np.equal(denominator, 0))
    return quotient


def mean_defined(values: FloatArray) -> FloatArray:
    """Average the values that are not NaN over the last axis; the mean is NaN where there are none."""
    return divide(np.nansum(values, axis=-1), (~np.isnan(values)).sum(axis=-1))


def minus(first: FloatArray, second: FloatArray) -> FloatArray:
    """Subtract numbers that may be infinite: equal ones differ by 0, and only undefined ones give NaN.

    Examples
    --------
    >>> minus(np.array([3.0, np.inf, 2.0, np.nan]), np.array([1.0, np.inf, np.inf, 1.0])).tolist()
    [2.0, 0.0, -inf, nan]
    """
    equal = first == second
    return np.asarray(np.where(equal, 0.0, first) - np.where(equal, 0.0, second))


def json_number(value: Any) -> float | None:
    """Return a float for JSON, where NaN is None."""
    return None if np.isnan(value) else float(value)


def json_number_or_inf(value: Any) -> float | str | None:
    """Return a float for JSON, where NaN is None and infinity is the text "inf" or "-inf".

    Examples
    --------
    >>> json_number_or_inf(0.5), json_number_or_inf(np.nan), json_number_or_inf(np.inf), json_number_or_inf(-np.inf)
    (0.5, None, 'inf', '-inf')
    """
    return None if np.isnan(value) else str(float(value)) if np.isinf(value) else float(value)


Status = Literal["ok", "both_empty", "prediction_empty", "target_empty"]

_LISTED = 8  # A message names at most this many values.
MOST_CLASSES = 65533  # Ignored pixels become class K, and `confusion_matrix` counts at most 65534 classes.


def check_maps(
    where: str, target: NDArray[Any], other: NDArray[Any], name: str, *, kinds: str, axes: tuple[int, ...] = ()
) -> None:
    """Refuse maps that aren't NumPy arrays of these dtype kinds, differ in shape, or have a number of axes not in
    `axes`.
    """
    problems = []
    dtype = "bool" if kinds == "b" else "integer"
    for argument, array in (("target", target), (name, other)):
        if not isinstance(array, np.ndarray) or isinstance(array, np.ma.MaskedArray):
            problems.append(expected(where, argument, "to be a plain NumPy array", type(array).__name__))
        elif array.dtype.kind not in kinds:
            given = f"{array.dtype} {array.shape}"
            remedy = f"Pass {argument} == k to measure class k." if kinds == "b" and array.dtype.kind in "iu" else ""
            problems.append(expected(where, argument, f"to have dtype {dtype}", given, remedy))
    if not problems and target.shape != other.shape:
        problems.append(expected(where, name, f"to have the target's shape {target.shape}", other.shape))
    if not problems and axes and target.ndim not in axes:
        problems.append(expected(where, "target", f"to have {' or '.join(map(str, axes))} axes", target.shape))
    if problems:
        raise InputError(problems)


def check_ids(where: str, name: str, numbers: NDArray[Any]) -> None:
    """Refuse numbers of objects that aren't integers, are negative, or that int64 can't hold."""
    if numbers.dtype.kind not in "iu":
        raise InputError(expected(where, name, "to have dtype integer", f"{numbers.dtype} {numbers.shape}"))
    if numbers.size and not 0 <= numbers.min() <= numbers.max() < 2**63:
        given = f"{numbers.min()} to {numbers.max()}"
        raise InputError(expected(where, name, "to hold ids between 0 and 2**63 - 1", given))


def validated_numbers(where: str, argument: str, given: Any, rule: str, *, kinds: str = "biuf") -> NDArray[Any]:
    """Return the argument as an array if its dtype is of these kinds; otherwise raise InputError with the rule."""
    try:
        array = np.asarray(given)
    except (TypeError, ValueError) as error:
        raise InputError(expected(where, argument, rule, error)) from None
    if isinstance(given, np.ma.MaskedArray) or array.dtype.kind not in kinds:
        kind = array.dtype if type(given) is np.ndarray else type(given).__name__
        described = f"{kind} {array.shape}" if isinstance(given, np.ndarray) else shown(given)
        raise InputError(expected(where, argument, rule, described))
    return array


def without_channel(array: NDArray[Any], other: NDArray[Any]) -> NDArray[Any]:
    """Drop the channel axis of one binary map, (B, 1, H, W), if the other map has none, (B, H, W)."""
    shapes = getattr(array, "shape", ()), getattr(other, "shape", ())
    return array[:, 0] if len(shapes[0]) > 2 and shapes[0] == (*shapes[1][:1], 1, *shapes[1][1:]) else array


def validated_spacing(where: str, spacing: Sequence[float], axes: int) -> tuple[float, ...]:
    """Check the spacing of a map with this number of axes, and return it as floats."""
    edges = () if isinstance(spacing, Real) else real_numbers(where, "spacing", spacing)
    if len(edges) != axes or not all(math.isfinite(edge) and edge > 0 for edge in edges):
        rule = f"to have {axes} finite values > 0, one per axis"
        raise InputError(expected(where, "spacing", rule, shown(spacing)))
    return edges


def validated_num_classes(
    where: str, num_classes: int, ignore_index: int | None, *, most: int = MOST_CLASSES
) -> tuple[int, int | None]:
    """Return the number of classes and the ignored value as Python ints, so that no NumPy integer wraps later.

    Raises
    ------
    InputError
        There are no classes or more than `most`, or the ignored value is a class.
    """
    num_classes = whole_number(where, "num_classes", num_classes)
    ignore_index = None if ignore_index is None else whole_number(where, "ignore_index", ignore_index)
    if not 1 <= num_classes <= most:
        raise InputError(expected(where, "num_classes", f"between 1 and {most}", num_classes))
    if ignore_index is not None and 0 <= ignore_index < num_classes:
        raise InputError(
            expected(where, "ignore_index", f"to lie outside the classes (0 to {num_classes - 1})", ignore_index)
        )
    return num_classes, ignore_index


def validated_classes(where: str, classes: Sequence[int] | None, num_classes: int) -> list[int]:
    """Check that indices of classes exist and are distinct, and return them as Python ints; None is all classes."""
    if classes is None:
        return list(range(num_classes))
    chosen = [whole_number(where, "classes", k) for k in real_numbers(where, "classes", classes)]
    if not chosen or len(set(chosen) & set(range(num_classes))) < len(chosen):
        rule = f"to be distinct class indices, 0 to {num_classes - 1}"
        raise InputError(expected(where, "classes", rule, classes))
    return chosen


def validated_labels(
    where: str,
    target: NDArray[Any],
    labels: NDArray[Any],
    *,
    num_classes: int,
    ignore_index: int | None,
    kinds: str = "iub",
    axes: tuple[int, ...] = (2, 3),
) -> tuple[NDArray[Any], NDArray[Any], int]:
    """Check a pair of class maps, and return both as uint8 or uint16, with ignored pixels set to K in both, and K.

    Raises
    ------
    InputError
        As `check_maps` and `validated_num_classes`, or a pixel that is not ignored is outside the classes.
    """
    check_maps(where, target, labels, "labels", kinds=kinds, axes=axes)
    num_classes, ignore_index = validated_num_classes(where, num_classes, ignore_index)
    ignored = None if ignore_index is None else target == ignore_index
    validated = []
    for name, class_map in (("target", target), ("labels", labels)):
        foreign = class_map >= num_classes
        if class_map.dtype.kind == "i":
            foreign |= class_map < 0
        if ignored is not None:
            foreign &= ~ignored
        if foreign.any():
            raise InputError(name_foreign(where, name, class_map[foreign], num_classes, has_void=ignored is not None))
        validated.append(class_map.astype(np.uint8 if num_classes < 256 else np.uint16))
        if ignored is not None:
            validated[-1][ignored] = num_classes
    return validated[0], validated[1], num_classes


def validated_width(where: str, width: int | None, shape: tuple[int, ...], ratio: float, *, most: int) -> int:
    """Check a width in pixels and return it; None is this share of the diagonal."""
    if width is not None and not 1 <= (width := whole_number(where, "width", width)) <= most:
        raise InputError(expected(where, "width", f">= 1 and <= {most}", width))
    return share_of_diagonal(shape, ratio) if width is None else width


def share_of_diagonal(shape: tuple[int, ...], ratio: float) -> int:
    """Return a share of the diagonal in pixels, rounded half to even; at least 1."""
    return max(1, round(ratio * math.hypot(*shape)))


def find_status(in_target: object, in_prediction: object) -> Status:
    """Tell which of the two masks is empty; a true value means not empty.

    Examples
    --------
    >>> find_status(12, 0)
    'prediction_empty'
    """
    if in_target and in_prediction:
        return "ok"
    return "prediction_empty" if in_target else "target_empty" if in_prediction else "both_empty"


def union_box(first: NDArray[Any], second: NDArray[Any]) -> tuple[slice, ...]:
    """Return the bounding box of the non-zero pixels of both maps; an empty box if both are empty."""
    box: list[slice] = []
    for axis in range(first.ndim):
        others = tuple(other for other in range(first.ndim) if other != axis)
        occupied = np.flatnonzero(first.any(axis=others) | second.any(axis=others))
        box.append(slice(int(occupied[0]), int(occupied[-1]) + 1) if occupied.size else slice(0, 0))
    return tuple(box)


def name_foreign(where: str, argument: str, foreign: NDArray[Any], num_classes: int, *, has_void: bool) -> str:
    """Write the line of an error that names the values (N,) of pixels outside the classes."""
    values, pixels = np.unique(foreign, return_counts=True)
    described = [f"{n} pixel{'s' if n > 1 else ''} of {v}" for v, n in zip(values, pixels, strict=True)]
    rule = f"to hold only classes 0 to {num_classes - 1}"
    remedy = "Pass its void value as ignore_index." if argument == "target" and not has_void else ""
    return expected(where, argument, rule, shorten(described, most=_LISTED, rest="more values"), remedy)
