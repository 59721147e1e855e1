"""Small compiled loops: draws by their high halves, and bands as SciPy's erosion of each mask gives them."""

import numpy as np
import pytest
from scipy import ndimage

from segmeter.metrics._kernels import find_band, tally_draws


@pytest.mark.parametrize(("resamples", "units"), [(1, 1), (3, 7), (40, 1000)])
def test_each_draw_is_the_high_half_of_its_product_with_the_number_of_units(resamples, units):
    rng = np.random.default_rng(units)
    halves = rng.integers(0, 2**32, (resamples, units + 2), dtype=np.uint32)  # what is left over is not drawn
    halves[0, 0], halves[-1, units - 1] = 0, 2**32 - 1
    weights = np.full((resamples, units), np.nan)
    tally_draws(halves, weights)
    places = [[int(half) * units >> 32 for half in row[:units]] for row in halves]
    expected = [np.bincount(row, minlength=units) for row in places]
    np.testing.assert_array_equal(weights, expected)


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
