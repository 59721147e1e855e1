"""Runs ONNX files: plain ones, those that `segmeter export` wrote, and ultralytics' of two tasks.

The metadata of ultralytics that is read here: `names`, `imgsz`, `task`, `stride`, `channels`, `end2end` and `args`
(ultralytics 8.4, engine/exporter.py). Axes: N candidates, K classes, M prototypes of masks.
"""

import json
from ast import literal_eval
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from segmeter.bridge.arrays import to_numpy, to_torch
from segmeter.checks import expected
from segmeter.errors import CheckpointError, ConfigError
from segmeter.models.checkpoints.weights import find_placeholder, real_path
from segmeter.models.foreign.config import Facts, ForeignConfig
from segmeter.remote import fetch

_OURS = "segmeter"  # the key of our metadata
_MOST = 30_000  # candidates that are compared with each other, and objects that are kept, as in ultralytics
_OBJECTS = 300
_APART = 7680.0  # pixels by which boxes of different classes are moved apart


def describe(place: str, told: ForeignConfig) -> Facts:
    """Read the card of an ONNX file from its metadata and graph.

    Raises
    ------
    CheckpointError
        The file is damaged, or keeps weights outside its folder.
    ConfigError
        onnx is not installed, or the file has several inputs or outputs to choose from.
    """
    if find_spec("onnx") is None or find_spec("onnxruntime") is None:
        raise ConfigError("model: ONNX files need onnx and onnxruntime. Install segmeter[onnx].")
    import onnx

    path = fetch(place)
    real_path(path)  # it is there
    try:
        model = onnx.load(path, load_external_data=False)
    except Exception as error:  # protobuf's own
        fault = find_placeholder(path) or "is no ONNX file, or is damaged or truncated. Fetch it again."
        raise CheckpointError(f"{path}: {fault}") from error
    outside = {entry.value for tensor in _tensors(model) for entry in tensor.external_data if entry.key == "location"}
    wrong = [name for name in sorted(outside) if (path.parent / name).resolve().parent != path.parent.resolve()]
    if wrong or not all((path.parent / name).is_file() for name in outside):
        text = f"keeps weights in {', '.join(wrong or sorted(outside))}, which is not a file of its folder"
        raise CheckpointError(f"{path}: {text}. Save it as one file.")
    metadata = {entry.key: entry.value for entry in model.metadata_props}
    graph, guesses = _of_graph(model.graph, told)
    values = graph
    try:
        if _OURS in metadata:
            values = _ours(json.loads(metadata[_OURS]), graph)
        elif metadata.get("task") and "names" in metadata:
            values, guesses = _ultralytics(metadata, graph), {}
    except ConfigError:
        raise
    except (ValueError, SyntaxError, LookupError, TypeError, AttributeError, RecursionError, MemoryError) as error:
        text = f"its metadata can't be read ({type(error).__name__}: {error})"
        raise CheckpointError(f"{path}: {' '.join(text.split())}. Export it again.") from error
    return Facts(values=values, guesses=guesses, files=(path, *(path.parent / name for name in sorted(outside))))


def load(place: str, config: ForeignConfig) -> nn.Module:
    """Open the file in onnxruntime; objects of ultralytics' models are decoded."""
    network = _Network(fetch(place), config)
    return _Objects(network, config) if config.output.kind == "instances" else network


