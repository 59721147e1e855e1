from pathlib import Path

import numpy as np
import pytest
import segmentation_models_pytorch as smp
import torch
from torchvision.models import segmentation

from segmeter.data.sample import Sample
from segmeter.errors import CheckpointError, ConfigError

from .parts import CLASSES, check_equal, images, predictor

MEAN, STD = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])


def logits_of(network, image: np.ndarray) -> torch.Tensor:
    values = ((torch.from_numpy(image) / 255 - MEAN) / STD).permute(2, 0, 1)[None]
    with torch.inference_mode():
        found = network.eval()(values)
    return (found["out"] if isinstance(found, dict) else found)[0]


def check(checkpoint: str, network: torch.nn.Module, cases: list[np.ndarray], weights: Path, **told) -> None:
    torch.save(network.state_dict(), weights)
    ours = predictor(checkpoint, weights=str(weights), classes=CLASSES, **told)
    samples = [Sample(case_id=str(i), image=image, target=None) for i, image in enumerate(cases)]
    for case, found in zip(cases, ours.predict(samples), strict=True):
        check_equal(found.labels, logits_of(network, case))


@pytest.mark.parametrize("name", ["lraspp_mobilenet_v3_large", "deeplabv3_mobilenet_v3_large"])
def test_labels_are_those_of_torchvision(tmp_path, name):
    torch.manual_seed(0)
    network = getattr(segmentation, name)(weights=None, weights_backbone=None, num_classes=len(CLASSES))
    check(f"torchvision:{name}", network, images(2), tmp_path / "weights.pth")


def test_labels_are_those_of_segmentation_models_pytorch(tmp_path):
    torch.manual_seed(0)
    options = {"encoder_depth": 3, "decoder_channels": [8, 8, 4]}
    network = smp.create_model("unet", "tu-test_resnet", None, 3, len(CLASSES), **options)
    check("smp:Unet/tu-test_resnet", network, [images(2)[1]], tmp_path / "weights.pth", options=options)


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
