from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torchvision.ops import box_convert, nms

from segmeter.errors import CheckpointError, ConfigError
from segmeter.models.foreign.config import ForeignConfig
from segmeter.models.foreign.onnx_file import decode_objects

from .parts import CLASSES, images, predict, predictor

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
WEIGHTS = np.random.default_rng(2).normal(size=(5, 3)).astype(np.float32)
FLOAT = onnx.TensorProto.FLOAT


def save(path: Path, nodes: list[Any], outputs: Any, constants: dict[str, Any], **metadata: str) -> str:
    """A graph of images (1, 3, H, W)."""
    make = onnx.helper
    graph = make.make_graph(
        nodes,
        "g",
        [make.make_tensor_value_info("images", FLOAT, [1, 3, "h", "w"])],
        [make.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in outputs.items()],
        [onnx.numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    model = make.make_model(graph, opset_imports=[make.make_opsetid("", 17)], ir_version=9)
    for key, value in metadata.items():
        model.metadata_props.add(key=key, value=value)
    onnx.save(model, path)
    return str(path)


CONV = onnx.helper.make_node("Conv", ["images", "w"], ["logits"])
KERNEL = {"w": WEIGHTS[:, :, None, None]}
LOGITS = {"logits": (FLOAT, [1, 5, "h", "w"])}
PLAIN = {"classes": CLASSES, "input": {"mean": [0.5] * 3, "std": [0.25] * 3}}


def test_a_plain_file_gives_the_winners_of_its_logits_and_is_asked_for_what_it_does_not_say(tmp_path):
    path = save(tmp_path / "m.onnx", [CONV], LOGITS, KERNEL)
    for image, (found,) in ((image, predict(predictor(path, **PLAIN), [image])) for image in images(2)):
        wanted = (((image / 255 - 0.5) / 0.25) @ WEIGHTS.T.astype(np.float64)).argmax(-1)
        assert (found.labels == wanted).mean() > 0.9999
    with pytest.raises(ConfigError, match=r"nothing tells model.classes, model.input.mean"):
        predictor(path)


@pytest.mark.parametrize("where", ["weights", "branch"])
def test_weights_outside_the_folder_are_refused(tmp_path, where):
    make = onnx.helper
    inner = make.make_graph([], "inner", [], [make.make_tensor_value_info("w", FLOAT, [5, 3, 1, 1])])
    inner.initializer.append(onnx.numpy_helper.from_array(KERNEL["w"], "w"))
    branch = make.make_node("If", ["yes"], ["w"], then_branch=inner, else_branch=inner)
    nodes, constants = ([CONV], KERNEL) if where == "weights" else ([branch, CONV], {"yes": np.array(True)})
    path = save(tmp_path / "m.onnx", nodes, LOGITS, constants)
    model = onnx.load(path)
    graph = model.graph if where == "weights" else model.graph.node[0].attribute[0].g
    tensor = graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="../secret.bin")
    Path(path).write_bytes(model.SerializeToString())
    (tmp_path.parent / "secret.bin").write_bytes(WEIGHTS.tobytes())
    with pytest.raises(CheckpointError, match=r"keeps weights in ../secret.bin, which is not a file of its folder"):
        predictor(path, **PLAIN)


def test_an_image_that_the_file_can_t_take_is_one_line(tmp_path):
    fixed = onnx.helper.make_node("Add", ["logits", "one"], ["sum"])
    one = {"one": np.ones((1, 1, 48, 48), np.float32)}
    path = save(tmp_path / "m.onnx", [CONV, fixed], {"sum": LOGITS["logits"]}, KERNEL | one)
    line = r"m.onnx: can't run on \(1, 3, 97, 131\) \(.*Set model.size"
    with pytest.raises(ConfigError, match=line) as caught:
        predict(predictor(path, **PLAIN), images(1))
    assert "\n" not in str(caught.value)


def test_a_damaged_file_is_one_line(tmp_path):
    (tmp_path / "m.onnx").write_bytes(b"not a graph")
    with pytest.raises(CheckpointError, match="no ONNX file"):
        predictor(str(tmp_path / "m.onnx"), **PLAIN)


@pytest.mark.parametrize(
    "metadata",
    [{"segmeter": "{"}, {"segmeter": "{}"}, {"task": "semantic", "names": "{0: ", "imgsz": "[64, 64]"}],
    ids=["no JSON", "no card", "no Python value"],
)
def test_metadata_that_cannot_be_read_is_one_line(tmp_path, metadata):
    path = save(tmp_path / "m.onnx", [CONV], LOGITS, KERNEL, **metadata)
    with pytest.raises(CheckpointError, match=r"m\.onnx: its metadata can't be read \(\w+: "):
        predictor(path)


def test_candidates_are_chosen_by_the_arithmetic_of_ultralytics():
    random = torch.Generator().manual_seed(0)
    drawn = torch.rand(2000, 5, generator=random)
    centred, scores = drawn[:, :4] * torch.tensor([200, 200, 60, 60]) + torch.tensor([0, 0, 20, 20]), drawn[:, 4]
    own = torch.zeros(2000, 80)
    own[:, 79] = scores
    rows = torch.cat((centred, own, torch.ones(2000, 1)), 1).T[None]
    config = ForeignConfig(classes=tuple(map(str, range(80))), output={"score": 0.0, "overlap": 0.3})
    found, _, _ = decode_objects([rows, torch.ones(1, 1, 4, 4)], (16, 16), config)
    apart = box_convert(centred, "cxcywh", "xyxy") + 79 * 7680
    assert torch.equal(found, scores[nms(apart, scores, 0.3)[:300]])
