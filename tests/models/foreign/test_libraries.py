"""Networks of torchvision and SMP are built by name, and need weights that fit."""

import pytest
import torch
from torchvision.models import segmentation

from segmeter.errors import CheckpointError, ConfigError

from .parts import CLASSES, predictor


def test_weights_of_other_classes_are_refused(tmp_path):
    network = segmentation.lraspp_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=4)
    torch.save(network.state_dict(), tmp_path / "weights.pth")
    with pytest.raises(CheckpointError, match=r"other shape.*model.classes names 5"):
        predictor("torchvision:lraspp_mobilenet_v3_large", weights=str(tmp_path / "weights.pth"), classes=CLASSES)


@pytest.mark.parametrize(
    ("checkpoint", "reason"),
    [
        ("torchvision:lraspp_mobilenet_v3_larg", "Did you mean 'lraspp_mobilenet_v3_large'"),
        ("torchvision:resnet18", "no network for segmentation"),
        ("smp:Unet", "KeyError"),
        ("smp:Unett/resnet18", "KeyError"),
        ("smp:Unet/tu-hf-hub:timm/resnet18", "more than an architecture and an encoder"),
        ("smp:Unet/tu-hf-hub:resnet18", "more than an architecture and an encoder"),
    ],
)
def test_a_name_that_the_library_lacks_is_one_line_with_the_form_of_one(tmp_path, checkpoint, reason):
    torch.save({"a": torch.zeros(1)}, tmp_path / "weights.pth")
    line = rf"can't be built \(.*{reason}.*Give torchvision:NAME.*smp:ARCHITECTURE/ENCODER"
    with pytest.raises(ConfigError, match=line) as caught:
        predictor(checkpoint, classes=CLASSES, weights=str(tmp_path / "weights.pth"))
    assert "\n" not in str(caught.value)


def test_a_network_without_its_weights_is_refused():
    with pytest.raises(ConfigError, match="`weights` to name the file"):
        predictor("smp:Unet/resnet18", classes=CLASSES)
