"""The traced steps that replace data-dependent ones give the same values."""

import pytest
import torch

from segmeter.deploy.trace import padded_by_indices, trace
from segmeter.errors import ConfigError
from segmeter.models.segmenter import Segmenter, pad_to_multiple
from tests.models.parts import Stub, make_card, make_pointwise


@pytest.mark.parametrize("least", [1, 40])
@pytest.mark.parametrize("size", [(1, 1), (5, 40), (16, 17), (17, 31), (32, 32), (3, 100), (100, 3)], ids=str)
def test_padding_by_indices_is_the_padding_of_training(size, least):
    """Mutation seen to fail: each axis choosing between mirroring and repeating for itself."""
    segmenter = make_pointwise()
    segmenter.size_multiple, segmenter.size_least = 16, least
    images = torch.rand(2, *size, 3)
    padded = padded_by_indices(segmenter, images).permute(0, 3, 1, 2)
    torch.testing.assert_close(
        padded, pad_to_multiple(images.permute(0, 3, 1, 2), multiple=16, least=least), rtol=0, atol=0
    )


def test_a_network_that_asks_for_the_values_of_an_image_is_refused_by_name():
    network = Stub(lambda image: image if image.sum() > 0 else -image)
    with pytest.raises(ConfigError, match=r"the network 'unet' can't be traced for images of any size"):
        trace(Segmenter(network, make_card()).eval(), threshold=0.5, dtype="uint8")


def test_a_network_that_tells_maps_of_one_pixel_apart_takes_images_larger_than_its_stride():
    """Mutation seen to fail: the least size of 1 claimed for it too."""
    network = Stub(lambda image: image[:, :3] if image.shape[2] > 16 else image[:, :3] * 2)
    network.size_multiple = 16
    assert trace(Segmenter(network, make_card()).eval(), threshold=0.5, dtype="uint8").least == 17
