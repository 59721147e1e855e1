"""Polygons of masks: filled by scikit-image or even-odd by Matplotlib, they are the masks again."""

import numpy as np
import pytest
from scipy import ndimage
from skimage.draw import polygon

from segmeter.postprocess.objects import area, polygonise

SQUARE_RING = np.pad(np.pad(np.zeros((1, 1), bool), 1, constant_values=True), 1)


def filled(rings, shape):
    """Pixel centres inside an odd number of the rings, by scikit-image's polygon test."""
    inside = np.zeros(shape, bool)
    for ring in rings:
        x, y = np.array(ring, float).T
        rows, columns = polygon(y - 0.5, x - 0.5, shape)
        inside[rows, columns] ^= True
    return inside


@pytest.mark.parametrize("connectivity", [4, 8])
@pytest.mark.parametrize("density", [0.1, 0.5, 0.8])
def test_filling_the_polygons_gives_the_mask_back(rng, density, connectivity):
    """Mutation seen to fail: holes left out; the same turn for both connectivities."""
    mask = rng.random((41, 53)) < density
    found = polygonise(mask, connectivity=connectivity)
    structure = np.ones((3, 3)) if connectivity == 8 else None
    parts, count = ndimage.label(mask, structure)
    assert len(found) == count
    for number, rings in enumerate(found, 1):
        np.testing.assert_array_equal(filled(rings, mask.shape), parts == number)
        areas = [area(ring) for ring in rings]
        assert areas[0] > 0
        assert all(hole < 0 for hole in areas[1:])
        assert sum(areas) == np.count_nonzero(parts == number)
        assert all(ring[0] == ring[-1] for ring in rings)


def test_a_ring_of_pixels_has_a_hole_and_corners_only_where_it_turns():
    """Rows and columns 1 to 3 around pixel (2, 2): 9 - 1 pixels."""
    ((outer, hole),) = polygonise(SQUARE_RING)
    assert sorted(outer[:-1]) == [(1, 1), (1, 4), (4, 1), (4, 4)]
    assert sorted(hole[:-1]) == [(2, 2), (2, 3), (3, 2), (3, 3)]
    assert (area(outer), area(hole)) == (9, -1)


def test_pixels_that_touch_at_a_corner_are_one_part_or_two():
    mask = np.eye(2, dtype=bool)
    assert [len(rings) for rings in polygonise(mask, connectivity=8)] == [1]
    assert [len(rings) for rings in polygonise(mask, connectivity=4)] == [1, 1]
    assert polygonise(np.zeros((2, 2), bool)) == []
