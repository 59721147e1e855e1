import numpy as np
import pytest
import torch

from segmeter.models.foreign.config import SizeConfig
from segmeter.models.foreign.network import fit, resize_as_opencv, target_size
from tests.differential.peers import load


@pytest.mark.parametrize(
    ("told", "size", "wanted"),
    [
        ({"fit": "short:50"}, (100, 201), (50, 100)),
        ({"fit": "short:80", "longest": 200}, (100, 400), (50, 200)),
        ({"fit": "long:64"}, (100, 200), (32, 64)),
        ({"fit": "fixed:10x20"}, (3, 4), (10, 20)),
        ({"fit": "short:50", "multiple": 32}, (100, 200), (64, 128)),
    ],
)
def test_a_size_follows_its_rule(told, size, wanted):
    assert target_size(*size, SizeConfig(**told)) == wanted


def test_a_letterbox_is_grey_around_the_image_and_is_cropped_again():
    image = torch.randint(0, 256, (1, 3, 30, 64), dtype=torch.uint8)
    fitted, restore = fit(image, SizeConfig(fit="letterbox:64", backend="opencv"))
    assert fitted.shape == (1, 3, 64, 64)
    assert torch.equal(fitted[..., 17:47, :], image)
    assert (fitted[..., :17, :] == 114).all()
    labels = torch.arange(64 * 64).view(1, 64, 64)
    assert torch.equal(restore(labels), labels[:, 17:47])
    less, _ = fit(image, SizeConfig(fit="letterbox:64", backend="opencv", multiple=16))
    assert less.shape[-2:] == (32, 64), "a network of any size gets no more grey than its stride needs"


@pytest.mark.parametrize("size", [(64, 92), (20, 18), (25, 70), (37, 106)])
def test_opencv_s_resize_is_the_bilinear_one_to_a_grey_level(size):
    image = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (1, 3, 40, 36), dtype=np.uint8))
    exact = torch.nn.functional.interpolate(image.double(), size, mode="bilinear", align_corners=False)
    assert (resize_as_opencv(image, *size).double() - exact).abs().max() <= 1.01


def test_opencv_s_resize_is_opencv_s():
    cv2 = load("cv2", "opencv-python-headless")
    image = np.random.default_rng(0).integers(0, 256, (101, 77, 3), dtype=np.uint8)
    for rows, columns in ((33, 25), (160, 122), (50, 38), (202, 154)):
        found = resize_as_opencv(torch.from_numpy(image).permute(2, 0, 1)[None], rows, columns)
        assert np.array_equal(found[0].permute(1, 2, 0).numpy(), cv2.resize(image, (columns, rows)))
