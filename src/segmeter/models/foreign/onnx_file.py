"""Runs ONNX files: plain ones, those that `segmeter export` wrote, and ultralytics' of two tasks.

The metadata of ultralytics that is read here: `names`, `imgsz`, `task`, `stride`, `channels`, `end2end` and `args`
(ultralytics 8.4, engine/exporter.py). Axes: N candidates, K classes, M prototypes of masks.
"""

import json
from ast import literal_eval
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from segmeter.bridge.arrays import to_numpy, to_torch
from segmeter.checks import expected
from segmeter.data.files.reader_process import need
from segmeter.errors import CheckpointError, ConfigError, refusing
from segmeter.models.foreign.config import Facts, ForeignConfig, Source
from segmeter.models.foreign.network import resize
from segmeter.models.weights import find_placeholder, real_path
from segmeter.remote import fetch

_OURS = "segmeter"  # the key of our metadata
# As in ultralytics: candidates that are compared, objects that are kept, pixels that move boxes of two classes apart
_MOST, _OBJECTS, _APART = 30_000, 300, 7680.0


def describe(source: Source, told: ForeignConfig) -> Facts:
    """Read the card of an ONNX file from its metadata and graph.

    Raises
    ------
    CheckpointError
        The file is damaged, or keeps weights outside its folder.
    ConfigError
        The file has several inputs, or not the output that is chosen.
    DataError
        onnx or onnxruntime is not installed.
    """
    onnx, _ = (need(name, "onnx", "ONNX files") for name in ("onnx", "onnxruntime"))
    path = fetch(source.place)
    real_path(path)  # it is there
    try:
        model = onnx.load(path, load_external_data=False)
    except Exception as error:  # protobuf's own
        fault = find_placeholder(path) or "is no ONNX file, or is damaged or truncated. Fetch it again."
        raise CheckpointError(f"{path}: {fault}") from error
    outside = {entry.value for tensor in _tensors(model) for entry in tensor.external_data if entry.key == "location"}
    beside = {name: path.parent / name for name in sorted(outside)}
    for name, file in beside.items():
        if file.resolve().parent != path.parent.resolve() or not file.is_file():
            text = f"keeps weights in {name}, which is not a file of its folder"
            raise CheckpointError(f"{path}: {text}. Save it as one file.")
    metadata = {entry.key: entry.value for entry in model.metadata_props}
    values, guesses = _of_graph(model.graph, told)
    with refusing(CheckpointError, f"{path}: its metadata can't be read", "Export it again."):
        if _OURS in metadata:
            values |= _ours(json.loads(metadata[_OURS]))
        elif metadata.get("task") and "names" in metadata:
            values, guesses = _ultralytics(metadata, values["output"]), {}
    return Facts(values, (path, *beside.values()), guesses)


def open_session(model: str | bytes) -> Any:
    """Open an ONNX file, or its content, in onnxruntime on the CPU."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = torch.get_num_threads()
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # as in threads.py
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def load(source: Source, config: ForeignConfig) -> Callable[[Tensor], Any]:
    """Open the file as a function of images; objects of ultralytics' models are decoded."""
    path = fetch(source.place)
    with refusing(CheckpointError, f"{path}: onnxruntime can't open it"):
        session = open_session(str(path))
    taken, given = session.get_inputs()[0], [each.name for each in session.get_outputs()]
    objects = config.output.kind == "instances"
    names = given if objects else [config.output.name or given[0]]
    dtype = {"tensor(uint8)": np.uint8, "tensor(float16)": np.float16}.get(taken.type, np.float32)

    def run(image: Tensor) -> Any:
        values = np.ascontiguousarray(to_numpy(image), dtype)
        with refusing(ConfigError, f"{path}: can't run on {values.shape}", "Set model.size, or export it again."):
            arrays = session.run(names, {taken.name: values})
        found = [to_torch(each, device=image.device) for each in arrays]
        return decode_objects(found, image.shape[-2:], config) if objects else found[0]

    return run


def decode_objects(found: list[Tensor], size: tuple[int, ...], config: ForeignConfig) -> tuple[Tensor, Tensor, Tensor]:
    """Compute scores (n,), classes (n,) and masks (n, *size) from the outputs of ultralytics' task "segment".

    These are (1, 4 + K + M, N) boxes, scores and coefficients, or (1, N, 6 + M) boxes that are chosen already; and
    prototypes (1, M, h, w).
    """
    rows, prototypes, classes = found[0][0].float(), found[1][0].float(), len(config.classes or ())
    count, score = len(prototypes), config.output.score or 0.0
    if rows.shape[1] == 6 + count:
        rows = rows[rows[:, 4] > score][:_OBJECTS]
    elif rows.shape[0] == 4 + classes + count:
        rows = _chosen(rows.T, classes, score, config.output.overlap or 1.0)
    else:
        rule = f"to be ({4 + classes + count}, N) or (N, {6 + count}) for {classes} classes"
        raise ConfigError(expected("model", "output", rule, tuple(rows.shape), "Set model.classes."))
    boxes, scores, numbers, weights = rows[:, :4], rows[:, 4], rows[:, 5].long(), rows[:, 6:]
    small = (weights @ prototypes.flatten(1)).view(1, len(rows), *prototypes.shape[1:])
    masks = resize(small, size)[0] > 0
    down, right = (torch.arange(extent, device=rows.device) for extent in size)
    left, top, end, bottom = (edge[:, None] for edge in boxes.T)
    masks &= ((right >= left) & (right < end))[:, None, :] & ((down >= top) & (down < bottom))[:, :, None]
    return scores, numbers, masks


