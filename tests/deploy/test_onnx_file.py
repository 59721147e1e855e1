"""The traced program and its ONNX file give the labels of the segmenter for any size."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from segmeter.deploy import onnx_file
from segmeter.deploy.onnx_file import padded_by_indices, trace
from segmeter.errors import ConfigError
from segmeter.models.foreign.onnx_file import open_session
from segmeter.models.segmenter import Segmenter, pad_to_multiple
from tests.models.parts import TINY, Stub, make_card, make_pointwise, make_tiny


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
    pytest.param(make_pointwise().eval(), id="plain"),
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