class _Network(nn.Module):
    """An ONNX session on the CPU, as a network from tensors to tensors."""

    def __init__(self, path: Path, config: ForeignConfig) -> None:
        super().__init__()
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        options.intra_op_num_threads = torch.get_num_threads()
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # as in threads.py
        try:
            self._session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        except Exception as error:  # onnxruntime's own
            reason = " ".join(str(error).split())[:200]
            raise CheckpointError(f"{path}: onnxruntime can't open it ({reason}).") from error
        taken = self._session.get_inputs()[0]
        names = [each.name for each in self._session.get_outputs()]
        self._names = names if config.output.kind == "instances" else [config.output.name or names[0]]
        self._input, self._dtype = (
            taken.name,
            {"tensor(uint8)": np.uint8, "tensor(float16)": np.float16}.get(taken.type),
        )

    def forward(self, image: Tensor) -> Any:
        values = to_numpy(image)
        values = values.astype(self._dtype or np.float32, copy=False) if self._dtype != values.dtype else values
        found = self._session.run(self._names, {self._input: np.ascontiguousarray(values)})
        tensors = [to_torch(each, device=image.device) for each in found]
        return tensors if len(tensors) > 1 else tensors[0]


class _Objects(nn.Module):
    """Decodes (1, 4 + K + M, N) boxes, scores and coefficients, or (1, N, 6 + M) boxes that are chosen already."""

    def __init__(self, network: nn.Module, config: ForeignConfig) -> None:
        super().__init__()
        self.network, self.classes = network, len(config.classes or ())
        self.score, self.overlap = config.output.score or 0.0, config.output.overlap or 1.0

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        found, prototypes = self.network(image)
        prototypes = prototypes[0].float()
        size = len(prototypes)
        rows = found[0].float()
        if rows.shape[1] == 6 + size:
            rows = rows[rows[:, 4] > self.score][:_OBJECTS]
        elif rows.shape[0] == 4 + self.classes + size:
            rows = self._chosen(rows.T)
        else:
            rule = f"to be ({4 + self.classes + size}, N) or (N, {6 + size}) for {self.classes} classes"
            raise ConfigError(expected("model", "output", rule, tuple(rows.shape), "Set model.classes."))
        boxes, scores, numbers, weights = rows[:, :4], rows[:, 4], rows[:, 5].long(), rows[:, 6:]
        small = (weights @ prototypes.flatten(1)).view(1, len(rows), *prototypes.shape[1:])
        if not len(rows):
            return scores, numbers, small[0] > 0
        masks = functional.interpolate(small, image.shape[-2:], mode="bilinear", align_corners=False)[0] > 0
        down, right = (torch.arange(extent, device=image.device) for extent in masks.shape[1:])
        left, top, end, bottom = (edge[:, None] for edge in boxes.T)
        masks &= ((right >= left) & (right < end))[:, None, :] & ((down >= top) & (down < bottom))[:, :, None]
        return scores, numbers, masks

    def _chosen(self, rows: Tensor) -> Tensor:
        """Candidates (N, 4 + K + M) above the score, without those that a better one of their class covers."""
        from torchvision.ops import box_convert, nms

        best, numbers = rows[:, 4 : 4 + self.classes].max(1)
        kept = best > self.score
        rows, best, numbers = rows[kept], best[kept], numbers[kept]
        order = (
            best.argsort(descending=True)[:_MOST] if len(best) > _MOST else torch.arange(len(best), device=best.device)
        )
        rows, best, numbers = rows[order], best[order], numbers[order]
        boxes = box_convert(rows[:, :4], "cxcywh", "xyxy")
        chosen = nms(boxes + numbers[:, None] * _APART, best, self.overlap)[:_OBJECTS]
        parts = (boxes, best[:, None], numbers[:, None].float(), rows[:, 4 + self.classes :])
        return torch.cat(parts, 1)[chosen]


def _tensors(model: Any) -> Iterator[Any]:
    """All tensors of a file, also those of constants, of branches and loops, and of functions."""
    graphs, nodes = [model.graph], [node for function in model.functions for node in function.node]
    while graphs or nodes:
        for graph in graphs:
            yield from graph.initializer
            yield from (each for sparse in graph.sparse_initializer for each in (sparse.values, sparse.indices))
            nodes += graph.node
        attributes = [each for node in nodes for each in node.attribute]
        yield from (tensor for each in attributes for tensor in (each.t, *each.tensors))
        graphs, nodes = [graph for each in attributes for graph in (each.g, *each.graphs)], []


