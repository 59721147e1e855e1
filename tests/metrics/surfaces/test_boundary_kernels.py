"""Bands inside the borders of every value at once, as SciPy's erosion of each mask gives them."""

import numpy as np
import pytest
from scipy import ndimage

from segmeter.metrics.surfaces._boundary_kernels import find_band


@pytest.mark.parametrize("shape", [(1, 1), (1, 9), (9, 1), (23, 31)])
@pytest.mark.parametrize("width", [1, 2, 5])
def test_the_band_is_the_mask_without_its_erosion(shape, width):
    rng = np.random.default_rng(width)
    labels = (ndimage.uniform_filter(rng.random(shape), 7) * 12).astype(np.uint8)
    band = find_band(labels, width)
    assert band.dtype == bool
    for value in np.unique(labels):
        mask = labels == value
        inner = ndimage.binary_erosion(mask, np.ones((3, 3)), iterations=width)  # what is outside is background
        np.testing.assert_array_equal(band & mask, mask & ~inner)


def test_a_width_beyond_the_image_takes_everything():
    assert find_band(np.zeros((4, 5), np.uint8), 1 << 20).all()
