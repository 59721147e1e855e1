"""Images that are made visible, and contours, by hand."""

import numpy as np
import pytest

from segmeter.report.pictures.images import contours, display_image


def test_uint8_is_shown_as_it_is(rng):
    image = rng.integers(0, 255, (4, 5, 3)).astype(np.uint8)
    np.testing.assert_array_equal(display_image(image), image)


@pytest.mark.parametrize("channels", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32])
def test_any_number_of_channels_and_dtype_gives_rgb(rng, channels, dtype):
    shown = display_image((rng.random((6, 7, channels)) * 200).astype(dtype))
    assert shown.shape == (6, 7, 3)
    assert shown.dtype == np.uint8
    if channels == 1:
        assert (shown == shown[..., :1]).all()
    if channels == 2:
        assert (shown[..., 2] == 0).all()


def test_wide_values_are_stretched_between_percentiles_and_the_infinite_is_black():
    ramp = np.linspace(1000, 3000, 1001, dtype=np.float32).reshape(7, 143, 1)
    shown = display_image(ramp)[..., 0]
    assert shown.min() == 0
    assert shown.max() == 255
    assert shown.ravel()[500] in (127, 128)
    ramp[0, :3, 0] = np.nan, np.inf, -np.inf
    assert (display_image(ramp)[0, :3] == 0).all()


@pytest.mark.parametrize("value", [0.0, 5.0, np.nan])
def test_constant_and_undefined_images_are_black(value):
    assert (display_image(np.full((3, 3, 1), value, np.float32)) == 0).all()


def test_contours_lie_on_both_sides_of_a_border():
    labels = np.array([[0, 0, 1, 1], [0, 0, 1, 1], [2, 2, 2, 2]])
    np.testing.assert_array_equal(contours(labels), [[0, 1, 1, 0], [1, 1, 1, 1], [1, 1, 1, 1]])
    assert not contours(np.zeros((3, 3))).any()
