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

GREY = np.random.default_rng(0).integers(0, 256, (50, 70), np.uint8)
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


@pytest.fixture(params=[{}, {"tile": 32, "overlap": 0, "flips": True}], ids=["whole", "tiles"])
def load(request, checkpoints):
    return partial(segmeter.load, checkpoints[0], device="cpu", precision="float32", **request.param)


def test_labels_are_the_largest_probabilities_which_may_be_written_to(load):
    """Those of tiles are put together in an array that is locked for whoever writes it to a file."""
    model = load()
    labels, probs = model(GREY), model.probs(GREY)
    assert labels.dtype == np.uint8
    assert probs.shape == (3, 50, 70)
    np.testing.assert_array_equal(labels, probs.argmax(0))
    np.testing.assert_allclose(probs.sum(0), 1, rtol=1e-5)
    np.testing.assert_array_equal(model(GREY[..., None]), labels)
    assert model.spec == make_spec()
    assert probs.flags.writeable


def test_several_checkpoints_average_their_probabilities(checkpoints):
    load = partial(segmeter.load, device="cpu", precision="float32")
    one, other, both = (load(which).probs(GREY) for which in (*checkpoints, checkpoints))
    np.testing.assert_allclose(both, (one + other) / 2, atol=1e-5)


def test_wrong_options_are_refused(checkpoints, tmp_path):
    with pytest.raises(SegmeterError, match="tile"):
        segmeter.load(checkpoints[0], tiles=3)
    with pytest.raises(SegmeterError, match="cuda:77"):
        segmeter.load(checkpoints[0], device="cuda:77")
    with pytest.raises(SegmeterError, match="nothing"):
        segmeter.load(tmp_path / "nothing")


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


def test_a_model_forgets_what_is_no_image_and_warns_of_another_scale_once(load, caplog):
    """A float64 image was predicted first, and then kept as one whose scale is not known."""

    def said_of(model):
        caplog.clear()
        labels = [model(GREY)]
        assert not caplog.records
        labels += [model.probs(GREY.astype(np.float32)), model(GREY.astype(np.float32))]  # which is said once
        return labels, [record.message for record in caplog.records if record.levelno >= logging.WARNING]

    model = load()
    for image, line in NO_IMAGES:
        for call in (model, model.probs):
            with pytest.raises(SegmeterError, match=line) as caught:
                call(image)
            assert len(str(caught.value).splitlines()) == 1
    (labels, said), (wanted, fresh) = (said_of(one) for one in (model, load()))
    for one, other in zip(labels, wanted, strict=True):
        np.testing.assert_array_equal(one, other)
    assert said == fresh
    assert ["The model was trained on another scale or dtype" in line for line in said] == [True]
