"""Writes a traced program as ONNX, which onnxruntime and many others run."""

import json
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

import numpy as np
from torch.export import ExportedProgram

from segmeter.deploy.facts import KEY
from segmeter.deploy.trace import AXES, INPUT, OUTPUT
from segmeter.errors import ConfigError


def check_tools() -> None:
    """Raise ConfigError where ONNX can't be written or run."""
    missing = [name for name in ("onnx", "onnxscript", "onnxruntime") if find_spec(name) is None]
    if missing:
        raise ConfigError(f"export: ONNX needs {', '.join(missing)}. Install segmeter[onnx].")


def encode(program: ExportedProgram, facts: Mapping[str, Any]) -> bytes:
    """Write a traced program as ONNX with its facts as metadata.

    Raises
    ------
    ConfigError
        An operation of the network is not in ONNX, or the file would be larger than the format allows.
    """
    import torch.onnx

    _check_pools(program)
    try:
        exported = torch.onnx.export(
            program, (), dynamo=True, input_names=[INPUT], output_names=[OUTPUT], verbose=False
        )
        assert exported is not None
        model = exported.model_proto
        _name_axes(model)
        model.metadata_props.add(key=KEY, value=json.dumps(facts, ensure_ascii=False))
        content: bytes = model.SerializeToString()
    except Exception as error:  # the exporter has errors of many kinds
        reason = " ".join(str(error).split())[:200]
        raise ConfigError(
            f"export: this network can't be written as ONNX ({type(error).__name__}: {reason}). "
            "Use a network such as model=unet."
        ) from error
    return content


def _check_pools(program: ExportedProgram) -> None:
    """Refuse to pool to a fixed number of cells, which ONNX can't do for every size; exported, it would fail there."""
    for node in program.graph.nodes:
        if "adaptive_avg_pool2d" in str(node.target) and list(node.args[1]) != [1, 1]:
            cells = " x ".join(map(str, node.args[1]))
            raise ConfigError(
                f"export: this network pools to {cells} cells, as pspnet and upernet do, and ONNX can't do so for "
                "images of any size. Use a network such as model=unet."
            )


class OnnxModel:
    """Runs an ONNX file on the CPU; a call takes (B, H, W, C) images and gives their labels."""

    def __init__(self, content: bytes) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # as in threads.py
        self._session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])

    def __call__(self, images: np.ndarray) -> np.ndarray:
        labels: np.ndarray = self._session.run([OUTPUT], {INPUT: images})[0]
        return labels


def _name_axes(model: Any) -> None:
    """Say batch, height and width where the tracer's own symbols stand."""
    symbols = [axis.dim_param for axis in model.graph.input[0].type.tensor_type.shape.dim[: len(AXES)]]
    names = dict(zip(symbols, AXES, strict=True))
    for value in (*model.graph.input, *model.graph.output):
        for axis in value.type.tensor_type.shape.dim:
            if axis.dim_param:
                axis.dim_param = names.get(axis.dim_param, axis.dim_param)
    del model.graph.value_info[:]  # sizes of inner values, in symbols that no longer stand anywhere
