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


def save(
    path: Path, nodes: list[Any], outputs: dict[str, tuple[int, list[Any]]], constants: dict[str, Any], **told: Any
) -> str:
    """A graph of images (1, 3, H, W), or of told["size"], with told["metadata"]."""
    make = onnx.helper
    size = told.get("size", ["h", "w"])
    graph = make.make_graph(
        nodes,
        "g",
        [make.make_tensor_value_info("images", FLOAT, [1, 3, *size])],
        [make.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in outputs.items()],
        [onnx.numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    model = make.make_model(graph, opset_imports=[make.make_opsetid("", 17)], ir_version=9)
    for key, value in told.get("metadata", {}).items():
        model.metadata_props.add(key=key, value=str(value))
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


@pytest.mark.parametrize("chosen", [True, False], ids=["end2end", "candidates"])
def test_objects_of_ultralytics_become_instances(tmp_path, chosen):
    boxes = [[8.0, 8.0, 40.0, 40.0], [9.0, 9.0, 41.0, 41.0], [48.0, 0.0, 64.0, 64.0]]
    scores, numbers, weights = [0.9, 0.8, 0.6], [1, 1, 0], [1.0, 1.0, -1.0]
    if chosen:  # the second one would have been dropped by the graph
        rows = np.array([[*b, s, n, w] for b, s, n, w in zip(boxes, scores, numbers, weights, strict=True)])[[0, 2]]
    else:
        centred = [[(a + c) / 2, (b + d) / 2, c - a, d - b] for a, b, c, d in boxes]
        own = np.eye(2)[numbers] * np.array(scores)[:, None]
        rows = np.concatenate([centred, own, np.array(weights)[:, None]], 1).T
    prototypes = np.ones((1, 1, 16, 16), np.float32)
    prototypes[..., 8:] = -1  # the object of class 1 ends at the middle, that of class 0 lies to the right
    nodes = [
        onnx.helper.make_node("ReduceMax", ["images"], ["peak"], keepdims=0),
        onnx.helper.make_node("Mul", ["peak", "zero"], ["none"]),
        onnx.helper.make_node("Add", ["rows", "none"], ["output0"]),
        onnx.helper.make_node("Add", ["protos", "none"], ["output1"]),
    ]
    constants = {"rows": rows[None].astype(np.float32), "protos": prototypes, "zero": np.float32(0)}
    outputs = {"output0": (FLOAT, [1, *rows.shape]), "output1": (FLOAT, [1, 1, 16, 16])}
    metadata = {"task": "segment", "names": {0: "bus", 1: "car"}, "imgsz": [64, 64], "stride": 32, "channels": 3}
    metadata |= {"args": {"dynamic": False, "nms": False}, "end2end": chosen}
    path = save(tmp_path / "m.onnx", nodes, outputs, constants, size=[64, 64], metadata=metadata)
    names = {"data_classes": ("none", "car", "bus"), "output": {"background": "none"}}
    (one,) = predict(predictor(path, class_map={"car": "car"}, **names), [np.full((64, 64, 3), 9, np.uint8)])
    wanted = np.zeros((64, 64), int)
    wanted[8:40, 8:32], wanted[:, 48:] = 1, 2
    assert np.array_equal(one.labels, wanted)
    assert np.array_equal(one.instances, np.where(wanted == 1, 2, np.where(wanted == 2, 1, 0)))


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
    path = save(tmp_path / "m.onnx", [CONV], LOGITS, KERNEL, metadata=metadata)
    with pytest.raises(CheckpointError, match=r"m\.onnx: its metadata can't be read \(\w+: "):
        predictor(path)


def test_candidates_are_chosen_by_the_arithmetic_of_ultralytics():
    """Mutation seen to fail: boxes that are not moved apart by class, whose overlaps have other last bits."""
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
