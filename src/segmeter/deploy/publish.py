"""Exports a checkpoint as an ONNX file, and publishes it once its labels of real images agree with ours."""

import gc
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from segmeter.deploy import onnx_file
from segmeter.deploy.comparison import Agreement, compare
from segmeter.deploy.facts import describe
from segmeter.deploy.trace import trace
from segmeter.errors import DataError
from segmeter.files import write_bytes, write_json
from segmeter.inference.config import InferenceConfig
from segmeter.inference.predictor import Predictor
from segmeter.models.checkpoints.checkpoint import Checkpoint, Checkpoints

MODEL, COMPARISON = "model.onnx", "comparison.json"


@dataclass(frozen=True, kw_only=True)
class Exported:
    """The published file, dtype and least height and width of its images, and how its labels agreed with ours."""

    path: Path
    dtype: str
    least: int
    agreement: Agreement


def export_model(
    checkpoint: Checkpoint | Checkpoints,
    folder: Path,
    *,
    images: Iterable[tuple[str, np.ndarray]],
    threshold: float = 0.5,
) -> Exported:
    """Write ``model.onnx`` and comparison.json into a folder.

    Parameters
    ----------
    checkpoint
        The model, or several whose probabilities are averaged in the file.
    folder
        Exists. The file appears in it complete, or not at all.
    images
        Ids and (H, W, C) images of one dtype, which becomes that of the model's input. At least one.
    threshold
        Binary and multilabel: a class is present where its probability is above this.

    Raises
    ------
    ConfigError
        A package that ONNX needs is not installed, or the network can't be exported.
    DataError
        There is no image, or they differ in dtype.
    RunError
        The labels differ from ours: nothing is published.
    """
    onnx_file.check_tools()
    place = torch.device("cpu")
    found = checkpoint if isinstance(checkpoint, Checkpoints) else Checkpoints((checkpoint,))
    cases = list(images)
    dtype = _dtype_of(cases)
    segmenter = found.load(place)
    traced = trace(segmenter, threshold=threshold, dtype=dtype)
    least = traced.least
    facts = describe(found, threshold=threshold, dtype=dtype, least=least)
    content = onnx_file.encode(traced.program, facts)
    del traced, segmenter
    gc.collect()  # it refers to itself, and holds a copy of the weights
    config = InferenceConfig(precision="float32", threshold=threshold)
    agreement = compare(onnx_file.OnnxModel(content), Predictor(found.load(place), config, place), cases)
    write_json(folder / COMPARISON, agreement.to_dict())
    path = folder / MODEL
    write_bytes(path, content)
    return Exported(path=path, dtype=dtype, least=least, agreement=agreement)


def _dtype_of(cases: list[tuple[str, np.ndarray]]) -> str:
    found = {image.dtype.name: case_id for case_id, image in cases}
    if not found:
        raise DataError("export: expected at least one image to compare labels on, got none. Set input=FOLDER_OR_FILE.")
    if len(found) > 1:
        given = ", ".join(f"{name} (case {case_id!r})" for name, case_id in sorted(found.items()))
        raise DataError(f"export: expected images of one dtype, which the model will take, got {given}. Set input=.")
    return next(iter(found))
