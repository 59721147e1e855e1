"""checkpoint + real images -> the file of an exported model, once its labels agree with ours."""

import gc
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import torch

from segmeter.deploy import aot_file, onnx_file
from segmeter.deploy.comparison import Agreement, Model, compare
from segmeter.deploy.facts import describe
from segmeter.deploy.trace import trace
from segmeter.errors import DataError
from segmeter.files import write_bytes, write_json
from segmeter.inference.config import InferenceConfig
from segmeter.inference.predictor import Predictor
from segmeter.models.checkpoints.checkpoint import Checkpoint
from segmeter.models.checkpoints.several import Checkpoints

Format = Literal["onnx", "aot"]
FORMATS: tuple[Format, ...] = get_args(Format)
SUFFIX: dict[Format, str] = {"onnx": ".onnx", "aot": ".pt2"}
COMPARISON = "comparison.json"


@dataclass(frozen=True, kw_only=True)
class Exported:
    """The published file, dtype and least height and width of its images, and how its labels agreed with ours."""

    path: Path
    dtype: str
    least: int
    agreement: Agreement


def check_tools(format: Format) -> None:
    """Raise ConfigError where what a format needs is not installed."""
    (onnx_file if format == "onnx" else aot_file).check_tools()


def export_model(
    checkpoint: Checkpoint | Checkpoints,
    folder: Path,
    *,
    format: Format,
    images: Iterable[tuple[str, np.ndarray]],
    threshold: float = 0.5,
    device: torch.device | None = None,
) -> Exported:
    """Write ``model.onnx`` or ``model.pt2``, and comparison.json, into a folder.

    Parameters
    ----------
    checkpoint
        The model, or several whose probabilities are averaged in the file.
    folder
        Exists. The file appears in it complete, or not at all.
    format
        "onnx", or "aot" for a package that AOTInductor compiles.
    images
        Ids and (H, W, C) images of one dtype, which becomes that of the model's input. At least one.
    threshold
        Binary and multilabel: a class is present where its probability is above this.
    device
        Where an "aot" package will run; the CPU if None, and always for "onnx", which is run there to be compared.

    Raises
    ------
    ConfigError
        What the format needs is not installed, or the network can't be exported.
    DataError
        There is no image, or they differ in dtype.
    RunError
        The labels differ from ours: nothing is published.
    """
    check_tools(format)
    place = torch.device("cpu") if device is None or format == "onnx" else device
    found = checkpoint if isinstance(checkpoint, Checkpoints) else Checkpoints((checkpoint,))
    cases = list(images)
    dtype = _dtype_of(cases)
    segmenter = found.load(place)
    traced = trace(segmenter, threshold=threshold, dtype=dtype)
    least = traced.least
    facts = describe(found, threshold=threshold, dtype=dtype, least=least)
    content = (onnx_file if format == "onnx" else aot_file).encode(traced.program, facts)
    del traced, segmenter
    gc.collect()  # it refers to itself, and holds a copy of the weights
    model: Model = (
        onnx_file.OnnxModel(content) if format == "onnx" else aot_file.AotModel(content, found.card.spec, place)
    )
    config = InferenceConfig(precision="float32", threshold=threshold)
    agreement = compare(model, Predictor(found.load(place), config, place), cases)
    write_json(folder / COMPARISON, agreement.to_dict())
    path = folder / f"model{SUFFIX[format]}"
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
