"""`segmeter.load`: three lines from a checkpoint to labels, equal to what the predictor gives."""

import numpy as np
import pytest

import segmeter
from segmeter.errors import SegmeterError
from tests.models.parts import make_spec


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
    assert model.spec == make_spec()


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
