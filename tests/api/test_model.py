"""`segmeter.load`: three lines from a checkpoint to labels, equal to what the predictor gives."""

import numpy as np
import pytest
import torch

import segmeter
from segmeter.classes import ClassSpec
from segmeter.errors import SegmeterError
from segmeter.models.checkpoint import write_checkpoint
from segmeter.models.config import ModelCard
from segmeter.models.segmenter import build_segmenter

SPEC = ClassSpec(task="multiclass", names=("a", "b", "c"), colours=((0, 0, 0), (255, 0, 0), (0, 255, 0)))


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    """Two networks of different weights."""
    folders = []
    for seed in range(2):
        torch.manual_seed(seed)
        model = {"name": "unet", "encoder": "resnet18", "decoder_channels": [16, 8, 8, 8, 8]}
        card = ModelCard(model=model, spec=SPEC, in_channels=1, mean=(0.5,), std=(0.25,))
        folder = tmp_path_factory.mktemp("checkpoints") / "step"
        state = build_segmenter(card).state_dict()
        write_checkpoint(folder, segmenter_state=state, card=card, state=None, progress={})
        folders.append(folder)
    return folders


@pytest.fixture(scope="module")
def image():
    return np.random.default_rng(0).integers(0, 256, (50, 70), np.uint8)


def test_labels_are_the_largest_probabilities(checkpoints, image):
    model = segmeter.load(checkpoints[0], device="cpu", precision="float32")
    labels, probs = model(image), model.probs(image)
    assert labels.dtype == np.uint8
    assert probs.shape == (3, 50, 70)
    np.testing.assert_array_equal(labels, probs.argmax(0))
    np.testing.assert_allclose(probs.sum(0), 1, rtol=1e-5)
    np.testing.assert_array_equal(model(image[..., None]), labels)
    assert model.spec == SPEC


def test_several_checkpoints_average_their_probabilities(checkpoints, image):
    one, other, both = (
        segmeter.load(which, device="cpu", precision="float32") for which in (*checkpoints, checkpoints)
    )
    mean = (one.probs(image) + other.probs(image)) / 2
    np.testing.assert_allclose(both.probs(image), mean, atol=1e-5)


@pytest.mark.parametrize("tile", [None, 32], ids=["whole", "tiles"])
def test_probabilities_may_be_written_to(checkpoints, image, tile):
    """Those of tiles are put together in an array that is locked for whoever writes it to a file."""
    model = segmeter.load(checkpoints[0], device="cpu", precision="float32", tile=tile, overlap=0)
    assert model.probs(image).flags.writeable


def test_what_is_no_image_is_refused(checkpoints):
    model = segmeter.load(checkpoints[0], device="cpu")
    for given, line in [
        ([[1]], "got list"),
        (np.zeros(3, np.uint8), r"got shape \(3,\)"),
        (np.zeros((40, 40, 3), np.uint8), r"to be \(B, 1, H, W\)"),
        (np.zeros((40, 40), np.int64), "to be uint8, uint16 or float32, got int64.*0 .. 1 in float32"),
        (np.zeros((40, 40)), r"got float64.*astype\(np.float32\)"),
    ]:
        with pytest.raises(SegmeterError, match=line):
            model(given)


def test_wrong_options_are_refused(checkpoints, tmp_path):
    with pytest.raises(SegmeterError, match="tile"):
        segmeter.load(checkpoints[0], tiles=3)
    with pytest.raises(SegmeterError, match="cuda:77"):
        segmeter.load(checkpoints[0], device="cuda:77")
    with pytest.raises(SegmeterError, match="nothing"):
        segmeter.load(tmp_path / "nothing")


def test_images_on_another_scale_are_warned_of_once(checkpoints, image, caplog):
    """As `predict` warns. Mutation seen to fail: nothing watched."""
    model = segmeter.load(checkpoints[0], device="cpu")
    model(image)
    assert not caplog.records
    model = segmeter.load(checkpoints[0], device="cpu")
    model.probs(image.astype(np.float32))
    model(image.astype(np.float32))
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert "The model was trained on another scale or dtype" in record.getMessage()