def _of_graph(graph: Any, told: ForeignConfig) -> tuple[dict[str, Any], dict[str, Any]]:
    """The keys that a graph decides, and those that it suggests."""
    weights = {each.name for each in graph.initializer}
    inputs = [each for each in graph.input if each.name not in weights]
    outputs = {each.name: each for each in graph.output}
    if len(inputs) != 1:
        given = ", ".join(each.name for each in inputs)
        raise ConfigError(expected("model", "input", "to be one, of images", f"{given} in the ONNX file"))
    name = told.output.name or next(iter(outputs))
    if name not in outputs:
        raise ConfigError(expected("model", "output.name", f"to be one of {', '.join(outputs)}", name))
    shape, found = _shape(inputs[0]), _shape(outputs[name])
    if len(shape) != 4:
        raise ConfigError(
            expected("model", "input", "to be images of four axes", f"{len(shape)} axes in the ONNX file")
        )
    last = shape[3] in (1, 3, 4) and shape[1] not in (1, 3, 4)
    (channels, height, width) = (shape[3], shape[1], shape[2]) if last else shape[1:]
    fixed = isinstance(height, int) and isinstance(width, int)
    values: dict[str, Any] = {"input": {"channels": channels if isinstance(channels, int) else None}}
    labels = outputs[name].type.tensor_type.elem_type in (2, 3, 4, 5, 6, 7)  # TensorProto's integers
    values["output"] = {"kind": "labels" if labels else None}
    values["size"] = {"fit": f"fixed:{height}x{width}" if fixed else None}
    single = not labels and len(found) == 4 and found[1] == 1
    guesses = {"input": {"axes": "BHWC" if last else "BCHW"}, "size": {"fit": "any"}}
    return values, guesses | {"output": {"activation": "sigmoid" if single else "softmax"}}


def _shape(value: Any) -> list[int | str]:
    return [axis.dim_value or axis.dim_param for axis in value.type.tensor_type.shape.dim]


def _ours(facts: dict[str, Any], graph: dict[str, Any]) -> dict[str, Any]:
    """The card of a file that `segmeter export` wrote: images as they are stored, to labels."""
    card = facts["card"]
    told = {"channels": card["in_channels"], "order": "rgb", "dtype": facts["input"]["dtype"]}
    told |= {"scale": 1.0, "mean": [], "axes": "BHWC"}
    if card["spec"]["task"] == "multilabel":
        raise ConfigError(
            "model: an exported multilabel model gives planes, which no card can say. Take its checkpoint."
        )
    return graph | {"classes": card["spec"]["names"], "input": told, "size": {"fit": "any"}}


def _ultralytics(metadata: dict[str, str], graph: dict[str, Any]) -> dict[str, Any]:
    """The card of a file that ultralytics wrote, for the tasks "semantic" and "segment"."""
    if metadata["task"] not in ("semantic", "segment"):
        raise ConfigError(expected("model", "task", "to be semantic or segment", metadata["task"], "It has no masks."))
    names, size = literal_eval(metadata["names"]), literal_eval(metadata["imgsz"])
    dynamic = literal_eval(metadata.get("args", "{}")).get("dynamic", False)
    objects = metadata["task"] == "segment"
    classes = [str(names[key]) for key in sorted(names)] if isinstance(names, dict) else [str(name) for name in names]
    return {
        "classes": classes,
        "input": {
            "channels": int(metadata.get("channels", 3)),
            "order": "rgb",
            "dtype": "uint8",
            "mean": [],
            "std": [],
        },
        "size": {
            "fit": f"letterbox:{size[0]}x{size[-1]}",
            "multiple": int(metadata.get("stride", 32)) if dynamic else None,
            "backend": "opencv",
        },
        "output": {"kind": "instances", "score": 0.25, "overlap": 0.7, "activation": "softmax"}
        if objects
        else {"kind": None, "activation": "softmax", **graph["output"]},
    }
