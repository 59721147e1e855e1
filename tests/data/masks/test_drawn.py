"""Objects laid onto one map: labels, numbers, overlaps and crowds; names and corners that fit no map are refused."""

import tracemalloc
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from segmeter.classes import ClassSpec
from segmeter.data.masks.drawn import Drawn, check_corners, draw_objects, fill_outline, find_object_labels
from segmeter.data.sample import Reading
from segmeter.errors import DataError

PATH = Path("a.json")
SPEC = ClassSpec(task="multiclass", names=("ground", "cell", "nerve"), colours=((0, 0, 0), (9, 9, 9), (1, 2, 3)))
IGNORING = SPEC.replace(ignore_index=255)
SHAPE = (2, 5)


def reading_of(spec, *, numbered, overlap):
    return Reading(spec=spec, label_map={}, max_pixels=10**6, instances=numbered, overlap=overlap)


def strip(first, last, label=1, *, crowd=False):
    """An object in the columns from `first` to before `last`."""
    mask = np.zeros(SHAPE, bool)
    mask[:, first:last] = True
    return Drawn(mask=mask, label=label, crowd=crowd)


def draw(*objects, spec=IGNORING, numbered=False, overlap="error"):
    found = draw_objects(PATH, objects, SHAPE, reading_of(spec, numbered=numbered, overlap=overlap))
    assert (found[0] == found[1]).all()
    return found[0].tolist(), found.dtype


def test_labels_and_numbers():
    objects = strip(0, 2), strip(3, 5, 2)
    assert draw(*objects) == ([1, 1, 0, 2, 2], np.uint16)
    assert draw(*objects, numbered=True) == ([1, 1, 0, 2, 2], np.int64)
    assert draw() == ([0] * 5, np.uint16)


def test_objects_of_one_class_may_overlap_but_not_objects_with_numbers():
    objects = strip(0, 3), strip(2, 5)
    assert draw(*objects)[0] == [1] * 5
    with pytest.raises(DataError) as error:
        draw(*objects, numbered=True)
    assert error.value.problems == (
        "a.json: expected `objects` not to overlap, got 2 pixels that two of them cover. "
        "data.overlap=smaller_on_top gives them to the smaller one; a multilabel task keeps both classes.",
    )


@pytest.mark.parametrize("order", [1, -1])
def test_the_smaller_object_is_on_top_whatever_the_order(order):
    objects = strip(0, 5, 1), strip(1, 3, 2)
    assert draw(*objects[::order], overlap="smaller_on_top")[0] == [1, 2, 2, 1, 1]
    assert draw(*objects[::order], overlap="smaller_on_top", numbered=True)[0] == [1, 2, 2, 1, 1]


def test_a_crowd_is_a_label_like_others_but_no_object():
    objects = strip(0, 1), strip(1, 3, crowd=True), strip(3, 5)
    assert draw(*objects)[0] == [1, 1, 1, 1, 1]
    assert draw(*objects, numbered=True)[0] == [1, 255, 255, 2, 2]
    with pytest.raises(DataError, match=r"`a crowd` to be ignored, .* got no ignored value. Set data.ignore_index"):
        draw(*objects, numbered=True, spec=SPEC)


def test_no_object_has_the_ignored_number():
    objects = strip(0, 1), strip(1, 2), strip(2, 3)
    two = SPEC.replace(names=SPEC.names[:2], colours=SPEC.colours[:2])
    assert draw(*objects, numbered=True, spec=two.replace(ignore_index=2))[0] == [1, 3, 4, 0, 0]
    assert draw(*objects, numbered=True, spec=two)[0] == [1, 2, 3, 0, 0]


def test_names_are_labels_or_refused_all_at_once():
    reading = Reading(spec=SPEC)
    assert find_object_labels(PATH, ["nerve", "cell", "nerve"], reading) == {"nerve": 2, "cell": 1}
    with pytest.raises(DataError) as error:
        find_object_labels(PATH, ["nerves", "cell", "bone", "nerves"], reading)
    assert error.value.problems == (
        "a.json: expected `classes` to be of ground, cell, nerve, got 2: bone, nerves. Did you mean 'nerve'?",
    )


@pytest.mark.parametrize("corner", [(-1, 0), (6, 3), (0, -1), (2.5, 1)])
def test_corners_may_lie_a_pixel_outside(corner):
    check_corners(PATH, np.array([corner, (0.0, 0.0)]), SHAPE)


@pytest.mark.parametrize(
    ("corner", "found"),
    [
        ((6.1, 0), "to lie on the image of 2 x 5 pixels, got x=6.1, y=0. Export the polygons in pixels"),
        ((0, 3.5), "to lie on the image of 2 x 5 pixels, got x=0, y=3.5"),
        ((-1.01, 0), "got x=-1.01, y=0"),
        ((np.nan, 0), "to be finite numbers, got one that is not"),
        ((0, np.inf), "to be finite numbers"),
    ],
)
def test_corners_far_outside_are_refused(corner, found):
    with pytest.raises(DataError) as error:
        check_corners(PATH, np.array([(1.0, 1.0), corner]), SHAPE)
    assert found in error.value.problems[0]


def exactly_filled(corners, shape):
    """Pixel by pixel and edge by edge, in fractions."""
    filled = np.zeros(shape, bool)
    ends = np.hstack([corners, np.roll(corners, -1, 0)]).tolist()
    edges = [[Fraction(each) for each in edge] for edge in ends]
    for row, column in np.ndindex(shape):
        inside = on = False
        for x0, y0, x1, y1 in edges:
            cross = (column - x0) * (y1 - y0) - (row - y0) * (x1 - x0)
            on |= cross == 0 and min(x0, x1) <= column <= max(x0, x1) and min(y0, y1) <= row <= max(y0, y1)
            if (row < y0) != (row < y1):
                inside ^= x0 + (row - y0) * (x1 - x0) / (y1 - y0) <= column
        filled[row, column] = on or inside
    return filled


@pytest.mark.parametrize("seed", range(60))
def test_an_outline_covers_the_centres_within_it_and_on_it(seed):
    """Corners on and between centres, outlines that cross themselves, and edges along rows and columns."""
    rng = np.random.default_rng(seed)
    shape = tuple(rng.integers(1, 9, 2).tolist())
    corners = rng.random((int(rng.integers(3, 10)), 2)) * (np.array(shape[::-1]) + 2) - 1
    steps = (None, 1, 2, 4)[seed % 4]
    corners = corners if steps is None else np.round(corners * steps) / steps
    assert np.array_equal(fill_outline(corners, shape), exactly_filled(corners, shape))


def test_an_endless_outline_is_refused():
    check_corners(PATH, np.tile([[0.0, 0], [20, 20]], (200, 1)), (20, 20))
    with pytest.raises(DataError, match=r"`outline` of at most 11600 corners and pixels together, got 12"):
        check_corners(PATH, np.tile([[0.0, 0], [20, 20]], (300, 1)), (20, 20))


def test_many_objects_of_a_large_image_take_no_mask_of_it_each():
    """Ten thousand of them filled the memory: each kept a mask of the whole image."""

    def objects():
        for number in range(300):
            mask = np.zeros((1000, 1000), bool)
            mask[3 * number : 3 * number + 2, 5:9] = True
            yield Drawn(mask=mask, label=1)

    tracemalloc.start()
    found = draw_objects(PATH, objects(), (1000, 1000), reading_of(SPEC, numbered=True, overlap="smaller_on_top"))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (found.max(), np.count_nonzero(found)) == (300, 300 * 8)
    assert peak < 40e6  # the map takes 9 MB, and a mask 1 MB