def _chosen(rows: Tensor, classes: int, score: float, overlap: float) -> Tensor:
    """Select candidates (N, 4 + K + M) above the score, except those that a better one of their class covers."""
    from torchvision.ops import box_convert, nms

    best, numbers = rows[:, 4 : 4 + classes].max(1)
    boxes = box_convert(rows[:, :4], "cxcywh", "xyxy")
    table = torch.cat((boxes, best[:, None], numbers[:, None].float(), rows[:, 4 + classes :]), 1)[best > score]
    table = table[table[:, 4].argsort(descending=True)[:_MOST]] if len(table) > _MOST else table
    return table[nms(table[:, :4] + table[:, 5:6] * _APART, table[:, 4], overlap)[:_OBJECTS]]


def _tensors(message: Any) -> Iterator[Any]:
    """Yield all tensors inside a message of a file, also those of constants, branches, loops and functions."""
    if message.DESCRIPTOR.name == "TensorProto":
        yield message
    for field, value in message.ListFields():
        if field.message_type is not None:
            for each in [value] if hasattr(value, "ListFields") else value:
                yield from _tensors(each)


def _of_graph(graph: Any, told: ForeignConfig) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the keys that a graph decides, and those that it suggests."""
    weights = {each.name for each in graph.initializer}
    inputs, outputs = (
        {each.name: each.type.tensor_type for each in side if each.name not in weights}
        for side in (graph.input, graph.output)
    )
    name = told.output.name or next(iter(outputs))
    if name not in outputs:
        raise ConfigError(expected("model", "output.name", f"to be one of {', '.join(outputs)}", name))
    axes = {each: len(tensor.shape.dim) for each, tensor in inputs.items()}
    if [*axes.values()] != [4]:
        given = ", ".join(f"{each} of {count} axes" for each, count in axes.items())
        raise ConfigError(expected("model", "input", "to be one, images of four axes", f"{given} in the ONNX file"))
    (image,), found = inputs.values(), outputs[name]
    sides = [axis.dim_value or None for axis in image.shape.dim[1:]]
    last = sides[2] in (1, 3, 4) and sides[0] not in (1, 3, 4)
    channels, height, width = (sides[2], *sides[:2]) if last else sides
    labels = found.elem_type in (2, 3, 4, 5, 6, 7)  # TensorProto's integers
    single = not labels and len(found.shape.dim) == 4 and found.shape.dim[1].dim_value == 1
    values = {"input": {"channels": channels}, "output": {"kind": "labels" if labels else None}}
    values["size"] = {"fit": f"fixed:{height}x{width}" if height and width else None}
    guesses = {"input": {"axes": "BHWC" if last else "BCHW"}, "size": {"fit": "any"}}
    return values, guesses | {"output": {"activation": "sigmoid" if single else "softmax"}}


def _ours(facts: dict[str, Any]) -> dict[str, Any]:
    """Return the card of a file that `segmeter export` wrote, from stored images to labels."""
    spec, channels = facts["card"]["spec"], facts["card"]["in_channels"]
    if spec["task"] == "multilabel":
        raise ConfigError("model: exported multilabel models give planes, which no card can say. Take its checkpoint.")
    images = {"channels": channels, "order": "rgb", "dtype": facts["input"]["dtype"], "axes": "BHWC"}
    return {"classes": spec["names"], "input": images | {"scale": 1.0, "mean": []}, "size": {"fit": "any"}}


def _ultralytics(metadata: dict[str, str], output: dict[str, Any]) -> dict[str, Any]:
    """Return the card of a file that ultralytics wrote, for the tasks "semantic" and "segment"."""
    if metadata["task"] not in ("semantic", "segment"):
        raise ConfigError(expected("model", "task", "to be semantic or segment", metadata["task"], "It has no masks."))
    names, size, args = (literal_eval(metadata.get(key, "{}")) for key in ("names", "imgsz", "args"))
    classes = [str(names[key]) for key in (sorted(names) if isinstance(names, dict) else range(len(names)))]
    images = {"channels": int(metadata.get("channels", 3)), "order": "rgb", "dtype": "uint8", "mean": [], "std": []}
    stride = int(metadata.get("stride", 32)) if args.get("dynamic") else None
    resizing = {"fit": f"letterbox:{size[0]}x{size[-1]}", "multiple": stride, "backend": "opencv"}
    if metadata["task"] == "segment":
        output = {"kind": "instances", "score": 0.25, "overlap": 0.7}
    return {"classes": classes, "input": images, "size": resizing, "output": {**output, "activation": "softmax"}}
