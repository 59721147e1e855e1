"""An exported file gives the labels that segmeter gives, for any batch and size, run by its own engine alone."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

from segmeter.bridge import labels_to_numpy, to_torch
from segmeter.deploy import onnx_file
from segmeter.deploy.publish import describe, export_model
from segmeter.errors import ConfigError, DataError, RunError
from segmeter.models.config import ModelCard, PspnetConfig
from segmeter.models.trained import Checkpoints
from tests.models.parts import TINY, make_card, make_spec

# Batch, height and width that were not traced: single pixels, less than the stride, its multiples, one more
SHAPES = [(3, 1, 1), (1, 5, 40), (2, 9, 8), (1, 8, 8), (1, 64, 33), (4, 17, 16)]
TASKS = [("multiclass", 3, 3, "uint8"), ("binary", 2, 1, "uint16"), ("multilabel", 3, 3, "float32")]


def logits_of(checkpoint, images: np.ndarray) -> torch.Tensor:
    """Logits by the segmenter as it is trained and evaluated."""
    with torch.inference_mode():
        return checkpoint.load_segmenter()(to_torch(images).permute(0, 3, 1, 2))


def ours(checkpoint, images: np.ndarray, threshold: float) -> np.ndarray:
    spec, logits = checkpoint.card.spec, logits_of(checkpoint, images)
    return labels_to_numpy(logits, task=spec.task, num_classes=spec.num_classes, threshold=threshold)


def check_every_size(run, checkpoint, draw, dtype: str, threshold: float) -> None:
    channels = checkpoint.card.in_channels
    (_, image), *_ = draw(dtype, channels, count=1)
    for batch, height, width in SHAPES:
        images = np.stack([np.roll(image, 7 * index, axis=1)[:height, :width] for index in range(batch)])
        labels, expected = run(images), ours(checkpoint, images, threshold)
        assert labels.dtype == expected.dtype == np.uint8
        np.testing.assert_array_equal(labels, expected, err_msg=str(images.shape))
    assert len(np.unique(ours(checkpoint, image[None], threshold))) > 1  # a constant would be equal too easily


@pytest.mark.parametrize(("task", "num_classes", "channels", "dtype"), TASKS, ids=[task[0] for task in TASKS])
def test_onnx_gives_our_labels_for_every_size(
    tmp_path: Path, checkpoint_of, images_of, task, num_classes, channels, dtype
):
    """For sizes that were not traced, by the engine alone, with the card inside."""
    checkpoint = checkpoint_of(make_card(make_spec(num_classes, task), in_channels=channels))
    cases = images_of(dtype, channels)
    threshold = float(logits_of(checkpoint, cases[0][1][None]).median().sigmoid())  # of an untrained network
    done = export_model(checkpoint, tmp_path, images=cases, threshold=threshold)
    assert done.agreement.cases == ("case0", "case1")
    onnx.checker.check_model(onnx.load(done.path), full_check=True)
    session = onnxruntime.InferenceSession(done.path, providers=["CPUExecutionProvider"])
    (taken,), (given,) = session.get_inputs(), session.get_outputs()
    planes = [num_classes] if task == "multilabel" else []
    assert (taken.name, taken.shape) == ("images", ["batch", "height", "width", channels])
    assert (given.name, given.shape, given.type) == ("labels", ["batch", *planes, "height", "width"], "tensor(uint8)")
    check_every_size(lambda images: session.run(None, {"images": images})[0], checkpoint, images_of, dtype, threshold)
    facts = json.loads(session.get_modelmeta().custom_metadata_map["segmeter"])
    assert ModelCard.from_dict(facts["card"]) == checkpoint.card
    assert facts["checkpoint_sha256"] == checkpoint.sha256
    assert (facts["input"]["dtype"], facts["threshold"]) == (dtype, None if task == "multiclass" else threshold)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["comparison.json", "model.onnx", "step"]


@pytest.mark.parametrize(("task", "num_classes"), [("multiclass", 3), ("binary", 2)])
def test_several_checkpoints_are_averaged_inside_the_file(tmp_path: Path, checkpoint_of, images_of, task, num_classes):
    """Of other strides and normalisations; held against the mean of the probabilities that each model gives alone.

    Mutation seen to fail: the logits averaged instead of the probabilities.
    """
    card = make_card(make_spec(num_classes, task))
    deeper = TINY.replace(depth=4, decoder_channels=(8, 8, 4, 4))
    members = (checkpoint_of(card), checkpoint_of(replace(card, model=dict(deeper), mean=(0.1, 0.2, 0.3)), "b", seed=2))
    cases = images_of("uint8", 3)
    mean = mean_probs(members, cases[0][1][None])
    threshold = 0.5 if task == "multiclass" else float(np.median(mean))
    done = export_model(Checkpoints(members), tmp_path, images=cases, threshold=threshold)
    assert done.agreement.differing == 0
    session = onnxruntime.InferenceSession(done.path, providers=["CPUExecutionProvider"])
    for height, width in [(1, 1), (17, 40), (64, 50)]:
        part = cases[0][1][None, :height, :width]
        mean = mean_probs(members, part)
        expected = mean.argmax(1) if task == "multiclass" else mean[:, 0] > threshold
        np.testing.assert_array_equal(session.run(None, {"images": part})[0], expected)
    facts = json.loads(session.get_modelmeta().custom_metadata_map["segmeter"])
    assert facts["averaged"] == [member.sha256 for member in members]


def mean_probs(checkpoints, images: np.ndarray) -> np.ndarray:
    single = [logits_of(checkpoint, images).double() for checkpoint in checkpoints]
    return np.mean([(each.softmax(1) if each.shape[1] > 1 else each.sigmoid()).numpy() for each in single], axis=0)


def test_a_network_that_pools_to_fixed_cells_is_refused_by_name(tmp_path: Path, checkpoint_of, images_of):
    checkpoint = checkpoint_of(make_card(model=PspnetConfig(encoder="tu-test_resnet", weights=None)))
    with pytest.raises(ConfigError, match=r"pools to 2 x 2 cells, .* ONNX can't do so .* Use a network"):
        export_model(checkpoint, tmp_path, images=images_of("uint8", 3))


def test_other_labels_than_ours_are_refused_and_nothing_is_published(
    tmp_path: Path, checkpoint_of, images_of, monkeypatch
):
    checkpoint = checkpoint_of(make_card())
    monkeypatch.setattr(onnx_file, "trace", lambda segmenter, **settings: (None, 1))
    monkeypatch.setattr(onnx_file, "encode", lambda program, facts: b"a model")
    monkeypatch.setattr(onnx_file, "run_on_cpu", lambda content: lambda images: np.zeros(images.shape[:3], np.uint8))
    with pytest.raises(RunError, match=r"pixels of case 'case0' have other labels .* Nothing was written"):
        export_model(checkpoint, tmp_path, images=images_of("uint8", 3))
    assert [path.name for path in tmp_path.iterdir()] == ["step"]


def test_images_of_two_dtypes_or_none_are_refused(tmp_path: Path, checkpoint_of, images_of):
    checkpoint = checkpoint_of(make_card())
    mixed = [*images_of("uint8", 3), ("deep", images_of("uint16", 3)[0][1])]
    with pytest.raises(DataError, match=r"one dtype.*uint16 \(case 'deep'\), uint8"):
        export_model(checkpoint, tmp_path, images=mixed)
    with pytest.raises(DataError, match="at least one image"):
        export_model(checkpoint, tmp_path, images=[])


@pytest.mark.parametrize(
    ("task", "classes", "threshold", "dtype"),
    [
        ("multiclass", 3, None, "uint8"),
        ("multiclass", 300, None, "uint16"),
        ("binary", 2, 0.4, "uint8"),
        ("multilabel", 3, 0.4, "uint8"),
    ],
)
def test_a_file_says_what_goes_in_and_what_comes_out(checkpoint_of, task, classes, threshold, dtype):
    checkpoint = Checkpoints((checkpoint_of(make_card(make_spec(classes, task))),))
    facts = describe(checkpoint, threshold=0.4, dtype="uint8", least=17)
    json.dumps(facts)
    axes = ["batch", "height", "width", "channel"]
    assert facts["input"] == {"name": "images", "axes": axes, "dtype": "uint8", "least_size": 17}
    axes = ["batch", *(["class"] if task == "multilabel" else []), "height", "width"]
    assert facts["output"] == {"name": "labels", "axes": axes, "dtype": dtype}
    assert facts["threshold"] == threshold
    assert facts["checkpoint_sha256"] == checkpoint.sha256
    assert facts["averaged"] is None
    assert facts["card"] == checkpoint.card.to_dict()
