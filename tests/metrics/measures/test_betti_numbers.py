"""Objects, holes, tunnels and cavities: by hand, and scikit-image's Euler number on random masks."""

import numpy as np
import pytest
from scipy import ndimage
from skimage.measure import euler_number

from segmeter.metrics.measures.masks import betti_numbers


def solid(shape=(5, 5, 5)):
    return np.pad(np.ones(tuple(side - 2 for side in shape), bool), 1)


def test_a_cavity_a_tunnel_and_two_parts_of_a_volume():
    hollow, bored, two = solid(), solid(), solid((5, 5, 9))
    hollow[2, 2, 2] = False
    bored[2, 2, :] = False
    two[:, :, 4] = False
    assert betti_numbers(hollow) == (1, 0, 1)
    assert betti_numbers(bored) == (1, 1, 0)
    assert betti_numbers(two) == (2, 0, 0)


def test_corners_join_objects_of_8_neighbours_and_holes_of_4():
    diagonal = np.eye(2, dtype=bool)
    assert (betti_numbers(diagonal, 8), betti_numbers(diagonal, 4)) == ((1, 0), (2, 0))
    ring = np.array([[0, 1, 0], [1, 0, 1], [0, 1, 0]], bool)  # its hole is enclosed by corners
    assert (betti_numbers(ring, 8), betti_numbers(ring, 4)) == ((1, 1), (4, 0))
    assert betti_numbers(np.ones((3, 3), bool)) == (1, 0)  # what lies outside of the image is background
    assert betti_numbers(np.zeros((3, 3), bool)) == (0, 0)


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("shape", [(13, 17), (7, 8, 9)], ids=["image", "volume"])
def test_the_euler_number_is_that_of_scikit_image_and_of_the_betti_numbers(shape, seed):
    rng = np.random.default_rng(seed)
    mask = ndimage.uniform_filter(rng.random(shape), 1 + seed % 3) < rng.uniform(0.3, 0.7)
    for connectivity, theirs in ((8, len(shape)), (4, 1)):
        numbers = betti_numbers(mask, connectivity)
        assert min(numbers) >= 0
        euler = sum((-1) ** i * number for i, number in enumerate(numbers))
        assert euler == euler_number(np.pad(mask, 1), connectivity=theirs)
