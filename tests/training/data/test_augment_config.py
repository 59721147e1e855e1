"""What is cut and changed, as configured."""

import pytest

from segmeter.training.data.augment_config import AugmentConfig, choose_crop


@pytest.mark.parametrize(
    ("sizes", "crop"),
    [
        ({(192, 192): 96}, None),
        ({(512, 512): 5}, None),
        ({(512, 544): 5}, (512, 512)),
        ({(40, 9000): 5}, (32, 512)),
        ({(100, 90): 3, (130, 131): 1}, (96, 64)),
        ({(8, 8): 1, (9, 9): 1}, (32, 32)),
        ({(70, 300): 2, (200, 300): 1, (300, 300): 1}, (64, 288)),  # the lower median of 70, 70, 200 and 300
    ],
)
def test_the_crop_that_suits_the_images(sizes, crop):
    assert choose_crop(AugmentConfig(), sizes).crop == crop
    assert choose_crop(AugmentConfig(crop=(64, 64)), sizes).crop == (64, 64)
    assert choose_crop(AugmentConfig(crop=None), sizes).crop is None


@pytest.mark.parametrize("name", ["rotate", "shear", "brightness", "contrast", "colour", "gamma", "noise", "blur"])
def test_values_change_where_any_of_these_is_asked_for(name):
    still = {"brightness": 0.0, "contrast": 0.0}
    assert not AugmentConfig(**still).changes_values
    assert not AugmentConfig(**still, flip_vertical=True, saturation=0.5).changes_values
    assert AugmentConfig(**{**still, name: 0.5}).changes_values
