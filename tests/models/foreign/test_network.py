"""Networks of others: how images are brought to them, and what comes of their output."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from segmeter.classes import ClassSpec
from segmeter.data.sample import Sample
from segmeter.errors import ConfigError, InputError, SegmeterError
from segmeter.evaluation.predicted import predict_volume
from segmeter.inference.config import InferenceConfig
from segmeter.inference.predictor import Predictor
from segmeter.models.ensemble import merge_classes
from segmeter.models.foreign.config import ForeignConfig, SizeConfig, Source
from segmeter.models.foreign.network import ForeignModel, fit, resize_as_opencv, target_size
from segmeter.models.foreign.opened import Described, open_foreign
from tests.data.crafted import noise
from tests.differential.peers import load
from tests.models.parts import Stub, make_card, make_spec

DATA = ClassSpec(task="multiclass", names=("ground", "thing"), colours=((0, 0, 0),) * 2, ignore_index=255)


def model(call, spec=DATA, **told):
    output = {"kind": "logits", "activation": "softmax", **told.pop("output", {})}
    given = {"channels": 3, "order": "rgb", "mean": [], **told.pop("input", {})}
    config = ForeignConfig(**{"size": {"fit": "any"}, **told}, input=given, output=output)
    described = Described(source=Source("x", "plugin", "x"), config=config, guessed=(), sha256="")
    return ForeignModel(Stub(call), open_foreign(described, spec).card, config)


def run(found, images, **settings):
    predictor = Predictor(found, InferenceConfig(**settings.pop("inference", {})), torch.device("cpu"))
    samples = [Sample(case_id=str(i), image=image, target=None) for i, image in enumerate(images)]
    return list(predictor.predict(samples, **settings))


def test_labels_are_the_mapped_winner_and_probabilities_the_sums():
    image = noise(8, 9)
    logits = torch.randn(1, 3, 8, 9, generator=torch.Generator().manual_seed(0))
    found = model(lambda x: logits, classes=("a", "b", "c"), class_map={"a": "thing", "b": "ground", "c": "thing"})
    (one,) = run(found, [image], probs=True)
    probs = logits[0].softmax(0).numpy()
    assert np.array_equal(one.labels, np.array([1, 0, 1])[probs.argmax(0)])
    np.testing.assert_allclose(one.probs, [probs[1], probs[0] + probs[2]], rtol=1e-5)
    assert (one.probs.argmax(0) != one.labels).any()  # the two rules differ


def test_a_binary_task_takes_the_sum_of_the_object_s_classes():
    logits = torch.randn(1, 3, 4, 5)
    card = replace(make_card(make_spec(2, "binary")), class_map=(0, 1, 1))
    merged = merge_classes(logits, card).sigmoid()
    torch.testing.assert_close(merged[:, 0], logits.softmax(1)[:, 1:].sum(1))


@pytest.mark.parametrize(("order", "channels"), [("rgb", (0, 1, 2)), ("bgr", (2, 1, 0)), ("grey", (0, 0, 0))])
def test_images_are_prepared_by_the_card(order, channels):
    image, seen = noise(5, 6), []
    image = image[..., :1] if order == "grey" else image
    told = {"channels": 3, "order": order, "mean": [0.1, 0.2, 0.3], "std": [0.5, 0.6, 0.7], "scale": 1 / 255}
    run(model(lambda x: seen.append(x) or torch.zeros(1, 2, 5, 6), classes=DATA.names, input=told), [image])
    wanted = (image.astype(np.float64) / 255)[..., list(channels)] - [0.1, 0.2, 0.3]
    np.testing.assert_allclose(seen[0][0].permute(1, 2, 0), wanted / [0.5, 0.6, 0.7], rtol=1e-5, atol=1e-6)


def test_a_factor_without_a_mean_is_a_product_to_the_last_bit():
    """As in transformers."""
    seen, image = [], np.arange(240, dtype=np.uint8).reshape(8, 10, 3)
    found = model(lambda x: seen.append(x) or torch.zeros(1, 2, 8, 10), classes=DATA.names, input={"scale": 1 / 255})
    run(found, [image])
    assert torch.equal(seen[0][0], torch.from_numpy(image).permute(2, 0, 1).float() * (1 / 255))


def test_objects_become_maps_with_the_best_score_on_top():
    masks = torch.zeros(3, 6, 6, dtype=torch.bool)
    masks[0, :4], masks[1, 2:], masks[2] = True, True, True
    parts = (torch.tensor([0.6, 0.9, 0.1]), torch.tensor([0, 0, 0]), masks)
    output = {"kind": "instances", "score": 0.5, "background": "ground"}
    found = model(lambda x: parts, classes=("thing",), output=output)
    masks[0, 0], masks[1, 5] = False, False
    (one,) = run(found, [noise(6, 6)])
    assert one.instances[:, 0].tolist() == [0, 1, 2, 2, 2, 0]
    assert one.labels[:, 0].tolist() == [0, 1, 1, 1, 1, 0]


@pytest.mark.parametrize(
    ("told", "settings", "line"),
    [
        ({"size": {"fit": "fixed:8x8"}}, {"tile": 64}, "inference.tile.*resizes images"),
        ({"size": {"fit": "short:8"}}, {"flips": True}, "inference.flips.*resizes images"),
        ({"output": {"kind": "labels"}}, {"rotations": True}, "inference.rotations.*gives labels"),
        ({"output": {"kind": "labels"}}, None, "gives labels, without probabilities"),
    ],
)
def test_tiles_flips_and_probabilities_need_a_model_of_any_size_with_logits(told, settings, line):
    found = model(lambda x: x[:, 0].int(), classes=DATA.names, **told)
    with pytest.raises(ConfigError, match=line):
        run(found, [noise(8, 8)], inference=settings or {}, probs=not settings)


def test_a_threshold_is_refused_where_the_best_class_decides():
    spec = ClassSpec(task="binary", names=("ground", "thing"), colours=((0, 0, 0),) * 2)
    settings = {"inference": {"threshold": 0.3}}
    with pytest.raises(ConfigError, match=r"inference.threshold.*best class decides each pixel, got 0\.3"):
        run(model(lambda x: x[:, :2], spec=spec, classes=DATA.names), [noise(8, 8)], **settings)
    sigmoid = model(lambda x: x[:, :1], spec=spec, classes=DATA.names, output={"activation": "sigmoid"})
    (one,) = run(sigmoid, [noise(8, 8)], **settings)
    assert one.labels.shape == (8, 8)


def test_objects_of_planes_are_not_taken_for_those_of_a_volume():
    found = model(lambda x: None, classes=("thing",), output={"kind": "instances", "background": "ground"})
    with pytest.raises(ConfigError, match="objects of single planes"):
        predict_volume(Predictor(found, InferenceConfig(), torch.device("cpu")), None)


@pytest.mark.parametrize(
    "told", [{"input": {"dtype": "uint8"}}, {"size": {"fit": "letterbox:16", "backend": "opencv"}}]
)
def test_float32_is_the_usual_precision_and_images_of_another_dtype_than_the_card_or_opencv_takes_are_refused(told):
    found = model(lambda x: x[:, :2], classes=DATA.names, **told)
    assert Predictor(found, InferenceConfig(), torch.device("cpu")).precision == "float32"
    assert run(found, [noise(8, 8)])[0].labels.shape == (8, 8)
    with pytest.raises(InputError, match="to be uint8"):
        run(found, [noise(8, 8).astype(np.uint16)])


@pytest.mark.parametrize(
    ("output", "line"),
    [
        (torch.zeros(1, 5, 8, 8), r"to be \(B, 2, H, W\), floating, got torch.float32 \(1, 5, 8, 8\)"),
        (torch.full((1, 8, 8), 7), "to hold classes 0 to 1"),
    ],
)
def test_an_output_of_other_classes_is_refused(output, line):
    kind = {"kind": "logits" if output.is_floating_point() else "labels"}
    with pytest.raises(SegmeterError, match=line):
        run(model(lambda x: output, classes=DATA.names, output=kind), [noise(8, 8)])


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


def test_large_labels_keep_every_digit_when_they_are_resized():
    _, restore = fit(torch.zeros(1, 3, 4, 6, dtype=torch.uint8), SizeConfig(fit="fixed:2x3"))
    labels = torch.tensor([[[2**24 + 1, 2**31 + 1, 3], [2**40 + 1, 5, 6]]])
    assert torch.equal(restore(labels), labels.repeat_interleave(2, -1).repeat_interleave(2, -2))


def test_opencv_s_resize_is_opencv_s():
    cv2 = load("cv2", "opencv-python-headless")
    image = np.random.default_rng(0).integers(0, 256, (101, 77, 3), dtype=np.uint8)
    for rows, columns in ((33, 25), (160, 122), (50, 38), (202, 154)):
        found = resize_as_opencv(torch.from_numpy(image).permute(2, 0, 1)[None], rows, columns)
        assert np.array_equal(found[0].permute(1, 2, 0).numpy(), cv2.resize(image, (columns, rows)))
