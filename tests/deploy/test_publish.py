"""An exported file gives the labels that segmeter gives, but for near-ties, for any batch and size, alone."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

from segmeter.bridge import labels_to_numpy, to_torch
from segmeter.deploy import onnx_file, publish
from segmeter.deploy.onnx_file import LabelModel, padded_by_indices, trace
from segmeter.deploy.publish import compare, describe, export_model
from segmeter.errors import ConfigError, DataError, RunError
from segmeter.inference.config import InferenceConfig
from segmeter.inference.predictor import Predictor
from segmeter.models.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from segmeter.models.config import ModelCard, PspnetConfig
from segmeter.models.foreign.onnx_file import open_session
from segmeter.models.segmenter import Segmenter, pad_to_multiple
from segmeter.models.trained import Checkpoints
from tests.models.parts import TINY, Stub, make_card, make_pointwise, make_spec, make_tiny

# Batch, height and width that were not traced: single pixels, less than the stride, its multiples, one more
SHAPES = [(3, 1, 1), (1, 5, 40), (2, 9, 8), (1, 8, 8), (1, 64, 33), (4, 17, 16)]
TASKS = [("multiclass", 3, 3, "uint8"), ("binary", 2, 1, "uint16"), ("multilabel", 3, 3, "float32")]


@pytest.fixture
def checkpoint_of(tmp_path):
    def write(card: ModelCard, name: str = "step", *, seed: int = 1) -> Checkpoint:
        state = make_tiny(seed, card).state_dict()
        write_checkpoint(tmp_path / name, segmenter_state=state, card=card, state=None, progress={})
        return read_checkpoint(tmp_path / name)

    return write


def images_of(dtype: str = "uint8", channels: int = 3, *, count: int = 2) -> list[tuple[str, np.ndarray]]:
    rng = np.random.default_rng(5)
    full = {"uint8": 255, "uint16": 65535, "float32": 1}[dtype]
    shapes = [(70 + 5 * index, 50 + 3 * index, channels) for index in range(count)]
    return [(f"case{index}", (rng.random(shape) * full).astype(dtype)) for index, shape in enumerate(shapes)]


def logits_of(checkpoint, images: np.ndarray) -> torch.Tensor:
    """Logits by the segmenter as it is trained and evaluated."""
    with torch.inference_mode():
        return checkpoint.load_segmenter()(to_torch(images).permute(0, 3, 1, 2))


def ours(checkpoint, images: np.ndarray, threshold: float) -> np.ndarray:
    spec, logits = checkpoint.card.spec, logits_of(checkpoint, images)
    return labels_to_numpy(logits, task=spec.task, num_classes=spec.num_classes, threshold=threshold)


def check_every_size(run, checkpoint, image: np.ndarray, threshold: float) -> None:
    for batch, height, width in SHAPES:
        images = np.stack([np.roll(image, 7 * index, axis=1)[:height, :width] for index in range(batch)])
        labels, expected = run(images), ours(checkpoint, images, threshold)
        assert labels.dtype == expected.dtype == np.uint8
        np.testing.assert_array_equal(labels, expected, err_msg=str(images.shape))
    assert len(np.unique(ours(checkpoint, image[None], threshold))) > 1  # a constant would be equal too easily


@pytest.mark.parametrize(("task", "num_classes", "channels", "dtype"), TASKS, ids=[task[0] for task in TASKS])
def test_onnx_gives_our_labels_for_every_size(tmp_path: Path, checkpoint_of, task, num_classes, channels, dtype):
    """For sizes that were not traced, by the engine alone, with the card inside."""
    checkpoint = checkpoint_of(make_card(make_spec(num_classes, task), in_channels=channels))
    cases = images_of(dtype, channels)
    threshold = float(logits_of(checkpoint, cases[0][1][None]).median().sigmoid())  # of an untrained network
    done = export_model(Checkpoints((checkpoint,)), tmp_path, images=cases, threshold=threshold)
    assert done.agreement.cases == ("case0", "case1")
    onnx.checker.check_model(onnx.load(done.path), full_check=True)
    session = onnxruntime.InferenceSession(done.path, providers=["CPUExecutionProvider"])
    (taken,), (given,) = session.get_inputs(), session.get_outputs()
    planes = [num_classes] if task == "multilabel" else []
    assert (taken.name, taken.shape) == ("images", ["batch", "height", "width", channels])
    assert (given.name, given.shape, given.type) == ("labels", ["batch", *planes, "height", "width"], "tensor(uint8)")
    check_every_size(lambda images: session.run(None, {"images": images})[0], checkpoint, cases[0][1], threshold)
    facts = json.loads(session.get_modelmeta().custom_metadata_map["segmeter"])
    assert ModelCard.from_dict(facts["card"]) == checkpoint.card
    assert (facts["checkpoint_sha256"], facts["averaged"]) == (checkpoint.sha256, None)
    axes, planes = ["batch", "height", "width", "channel"], ["class"] if planes else []
    assert facts["input"] == {"name": "images", "axes": axes, "dtype": dtype, "least_size": done.least}
    assert facts["output"] == {"name": "labels", "axes": ["batch", *planes, "height", "width"], "dtype": "uint8"}
    assert facts["threshold"] == (None if task == "multiclass" else threshold)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["comparison.json", "model.onnx", "step"]


@pytest.mark.parametrize(("task", "num_classes"), [("multiclass", 3), ("binary", 2)])
def test_several_checkpoints_are_averaged_inside_the_file(tmp_path: Path, checkpoint_of, task, num_classes):
    """Of other strides and normalisations, against the mean of the probabilities of each. Binary ones need no file."""
    card = make_card(make_spec(num_classes, task))
    deeper = TINY.replace(depth=4, decoder_channels=(8, 8, 4, 4))
    members = (checkpoint_of(card), checkpoint_of(replace(card, model=dict(deeper), mean=(0.1, 0.2, 0.3)), "b", seed=2))
    cases, checkpoints = images_of(), Checkpoints(members)
    threshold = 0.5 if task == "multiclass" else float(np.median(mean_probs(members, cases[0][1][None])))
    model, session = LabelModel(checkpoints.load(torch.device("cpu")), threshold=threshold).eval(), None
    if task == "multiclass":
        done = export_model(checkpoints, tmp_path, images=cases, threshold=threshold)
        assert done.agreement.differing == 0
        session = onnxruntime.InferenceSession(done.path, providers=["CPUExecutionProvider"])
        facts = json.loads(session.get_modelmeta().custom_metadata_map["segmeter"])
        assert facts["averaged"] == [member.sha256 for member in members]
    for height, width in [(1, 1), (17, 40), (64, 50)]:
        part = cases[0][1][None, :height, :width]
        mean = mean_probs(members, part)
        expected = mean.argmax(1) if task == "multiclass" else mean[:, 0] > threshold
        labels = session.run(None, {"images": part})[0] if session else model(torch.from_numpy(part)).numpy()
        np.testing.assert_array_equal(labels, expected)


def mean_probs(checkpoints, images: np.ndarray) -> np.ndarray:
    single = [logits_of(checkpoint, images).double() for checkpoint in checkpoints]
    return np.mean([(each.softmax(1) if each.shape[1] > 1 else each.sigmoid()).numpy() for each in single], axis=0)


def test_a_network_that_pools_to_fixed_cells_is_refused_by_name(tmp_path: Path, checkpoint_of):
    checkpoint = checkpoint_of(make_card(model=PspnetConfig(encoder="tu-test_resnet", weights=None)))
    with pytest.raises(ConfigError, match=r"pools to 2 x 2 cells, .* ONNX can't do so .* Use a network"):
        export_model(Checkpoints((checkpoint,)), tmp_path, images=images_of())


def test_other_labels_than_ours_are_refused_and_nothing_is_published(tmp_path: Path, checkpoint_of, monkeypatch):
    checkpoint = checkpoint_of(make_card())
    monkeypatch.setattr(onnx_file, "trace", lambda segmenter, **settings: (None, 1))
    monkeypatch.setattr(onnx_file, "encode", lambda program, facts: b"a model")
    zeros = SimpleNamespace(run=lambda names, given: [np.zeros(given["images"].shape[:3], np.uint8)])
    monkeypatch.setattr(publish, "open_session", lambda content: zeros)
    with pytest.raises(RunError, match=r"pixels of case 'case0' have other labels .* Nothing was written"):
        export_model(Checkpoints((checkpoint,)), tmp_path, images=images_of())
    assert [path.name for path in tmp_path.iterdir()] == ["step"]


@pytest.mark.parametrize(("images", "said"), [
    ([*images_of(), ("deep", images_of("uint16")[0][1])], r"of one dtype.*uint16 \(case 'deep'\), uint8"),
    ([], r"at least one, and of one dtype.* got none"),
], ids=["two dtypes", "none"])  # fmt: skip
def test_images_of_two_dtypes_or_none_are_refused(images, said, tmp_path: Path, checkpoint_of):
    with pytest.raises(DataError, match=said):
        export_model(Checkpoints((checkpoint_of(make_card()),)), tmp_path, images=images)


def test_missing_packages_are_named(tmp_path: Path, checkpoint_of, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(DataError, match=r"`onnxscript` to be installed .*segmeter\[onnx\]"):
        export_model(Checkpoints((checkpoint_of(make_card()),)), tmp_path, images=[])


def test_a_file_says_how_large_images_are_at_least_and_labels_that_uint8_can_not_hold(checkpoint_of):
    checkpoint = Checkpoints((checkpoint_of(make_card(make_spec(300))),))
    facts = describe(checkpoint, threshold=0.4, dtype="uint8", least=17)
    assert (facts["input"]["least_size"], facts["output"]["dtype"]) == (17, "uint16")


def predictor_of(logits: torch.Tensor, task: str = "multiclass") -> Predictor:
    """A predictor that gives these logits (1, K, H, W) for any image of their size."""
    classes = 2 if task == "binary" else logits.shape[1]
    stub = Segmenter(Stub(lambda image: logits[..., : image.shape[2], : image.shape[3]].expand(len(image), -1, -1, -1)),
                     make_card(make_spec(classes, task)))  # fmt: skip
    return Predictor(stub, InferenceConfig(precision="float32"), torch.device("cpu"))


def image(side: int) -> list[tuple[str, np.ndarray]]:
    return [("a", np.zeros((side, side, 3), np.uint8))]


def turn_a_pixel(images):
    labels = np.zeros(images.shape[:3], np.uint8)
    labels[:, 0, 0] = 1
    return labels


def test_a_near_tie_may_be_decided_otherwise_and_is_counted_and_anything_else_is_refused():
    """200 x 200 and, as a batch of two, 133 x 133: 40000 + 2 * 17689 pixels, one of which (once, twice) differs."""
    logits = torch.zeros(1, 2, 200, 200)
    logits[:, 0] = 4.0
    logits[:, 1, 0, 0] = 4.0 - 2e-3  # 2e-3 of 4: 5e-4
    found = compare(turn_a_pixel, predictor_of(logits), image(200))
    assert (found.pixels, found.differing) == (40000 + 2 * 17689, 3)
    assert found.widest == pytest.approx(5e-4, rel=1e-3)
    logits[:, 1, 0, 0] = 4.0 - 5e-3  # 1.25e-3 of 4
    with pytest.raises(RunError, match=r"1 of 40000 pixels of case 'a' .* no near-ties .* 0\.0013"):
        compare(turn_a_pixel, predictor_of(logits), image(200))


@pytest.mark.parametrize("task", ["binary", "multilabel"])
def test_thresholded_labels_are_held_against_the_logit_of_the_threshold(task):
    logits = torch.full((1, 1 if task == "binary" else 3, 200, 200), -3.0)
    logits[:, 0, 3, 4] = 9e-4  # present, by less than a near-tie; the model says absent

    def model(images):
        shape = images.shape[:3] if task == "binary" else (len(images), 3, *images.shape[1:3])
        return np.zeros(shape, np.uint8)

    assert compare(model, predictor_of(logits, task), image(200)).differing == 3
    logits[:, 0, 3, 4] = 1.1e-3
    with pytest.raises(RunError, match="no near-ties"):
        compare(model, predictor_of(logits, task), image(200))


def failing(images):
    raise ValueError("index 12\nout of range")


@pytest.mark.parametrize(("model", "message"), [
    (turn_a_pixel, "3 of 6962 pixels have other labels than segmeter's, more than 1 in 10,000"),
    (lambda images: np.zeros(images.shape[:3], int), r"uint8 \(1, 60, 60\) for case 'a', got int64 \(1, 60, 60\)"),
    (failing, r"can't label case 'a' \(ValueError: index 12 out of range\)"),
], ids=["many near-ties", "another dtype", "failing"])  # fmt: skip
def test_a_model_of_other_labels_is_refused_in_one_line(model, message):
    """All logits are equal: the first class wins, and every pixel is a tie."""
    with pytest.raises(RunError, match=message):
        compare(model, predictor_of(torch.zeros(1, 2, 60, 60)), image(60))


@pytest.fixture(scope="module")
def encoded():
    program, _ = trace(make_pointwise().eval(), threshold=0.5, dtype="uint8")
    return onnx_file.encode(program, {"name": "é"})


def test_the_file_holds_no_path_of_the_machine_that_wrote_it(encoded):
    for source in (torch.__file__, onnx_file.__file__):
        assert str(Path(source).parents[1]).encode() not in encoded
    assert b"stack_trace" not in encoded


def test_the_file_holds_its_facts_and_names_its_axes(encoded):
    onnx = pytest.importorskip("onnx")
    model = onnx.load_from_string(encoded)
    assert {entry.key: json.loads(entry.value) for entry in model.metadata_props}["segmeter"] == {"name": "é"}
    shape = model.graph.input[0].type.tensor_type.shape.dim
    assert [axis.dim_param or axis.dim_value for axis in shape] == ["batch", "height", "width", 3]
    assert [axis.dim_param for axis in model.graph.output[0].type.tensor_type.shape.dim] == ["batch", "height", "width"]


@pytest.mark.parametrize("segmenter", [
    pytest.param(make_pointwise(downsample=2).eval(), id="downsample"),
    pytest.param(make_tiny(card=make_card(model=TINY.replace(downsample=2, logits_stride=2))), id="logits_stride"),
])  # fmt: skip
def test_it_gives_the_labels_of_the_segmenter_for_any_size_also_where_logits_are_enlarged(segmenter):
    session = open_session(onnx_file.encode(trace(segmenter, threshold=0.5, dtype="uint8")[0], {}))
    for shape in [(1, 1, 1), (2, 9, 5), (3, 40, 33)]:
        images = np.random.default_rng(1).integers(0, 256, (*shape, 3), dtype=np.uint8)
        with torch.no_grad():
            expected = segmenter(torch.from_numpy(images).permute(0, 3, 1, 2)).argmax(1).numpy()
        (labels,) = session.run(None, {"images": images})
        assert labels.dtype == np.uint8
        np.testing.assert_array_equal(labels, expected, err_msg=str(shape))


def test_what_cannot_be_traced_or_written_as_onnx_is_refused_in_one_line():
    asking = Segmenter(Stub(lambda image: image if image.sum() > 0 else -image), make_card()).eval()
    with pytest.raises(ConfigError, match=r"the network 'unet' can't be traced for images of any size"):
        trace(asking, threshold=0.5, dtype="uint8")
    program = SimpleNamespace(graph=SimpleNamespace(nodes=[]))
    with pytest.raises(ConfigError, match=r"^export: this network can't be written as ONNX \(.*\)\. Use a network.*$"):
        onnx_file.encode(program, {})


def test_its_threads_sleep_while_they_wait(encoded):
    options = open_session(encoded).get_session_options()
    assert options.get_session_config_entry("session.intra_op.allow_spinning") == "0"


@pytest.mark.parametrize("least", [1, 40])
@pytest.mark.parametrize("size", [(1, 1), (5, 40), (16, 17), (17, 31), (32, 32), (3, 100), (100, 3)], ids=str)
def test_padding_by_indices_is_the_padding_of_training(size, least):
    segmenter = make_pointwise()
    segmenter.size_multiple, segmenter.size_least = 16, least
    images = torch.rand(2, *size, 3)
    padded = padded_by_indices(segmenter, images).permute(0, 3, 1, 2)
    assert torch.equal(padded, pad_to_multiple(images.permute(0, 3, 1, 2), multiple=16, least=least))


def test_a_network_that_tells_maps_of_one_pixel_apart_takes_images_larger_than_its_stride():
    network = Stub(lambda image: image[:, :3] if image.shape[2] > 16 else image[:, :3] * 2)
    network.size_multiple = 16
    assert trace(Segmenter(network, make_card()).eval(), threshold=0.5, dtype="uint8")[1] == 17
