"""Runs ONNX files: plain ones, files of `segmeter export`, and ultralytics' files for two of its tasks.

This reads ultralytics' metadata `names`, `imgsz`, `task`, `stride`, `channels` and `args` (ultralytics 8.4,
engine/exporter.py).

Axes: N candidates, K classes, M prototypes of masks.
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

_OURS = "segmeter"  # The key of our own metadata
# As in ultralytics
_MOST_CANDIDATES = 30_000
_MOST_OBJECTS = 300
_APART = 7680.0  # Boxes of each class are moved by this many pixels times its number, so that classes don't overlap


def describe(source: Source, user_card: ForeignConfig) -> Facts:
    """Read the card of an ONNX file from its metadata and graph.

    Raises
    ------
    CheckpointError
        The file is damaged, or keeps weights outside its folder.
    ConfigError
        The file has several inputs, or lacks the chosen output.
    DataError
        onnx or onnxruntime is not installed.
    """
    onnx, _ = (need(name, "onnx", "ONNX files") for name in ("onnx", "onnxruntime"))
    path = fetch(source.place)
    real_path(path)  # refuses a missing file
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
    values, guesses = _of_graph(model.graph, user_card)
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
    """Open the file as a function of images. It decodes the objects of ultralytics' models."""
    path = fetch(source.place)
    with refusing(CheckpointError, f"{path}: onnxruntime can't open it"):
        session = open_session(str(path))
    image_input = session.get_inputs()[0]
    all_names = [output.name for output in session.get_outputs()]
    has_objects = config.output.kind == "instances"
    names = all_names if has_objects else [config.output.name or all_names[0]]
    dtype = {"tensor(uint8)": np.uint8, "tensor(float16)": np.float16}.get(image_input.type, np.float32)

    def run(image: Tensor) -> Any:
        values = np.ascontiguousarray(to_numpy(image), dtype)
        with refusing(ConfigError, f"{path}: can't run on {values.shape}", "Set model.size, or export it again."):
            arrays = session.run(names, {image_input.name: values})
        outputs = [to_torch(array, device=image.device) for array in arrays]
        return decode_objects(outputs, image.shape[-2:], config) if has_objects else outputs[0]

    return run


def decode_objects(
    outputs: list[Tensor], size: tuple[int, ...], config: ForeignConfig
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute scores (n,), classes (n,) and masks (n, *size) from the outputs of ultralytics' task "segment".

    The outputs are (1, 4 + K + M, N) boxes, scores and coefficients, or (1, N, 6 + M) boxes that the model has selected
    itself; and prototypes (1, M, h, w).
    """
    rows = outputs[0][0].float()
    prototypes = outputs[1][0].float()
    num_classes, num_prototypes = len(config.classes or ()), len(prototypes)
    least_score = config.output.score or 0.0
    if rows.shape[1] == 6 + num_prototypes:
        rows = rows[rows[:, 4] > least_score][:_MOST_OBJECTS]
    elif rows.shape[0] == 4 + num_classes + num_prototypes:
        rows = _select(rows.T, num_classes, least_score, config.output.overlap or 1.0)
    else:
        rule = f"to be ({4 + num_classes + num_prototypes}, N) or (N, {6 + num_prototypes}) for {num_classes} classes"
        raise ConfigError(expected("model", "output", rule, tuple(rows.shape), "Set model.classes."))
    boxes, scores, classes, coefficients = rows[:, :4], rows[:, 4], rows[:, 5].long(), rows[:, 6:]
    small = (coefficients @ prototypes.flatten(1)).view(1, len(rows), *prototypes.shape[1:])
    masks = resize(small, size)[0] > 0
    y, x = (torch.arange(extent, device=rows.device) for extent in size)
    left, top, right, bottom = (edge[:, None] for edge in boxes.T)
    masks &= ((x >= left) & (x < right))[:, None, :] & ((y >= top) & (y < bottom))[:, :, None]
    return scores, classes, masks


def _select(rows: Tensor, num_classes: int, least_score: float, overlap: float) -> Tensor:
    """Select candidates (N, 4 + K + M) above the score, except those that a better one of their class covers."""
    from torchvision.ops import box_convert, nms

    scores, classes = rows[:, 4 : 4 + num_classes].max(1)
    boxes = box_convert(rows[:, :4], "cxcywh", "xyxy")
    table = torch.cat((boxes, scores[:, None], classes[:, None].float(), rows[:, 4 + num_classes :]), 1)
    table = table[scores > least_score]
    if len(table) > _MOST_CANDIDATES:
        table = table[table[:, 4].argsort(descending=True)[:_MOST_CANDIDATES]]
    return table[nms(table[:, :4] + table[:, 5:6] * _APART, table[:, 4], overlap)[:_MOST_OBJECTS]]


def _tensors(message: Any) -> Iterator[Any]:
    """Yield all tensors inside a message of a file, including those in constants, branches, loops and functions."""
    if message.DESCRIPTOR.name == "TensorProto":
        yield message
    for field, value in message.ListFields():
        if field.message_type is not None:
            for inner in [value] if hasattr(value, "ListFields") else value:
                yield from _tensors(inner)


def _of_graph(graph: Any, user_card: ForeignConfig) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the values of a card that a graph decides, and values that it suggests."""
    weights = {tensor.name for tensor in graph.initializer}
    inputs, outputs = (
        {value.name: value.type.tensor_type for value in side if value.name not in weights}
        for side in (graph.input, graph.output)
    )
    name = user_card.output.name or next(iter(outputs))
    if name not in outputs:
        raise ConfigError(expected("model", "output.name", f"to be one of {', '.join(outputs)}", name))
    axes = {input_name: len(tensor.shape.dim) for input_name, tensor in inputs.items()}
    if [*axes.values()] != [4]:
        given = ", ".join(f"{input_name} of {count} axes" for input_name, count in axes.items())
        raise ConfigError(expected("model", "input", "to be one, images of four axes", f"{given} in the ONNX file"))
    (image,) = inputs.values()
    output = outputs[name]
    sides = [axis.dim_value or None for axis in image.shape.dim[1:]]
    channels_last = sides[2] in (1, 3, 4) and sides[0] not in (1, 3, 4)
    channels, height, width = (sides[2], *sides[:2]) if channels_last else sides
    is_labels = output.elem_type in (2, 3, 4, 5, 6, 7)  # TensorProto's integers
    is_binary = not is_labels and len(output.shape.dim) == 4 and output.shape.dim[1].dim_value == 1
    values = {"input": {"channels": channels}, "output": {"kind": "labels" if is_labels else None}}
    values["size"] = {"fit": f"fixed:{height}x{width}" if height and width else None}
    guesses = {"input": {"axes": "BHWC" if channels_last else "BCHW"}, "size": {"fit": "any"}}
    return values, guesses | {"output": {"activation": "sigmoid" if is_binary else "softmax"}}


def _ours(facts: dict[str, Any]) -> dict[str, Any]:
    """Return the card of a file that `segmeter export` wrote, from stored images to labels."""
    spec = facts["card"]["spec"]
    channels = facts["card"]["in_channels"]
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
