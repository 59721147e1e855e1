"""Pairs of maps: what is refused, how ignored pixels are erased, and the box that holds both."""

import numpy as np
import pytest

from segmeter.errors import InputError
from segmeter.metrics.arrays import check_classes, check_maps, check_spacing, find_status, known_labels, union_box

MAP = np.zeros((2, 3), np.uint8)


@pytest.mark.parametrize(
    ("target", "other", "kinds", "message"),
    [
        ([[0]], MAP, "iu", "f: expected `target` to be a plain NumPy array, got list"),
        (MAP, np.ma.masked_array(MAP), "iu", "`labels` to be a plain NumPy array, got MaskedArray"),
        (MAP, MAP * 1.0, "iu", r"`labels` to have dtype integer, got float64 \(2, 3\)"),
        (MAP, MAP > 0, "b", r"`target` to have dtype bool, got uint8 \(2, 3\). Pass target == k to measure class k."),
        (MAP, MAP[:, 1:], "iu", r"`labels` to have the target's shape \(2, 3\), got \(2, 2\)"),
        (MAP[0], MAP[0], "iu", r"`target` to have 2 or 3 axes, got \(3,\)"),
    ],
    ids=["list", "masked", "float", "bool", "shape", "axes"],
)
def test_pairs_that_cannot_be_measured_are_refused(target, other, kinds, message):
    with pytest.raises(InputError, match=message):
        check_maps("f", target, other, "labels", kinds=kinds, axes=(2, 3))


@pytest.mark.parametrize(
    ("spacing", "message"),
    [
        (1.5, r"`spacing` to have 2 values, one per axis, got 1.5. Pass \(1.5, 1.5\) if it is the same along all."),
        ((1, 2, 3), r"to have 2 values, one per axis, got 3: \(1, 2, 3\)"),
        ((1, 0), r"`spacing` > 0 and finite, got \(1, 0\)"),
        ((1, np.inf), "`spacing` > 0 and finite"),
    ],
)
def test_a_spacing_that_is_none_is_refused(spacing, message):
    with pytest.raises(InputError, match=message):
        check_spacing("f", spacing, 2)


def test_a_spacing_is_given_as_floats():
    assert check_spacing("f", np.array([2, 1], np.int8), 2) == (2.0, 1.0)


@pytest.mark.parametrize(("num_classes", "dtype"), [(3, np.uint8), (255, np.uint8), (256, np.uint16)])
def test_ignored_pixels_are_one_class_more_in_both_maps(num_classes, dtype):
    target, labels = np.array([[-1, 0, 2]]), np.array([[700, 1, 2]])
    first, second, _ = known_labels("f", target, labels, num_classes=num_classes, ignore_index=-1)
    assert first.dtype == second.dtype == dtype
    assert (first.tolist(), second.tolist()) == ([[num_classes, 0, 2]], [[num_classes, 1, 2]])
    assert target.tolist() == [[-1, 0, 2]]


@pytest.mark.parametrize(
    ("ignore_index", "message"),
    [
        (None, "`target` to hold only classes 0 to 2, got 2 pixels of 9. Pass its void value as ignore_index."),
        (9, r"`labels` to hold only classes 0 to 2, got 1 pixels of 3"),
    ],
)
def test_values_outside_the_classes_are_refused(ignore_index, message):
    with pytest.raises(InputError, match=message):
        known_labels("f", np.array([[9, 9, 0]]), np.array([[0, 3, 3]]), num_classes=3, ignore_index=ignore_index)


def test_an_ignored_value_that_is_a_class_is_refused():
    with pytest.raises(InputError, match=r"f: expected `ignore_index` to lie outside the classes \(0 to 2\), got 1"):
        check_classes("f", 3, 1)


def test_status_by_what_is_empty():
    pairs = [(1, 1), (0, 0), (1, 0), (0, 1)]
    assert [find_status(*pair) for pair in pairs] == ["ok", "both_empty", "prediction_empty", "target_empty"]


@pytest.mark.parametrize("shape", [(7,), (5, 6), (3, 4, 5)])
def test_the_box_holds_both_and_no_more(shape):
    first, second = np.zeros(shape, int), np.zeros(shape, int)
    assert first[union_box(first, second)].size == 0
    first[(1,) * len(shape)], second[(2,) * len(shape)] = 3, 4
    assert union_box(first, second) == (slice(1, 3),) * len(shape)
