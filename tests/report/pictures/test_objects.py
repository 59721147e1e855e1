"""Which objects are matched, missed and false, against a loop over all pairs."""

import numpy as np
import pytest

from segmeter.classes import ClassSpec
from segmeter.report.pictures.objects import Objects, find_kinds
from segmeter.report.pictures.overlay import draw_overlay

CELLS = ClassSpec(task="binary", names=("background", "cell"), colours=((0, 0, 0), (230, 57, 57)), ignore_index=255)


def scene(rng, shape=(40, 50), count=12):
    objects = np.zeros(shape, np.int64)
    for number in range(1, count + 1):
        row, column = rng.integers(0, shape[0] - 8), rng.integers(0, shape[1] - 8)
        objects[row : row + rng.integers(3, 9), column : column + rng.integers(3, 9)] = 3 * number
    return objects


@pytest.mark.parametrize("seed", range(5))
def test_kinds_agree_with_a_loop_over_all_pairs(seed):
    rng = np.random.default_rng(seed)
    target = scene(rng)
    prediction = np.where(rng.random(target.shape) < 0.85, np.roll(target, rng.integers(0, 3), axis=1) * 2, 0)
    matched, missed, false = np.zeros_like(target), target.copy(), prediction.copy()
    for first in np.unique(target[target > 0]):
        for second in np.unique(prediction[prediction > 0]):
            one, other = target == first, prediction == second
            if (one & other).sum() > 0.5 * (one | other).sum():
                matched[other], missed[one], false[other] = second, 0, 0
    found = find_kinds(target, prediction, np.zeros(target.shape, bool))
    np.testing.assert_array_equal(found.matched, matched)
    np.testing.assert_array_equal(found.missed, missed)
    np.testing.assert_array_equal(found.spurious, false)
    assert found.counts() == tuple(len(np.unique(each[each > 0])) for each in (matched, missed, false))


def test_ignored_pixels_belong_to_no_object():
    target, void = np.array([[1, 1, 0, 0]]), np.array([[False, True, True, True]])
    found = find_kinds(target, np.array([[4, 4, 5, 5]]), void)
    np.testing.assert_array_equal(found.matched, [[4, 0, 0, 0]])
    assert found.counts() == (1, 0, 0)


def test_the_objects_of_both_sides_are_drawn_and_counted_before_they_are_reduced():
    """An object of one pixel is gone in a small panel, and counted all the same."""
    target = np.zeros((400, 400), np.int64)
    target[10:200, 10:200], target[10:200, 200:390], target[301, 301] = 1, 2, 3
    prediction = np.where(target == 1, 8, 0)
    image, labels = np.full((400, 400, 3), 90, np.uint8), (prediction > 0).astype(np.uint8)
    options = {"score": 0.5, "panel": 128}
    plain = draw_overlay(image, (target > 0).astype(np.uint8), labels, CELLS, **options)
    both = Objects(target=target, prediction=prediction)
    drawn = draw_overlay(image, (target > 0).astype(np.uint8), labels, CELLS, objects=both, **options)
    assert drawn.shape == plain.shape
    assert (drawn != plain).any()
    assert find_kinds(target, prediction, np.zeros(target.shape, bool)).counts() == (1, 2, 0)
