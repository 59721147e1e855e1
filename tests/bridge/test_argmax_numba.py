"""The argmax kernels, called directly, against NumPy's argmax."""

import numpy as np
import pytest

from segmeter.bridge._argmax_numba import BLOCK, along_channels, along_pixels

SIZES = [1, 7, BLOCK, 2 * BLOCK + 3]


def draw(pixels, channels, dtype, seed=0):
    """(channels, pixels): small integers, so that equal channels are common."""
    return np.random.default_rng(seed).integers(-3, 4, (channels, pixels)).astype(dtype)


def run(kernel, values, stride):
    """Lay (channels, pixels) out with gaps of NaN, which must not be read, and call the kernel."""
    channels, pixels = values.shape
    lines = values if kernel is along_pixels else values.T
    whole = np.full((len(lines), stride), np.nan, values.dtype)
    whole[:, : lines.shape[1]] = lines
    found = np.full(pixels, 9, np.uint8)
    return found, kernel(whole.reshape(-1), stride, channels, found)


@pytest.mark.parametrize("kernel", [along_pixels, along_channels], ids=["pixels", "channels"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("channels", [1, 2, 19])
@pytest.mark.parametrize("pixels", SIZES)
@pytest.mark.parametrize("gap", [0, 5])
def test_the_first_largest_channel_wins(kernel, dtype, channels, pixels, gap):
    values = draw(pixels, channels, dtype)
    found, finite = run(kernel, values, (pixels if kernel is along_pixels else channels) + gap)
    np.testing.assert_array_equal(found, values.argmax(0))
    assert finite


@pytest.mark.parametrize("kernel", [along_pixels, along_channels], ids=["pixels", "channels"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [(0, 0), (2, BLOCK), (1, 2 * BLOCK + 2)])
def test_one_value_that_is_not_finite_is_seen(kernel, bad, place):
    values = draw(2 * BLOCK + 3, 3, np.float32)
    values[place] = bad
    assert not run(kernel, values, max(values.shape) if kernel is along_pixels else 3)[1]


@pytest.mark.parametrize("kernel", [along_pixels, along_channels], ids=["pixels", "channels"])
def test_the_largest_floats_are_finite(kernel):
    """Their plain sum would overflow."""
    values = np.full((19, 40), np.finfo(np.float32).max)
    found, finite = run(kernel, values, 40)
    assert finite
    assert not found.any()
