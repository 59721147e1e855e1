"""`segmeter.load`: three lines from a checkpoint to the labels that `predict` writes, and images that are refused."""

import logging
import re
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import segmeter
from segmeter.cli.main import main
from segmeter.errors import SegmeterError
from segmeter.export.formats import encode_labels_png
from segmeter.models.checkpoint import write_checkpoint
from tests.models.parts import make_card, make_spec, make_tiny

PAGE = (Path(__file__).parents[2] / "docs" / "python.md").read_text(encoding="utf-8")


def write_network(folder, seed=0, in_channels=1):
    card = make_card(in_channels=in_channels)
    state = make_tiny(seed, card).state_dict()
    write_checkpoint(folder, segmenter_state=state, card=card, state=None, progress={})
    return folder


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    """Two networks of different weights, for grey images."""
    return [write_network(tmp_path_factory.mktemp("checkpoints") / "step", seed) for seed in range(2)]


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


def test_a_model_in_three_lines_gives_the_bytes_of_predict(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (block,) = re.findall(r"^## A model in three lines\n\n((?:    .*\n)+)", PAGE, re.MULTILINE)
    lines = [line.strip() for line in block.splitlines()]
    assert len(lines) == 3
    checkpoint = write_network(Path(lines[1].split('"')[1]), in_channels=3)
    image = np.random.default_rng(0).integers(0, 256, (50, 70, 3), np.uint8)
    names = {"image": image}
    exec("\n".join(lines), names)  # the page's own text
    assert len(np.unique(names["labels"])) > 1
    Image.fromarray(image).save("x.png")
    main(["predict", f"checkpoint={checkpoint}", "input=x.png", "report.html=false", "report.overlays=0"])
    (written,) = Path("runs/predict").glob("*/predictions/labels/x.png")
    assert written.read_bytes() == encode_labels_png(names["labels"], make_spec().colours)


GREY = np.random.default_rng(0).integers(0, 256, (50, 70), np.uint8)
NO_IMAGES = [
    *(
        (GREY.astype(kind), "got .*scale of the training")
        for kind in ("f8", "i8", "f2", "g", "i1", bool, "c8", str, "O")
    ),
    (np.ma.masked_array(GREY, GREY > 9), "got MaskedArray"),
    (GREY.tolist(), "got list"),
    (GREY[0], r"got uint8 \(70,\)"),
    (np.stack([GREY] * 3, -1), r"to be \(B, 1, H, W\)"),
    (GREY[..., None][..., :0], r"got (shape|uint8) \(\d+, \d+, 0\)"),
    (GREY[:0], r"got (shape|uint8) \(0, \d+\)"),
    *((np.full(GREY.shape, value, np.float32), "hold NaN or infinity") for value in (np.nan, np.inf)),
]


@pytest.fixture(params=[{}, {"tile": 32, "overlap": 0, "flips": True}], ids=["whole", "tiles"])
def load(request, checkpoints):
    return partial(segmeter.load, checkpoints[0], device="cpu", precision="float32", **request.param)


def test_a_model_forgets_what_is_no_image(load, caplog):
    """A float64 image was predicted first, and then kept as one whose scale is not known."""

    def said_of(model):
        caplog.clear()
        labels = [model(GREY), model(GREY.astype(np.float32))]  # of the second it is said that its scale is another
        return labels, [record.message for record in caplog.records if record.levelno >= logging.WARNING]

    model = load()
    for image, line in NO_IMAGES:
        for call in (model, model.probs):
            with pytest.raises(SegmeterError, match=line) as caught:
                call(image)
            assert len(str(caught.value).splitlines()) == 1
    (labels, said), (wanted, fresh) = (said_of(one) for one in (model, load()))
    np.testing.assert_array_equal(labels, wanted)
    assert said == fresh
    assert len(said) == 1
