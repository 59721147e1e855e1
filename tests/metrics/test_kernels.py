"""Small compiled loops: draws by their high halves."""

import numpy as np
import pytest

from segmeter.metrics._kernels import tally_draws


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
