"""An input that is refused changes nothing: afterwards an object gives what a fresh one gives, and says the same."""

import logging
from functools import partial

import numpy as np
import pytest
import torch

import segmeter
from segmeter.errors import SegmeterError
from tests.api.adapters.drawn import SPEC, draw
from tests.differential.peers import quiet

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


def said_of(model, images, caplog):
    caplog.clear()
    labels = [model(image) for image in images]
    return labels, [record.message for record in caplog.records if record.levelno >= logging.WARNING]


def test_a_model_forgets_what_is_no_image(load, caplog):
    """A float64 image was predicted first, and then kept as one whose scale is not known."""
    model, images = load(), [GREY, GREY.astype(np.float32)]  # of the second it is said that its scale is another
    for image, line in NO_IMAGES:
        for call in (model, model.probs):
            with pytest.raises(SegmeterError, match=line) as caught:
                call(image)
            assert len(str(caught.value).splitlines()) == 1
    (labels, said), (wanted, fresh) = (said_of(one, images, caplog) for one in (model, load()))
    np.testing.assert_array_equal(labels, wanted)
    assert said == fresh
    assert len(said) == 1


def counted(metric, call, read):
    """The counts of three batches, of which the second one is refused."""
    target, labels = (torch.from_numpy(one) for one in draw())
    call(metric, labels[:3], target[:3])
    for bad in (labels + 77, labels.float() + 0.5, labels[:, 1:]):
        with pytest.raises(SegmeterError):
            call(metric, bad, target)
    call(metric, labels[3:], target[3:])
    whole = read(metric)
    assert int(whole.sum()) == int((target != SPEC.ignore_index).sum())
    return whole


def test_a_torchmetrics_metric_forgets_them():
    """A call of the metric set its state aside first, so that the refused batch took all others with it."""
    pytest.importorskip("torchmetrics", reason="torchmetrics is not installed: it comes with `make test`")
    with quiet():
        from segmeter.api.adapters.torchmetrics import SegmentationMetric
    for call in (lambda metric, *pair: metric(*pair), lambda metric, *pair: metric.update(*pair)):
        metric = SegmentationMetric(SPEC)
        counted(metric, call, lambda metric: metric.counts)
        assert metric._to_sync, "ranks would no longer be added up"
        assert float(metric.compute()["mean_iou"]) > 0


def test_a_monai_metric_forgets_them():
    pytest.importorskip("monai", reason="MONAI is not installed: it comes with `make test`")
    with quiet():
        from segmeter.api.adapters.monai import SegmentationMetric
    metric = SegmentationMetric(SPEC)
    counted(metric, lambda metric, *pair: metric(*(one[:, None] for one in pair)), lambda metric: metric.get_buffer())


def test_a_refused_evaluation_takes_nothing_along():
    pair = np.array([[0, 0, 1, 1]]), np.array([[0, 1, 1, 1]])
    options = {"classes": ("ground", "cell"), "task": "binary", "measures": ["surface", "partition"]}
    before = segmeter.evaluate([("a", *pair)], **options).summary
    for bad in (("a", pair[0], pair[1] + 7), ("a", pair[0], pair[1] / 2), ("b", pair[0], pair[1][:, 1:])):
        with pytest.raises(SegmeterError):
            segmeter.evaluate([("a", *pair), bad], **options)
    assert segmeter.evaluate([("a", *pair)], **options).summary == before
