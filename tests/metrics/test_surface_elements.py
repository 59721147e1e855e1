"""Marching cubes give the values of the tests of DeepMind's surface-distance.

`tests/differential/test_surfaces.py` compares every figure with the package itself.
"""

import math
import tracemalloc

import numpy as np
import pytest

from segmeter.metrics.pixels.confusion import confusion_matrix
from segmeter.metrics.pixels.overlap import overlap_scores
from segmeter.metrics.surfaces import surface_metrics
from tests.metrics.test_surfaces import single


def measured(target, mask, spacing):
    return surface_metrics(target, mask, spacing=spacing, tolerances=(1,), surface="marching_cubes")


@pytest.mark.parametrize(
    ("target", "mask", "spacing"),
    [
        (single((128, 128), (50, 70)), single((128, 128), (50, 72)), (2, 1)),
        (single((64, 64, 80), (50, 60, 70)), single((64, 64, 80), (50, 60, 72)), (3, 2, 1)),
    ],
    ids=["2-D", "3-D"],
)
def test_two_pixels_two_apart(target, mask, spacing):
    found = measured(target, mask, spacing)
    assert (found.mean_from_target, found.mean_from_mask, found.hd, found.hd95) == (1.5, 1.5, 2, 2)
    assert (found.near_target.tolist(), found.near_mask.tolist(), found.nsd.tolist()) == ([0.5], [0.5], [0.5])
    assert found.points_target == found.points_mask == 2 ** len(spacing)


def test_two_squares_of_which_one_is_a_row_longer():
    target, mask = np.zeros((2, 6, 6), bool)
    target[1:3, 1:3], mask[1:4, 1:3] = True, True
    found = measured(target, mask, (2, 1))
    corner = math.hypot(2, 1) / 2
    around, further = 4 * corner + 2 * 1 + 2 * 2, 4 * corner + 2 * 1 + 4 * 2
    # the target's lower side is 1 from the mask's sides, its corners are on them; the mask's lower row is 2 away
    assert found.mean_from_target == pytest.approx(1 / around, rel=1e-12)
    np.testing.assert_allclose(found.mean_from_mask, (2 * corner + 1) * 2 / further, rtol=1e-12)
    assert found.hd == 2


def test_two_half_cubes():
    target, mask = np.zeros((2, 100, 100, 100), bool)
    target[:50], mask[:51] = True, True
    found = measured(target, mask, (2, 1, 1))
    assert [round(value, 3) for value in (found.mean_from_target, found.mean_from_mask)] == [0.322, 0.339]
    assert (found.hd, found.hd95) == (2, 2)
    assert [round(float(v[0]), 3) for v in (found.near_target, found.near_mask, found.nsd)] == [0.842, 0.830, 0.836]
    counts = confusion_matrix(target.astype(np.uint8), mask.astype(np.uint8), num_classes=2)
    assert round(float(overlap_scores(counts).dice[1]), 3) == 0.990


def test_the_memory_of_a_volume_is_a_few_bytes_per_voxel():
    """Mutation seen to fail: the comparisons with all eight corners held at once, 16 bytes per voxel."""
    target, mask = np.zeros((2, 80, 80, 80), bool)
    target[20:40, 20:40, 20:40], mask[22:42, 20:40, 20:40] = True, True
    target.flat[0] = target.flat[-1] = True  # so that the box around both is the whole volume
    measured(target[:3, :3, :3], mask[:3, :3, :3], (1, 1, 1))  # loads what stays
    tracemalloc.start()
    try:
        measured(target, mask, (1, 1, 1))
        assert tracemalloc.get_traced_memory()[1] < 8 * target.size
    finally:
        tracemalloc.stop()


def test_a_percentile_is_of_the_surface_not_of_the_points():
    target, mask = (single((9, 40), *((4, x) for x in range(2, 38))) for _ in range(2))
    mask[5:8, 20] = True  # a spur of 3 pixels
    tall, flat = (measured(target, mask, spacing) for spacing in ((1, 0.2), (1, 1)))
    assert tall.hd == flat.hd == 3
    assert tall.hd95 > flat.hd95
