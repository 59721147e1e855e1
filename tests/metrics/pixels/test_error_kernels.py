"""What errors are sorted by: components, lists of wrong pixels, blocks, and what adjoins both sides."""

import numpy as np
import pytest
from scipy import ndimage

from segmeter.metrics.pixels import _error_kernels as kernels
from segmeter.metrics.pixels._error_kernels import COLUMN, ROW

CLASSES = 3
CORNERS = np.ones((3, 3), bool)


def draw(seed):
    """Target and labels of 3 classes, where the value 3 is a pixel of none."""
    rng = np.random.default_rng(seed)
    shape = tuple(rng.integers(1, 30, 2))
    smooth = rng.uniform(0, 1.5)
    fields = ndimage.gaussian_filter(rng.normal(size=(2, CLASSES + 1, *shape)), (0, 0, smooth, smooth))
    target, labels = fields.argmax(1).astype(np.uint8)
    return target, np.where(rng.random(shape) < 0.5, target, labels).astype(np.uint8)


def packed(mask):
    """The places of a mask, row by row."""
    return np.array([(y << ROW) + x for y, x in np.argwhere(mask)], np.int64)


def unpacked(places):
    return [(int(place >> ROW), int(place & COLUMN)) for place in places]


def survey(target, labels, shift=2):
    return kernels.survey(target, labels, CLASSES, shift)


@pytest.mark.parametrize("seed", range(40))
def test_places_of_one_class_that_touch_have_one_number(seed):
    """As scipy labels each class. Mutation seen to fail: the place above on the right not looked at."""
    values, _ = draw(seed)
    places = packed(values != CLASSES)
    part = kernels.connect_places(places, values)
    theirs, count = np.zeros(values.shape, int), 0
    for value in range(CLASSES):
        found, last = ndimage.label(values == value, CORNERS)
        theirs[found > 0] = found[found > 0] + count
        count += last
    pairs = {(int(one), int(theirs[at])) for one, at in zip(part, unpacked(places), strict=True)}
    assert len(pairs) == count == len({one for one, _ in pairs}) == len({other for _, other in pairs})


@pytest.mark.parametrize("seed", range(40))
def test_a_place_is_met_where_its_component_is_right_anywhere(seed):
    """Against components by scipy. Mutation seen to fail: the pixel above on the right not joined."""
    values, other = draw(seed)
    wrong = (values != other) & (values != CLASSES)
    expected = np.zeros(values.shape, bool)
    for value in range(CLASSES):
        parts, last = ndimage.label(values == value, CORNERS)
        for number in range(1, last + 1):
            expected[parts == number] = (other[parts == number] == value).any()
    met = kernels.find_met(packed(wrong), values, other, CLASSES)
    assert met.tolist() == expected[wrong].tolist()


def draw_spiral():
    spiral = np.zeros((9, 9), np.uint8)
    spiral[0], spiral[:, 8], spiral[8], spiral[2:, 0], spiral[2, :7], spiral[2:7, 6], spiral[6, 2:7] = [1] * 7
    return spiral, (6, 2)


def draw_comb():
    comb = np.zeros((4, 9), np.uint8)
    comb[:3, ::2] = comb[3] = 1  # five teeth, all one in the last row
    return comb, (0, 8)


@pytest.mark.parametrize("shape", [draw_spiral, draw_comb])
def test_ends_that_meet_late_are_one_component(shape):
    values, end = shape()
    other = np.zeros_like(values)
    other[end] = 1
    met = kernels.find_met(packed((values == 1) & (other == 0)), values, other, 0)
    assert met.all()
    assert len(set(kernels.connect_places(packed(values == 1), values).tolist())) == 1


def test_the_smaller_root_stands_for_both():
    root = np.array([0, 1, 1, 2, 4, 4], np.int32)  # 3 -> 2 -> 1 and 5 -> 4
    assert kernels.join(root, 5, 3) == 1
    assert root[4] == 1
    assert kernels.join(root, 4, 4) == 1


@pytest.mark.parametrize("seed", range(10))
def test_wrong_pixels_are_listed_row_by_row_and_right_ones_counted(seed):
    """Mutation seen to fail: ignored pixels listed."""
    target, labels = draw(seed)
    right, places, _, _ = survey(target, labels)
    wrong = (target != labels) & (target != CLASSES)
    assert unpacked(places) == [tuple(place) for place in np.argwhere(wrong).tolist()]
    assert right.tolist() == [int(((target == k) & (labels == k)).sum()) for k in range(CLASSES)]
    assert kernels.has_class(places, labels, CLASSES).tolist() == (labels[wrong] != CLASSES).tolist()


@pytest.mark.parametrize("shift", [2, 4])
def test_blocks_tell_where_true_positives_and_true_negatives_lie(shift):
    """Mutation seen to fail: ignored pixels taken for true negatives."""
    for seed in range(20):
        target, labels = draw(seed)
        _, _, right, other = survey(target, labels, shift)
        side = 1 << shift
        for k, row, column in np.ndindex(*right.shape):
            block = np.s_[row * side : (row + 1) * side, column * side : (column + 1) * side]
            truth, found = target[block], labels[block]
            assert right[k, row, column] == ((truth == k) & (found == k)).any()
            assert other[k, row, column] == ((truth != k) & (found != k) & (truth != CLASSES)).any()


@pytest.mark.parametrize("seed", range(20))
def test_parts_of_places_adjoin_both_sides_or_do_not(seed):
    """By dilating each connected part of the places of a class. Mutation seen to fail: parts of two classes joined."""
    target, labels = draw(seed)
    kept = np.random.default_rng(seed + 99).random(target.shape) < 0.7
    places = packed((target != labels) & (target != CLASSES) & kept)
    found = kernels.adjoin_both(places, target, target, labels, CLASSES)
    mask = np.zeros(target.shape, bool)
    for y, x in unpacked(places):
        mask[y, x] = True
    expected = np.zeros(target.shape, bool)
    for k in range(CLASSES):
        tp, tn = (target == k) & (labels == k), (target != k) & (labels != k) & (target != CLASSES)
        parts, last = ndimage.label(mask & (target == k), CORNERS)
        for number in range(1, last + 1):
            around = ndimage.binary_dilation(parts == number, CORNERS)
            expected[parts == number] = (around & tp).any() and (around & tn).any()
    assert found.tolist() == [bool(expected[place]) for place in unpacked(places)]


def test_wrong_pixels_are_added_by_type():
    """Near the boundary first; else by whether their component holds a right pixel."""
    classes = np.array([[1, 1, 2, 0]], np.uint8)
    near, met = np.array([True, False, False, False]), np.array([True, True, True, False])
    counts = np.zeros((CLASSES, 3), np.int64)
    kernels.add_types(counts, np.arange(4), classes, near, met)
    assert counts.tolist() == [[0, 0, 1], [1, 1, 0], [0, 1, 0]]
