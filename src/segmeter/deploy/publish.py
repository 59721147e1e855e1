"""Exports a checkpoint as an ONNX file, and publishes it once its labels of real images agree with ours."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from segmeter import __version__
from segmeter.bridge.arrays import to_numpy
from segmeter.bridge.decode import decision_level, labels_to_numpy
from segmeter.checks import expected
from segmeter.classes import ClassSpec, label_dtype
from segmeter.data.files.reader_process import need
from segmeter.deploy import onnx_file
from segmeter.errors import DataError, RunError, refusing
from segmeter.files import write_bytes, write_json
from segmeter.inference.config import InferenceConfig
from segmeter.inference.predictor import Predictor
from segmeter.models.foreign.onnx_file import open_session
from segmeter.models.trained import Checkpoints

Model = Callable[[np.ndarray], np.ndarray]

MODEL, COMPARISON = "model.onnx", "comparison.json"
LEAST_EQUAL = 0.9999  # At least this share of the pixels must have equal labels
# Logits closer than this share of the larger one (or of 1) are a near-tie. Sums of float32 in another order differ by
# about 1e-5 of it.
TIE = 1e-3
LARGEST = 1024  # Larger images are compared in a corner of this height and width, in pixels


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """The compared cases by id, their pixels (for multilabel, the pixels of every plane), and how many pixels differ.

    `widest` is the largest margin among the pixels that differ: the difference between the two logits that compete for
    the pixel, as a share of the larger one (or of 1).
    """

    cases: tuple[str, ...]
    pixels: int
    differing: int
    widest: float


@dataclass(frozen=True, kw_only=True)
class Exported:
    """The published file, the dtype and least size of its images, and how its labels agreed with ours."""

    path: Path
    dtype: str
    least: int
    agreement: Agreement


def export_model(
    checkpoint: Checkpoints,
    folder: Path,
    *,
    images: Iterable[tuple[str, np.ndarray]],
    threshold: float = 0.5,
) -> Exported:
    """Write model.onnx and comparison.json into a folder.

    Parameters
    ----------
    checkpoint
        The model, or several whose probabilities are averaged in the file.
    folder
        Exists. The file appears in it complete, or not at all.
    images
        Ids and (H, W, C) images, at least one, all of one dtype, which the model's input will have.
    threshold
        Binary and multilabel: a class is present where its probability is above this.

    Raises
    ------
    ConfigError
        The network can't be exported.
    DataError
        A package that ONNX needs is not installed, there is no image, or they differ in dtype.
    RunError
        The labels differ from ours: nothing is published.
    """
    for name in ("onnx", "onnxscript", "onnxruntime"):
        need(name, "onnx", "ONNX files")
    cpu = torch.device("cpu")
    config = InferenceConfig(precision="float32", threshold=threshold)
    cases = list(images)
    dtypes = {image.dtype.name: case_id for case_id, image in cases}
    if len(dtypes) != 1:
        given = ", ".join(f"{name} (case {case_id!r})" for name, case_id in sorted(dtypes.items())) or "none"
        rule = "to be at least one, and of one dtype, which the model will take"
        raise DataError(expected("export", "images", rule, given, "Set input=FOLDER_OR_FILE."))
    (dtype,) = dtypes
    program, least = onnx_file.trace(checkpoint.load(cpu), threshold=threshold, dtype=dtype)
    content = onnx_file.encode(program, describe(checkpoint, threshold=threshold, dtype=dtype, least=least))
    session = open_session(content)

    def run(batch: np.ndarray) -> np.ndarray:
        return cast(np.ndarray, session.run([onnx_file.OUTPUT], {onnx_file.INPUT: batch})[0])

    agreement = compare(run, Predictor(checkpoint.load(cpu), config, cpu), cases)
    write_json(folder / COMPARISON, {**asdict(agreement), "least_equal": LEAST_EQUAL, "near_tie": TIE})
    path = folder / MODEL
    write_bytes(path, content)
    return Exported(path=path, dtype=dtype, least=least, agreement=agreement)


def describe(checkpoint: Checkpoints, *, threshold: float, dtype: str, least: int) -> dict[str, Any]:
    """Return the exported file's metadata as JSON values: card, input, output and origin."""
    spec = checkpoint.card.spec
    return {
        "segmeter": __version__,
        "checkpoint_sha256": checkpoint.sha256,
        "averaged": [member.sha256 for member in checkpoint.members] if len(checkpoint.members) > 1 else None,
        "input": {
            "name": onnx_file.INPUT,
            "axes": ["batch", "height", "width", "channel"],
            "dtype": dtype,
            "least_size": least,
        },
        "output": {
            "name": onnx_file.OUTPUT,
            "axes": ["batch", *(["class"] if spec.is_multilabel else []), "height", "width"],
            "dtype": label_dtype(spec.num_values - 1).name,
        },
        "threshold": None if spec.task == "multiclass" else threshold,
        "card": checkpoint.card.to_dict(),
    }


def compare(model: Model, predictor: Predictor, images: Iterable[tuple[str, np.ndarray]]) -> Agreement:
    """Compare a model's labels with the labels that our own code computes for the same images.

    Parameters
    ----------
    model
        A function from (B, H, W, C) images to labels.
    predictor
        In float32, without tiles and flips.
    images
        Ids and (H, W, C) images. The first one is also compared as a batch of two with an odd size.

    Raises
    ------
    RunError
        A pixel differs that is not a near-tie, or more pixels differ than `LEAST_EQUAL` allows.
    """
    spec = predictor.segmenter.card.spec
    threshold = predictor.config.threshold
    cases = list[str]()
    pixels = differing = 0
    widest = 0.0
    for case_id, image in images:
        for batch in _batches(image, odd=not cases):
            remedy = "Nothing was written. Use a network such as model=unet."
            with refusing(RunError, f"export: the exported model can't label case {case_id!r}", remedy):
                labels = model(batch)
            margins = _margins(labels, predictor.logits(list(batch)), spec, threshold, case_id)
            pixels += margins.size
            differing += int(np.count_nonzero(~np.isnan(margins)))
            widest = max(widest, float(np.nanmax(margins, initial=0.0)))
            if widest > TIE:
                wide = int(np.count_nonzero(margins > TIE))
                raise RunError(
                    f"export: {wide} of {margins.size} pixels of case {case_id!r} have other labels than segmeter's, "
                    f"and are no near-ties (their logits differ by up to {widest:.2g}, {TIE} would be one). "
                    "Nothing was written. Please report this."
                )
        cases.append(case_id)
    if differing > (1 - LEAST_EQUAL) * pixels:
        raise RunError(
            f"export: {differing} of {pixels} pixels have other labels than segmeter's, more than 1 in 10,000, though "
            "all are near-ties. Nothing was written. Train longer, or compare on images that the model knows."
        )
    return Agreement(cases=tuple(cases), pixels=pixels, differing=differing, widest=widest)


def _batches(image: np.ndarray, *, odd: bool) -> Iterator[np.ndarray]:
    yield image[None, :LARGEST, :LARGEST]
    if odd:
        height, width = (max(1, min(LARGEST, side) * 2 // 3 | 1) for side in image.shape[:2])
        part = image[:height, :width]
        yield np.stack([part, part[::-1, ::-1]])


def _margins(theirs: np.ndarray, computed: Tensor, spec: ClassSpec, threshold: float, case_id: str) -> np.ndarray:
    """Measure how much the logits prefer our label where the two differ, as a share of the larger logit (or of 1).

    (B, H, W), for multilabel (B, K, H, W). NaN where they agree.
    """
    ours = labels_to_numpy(computed, task=spec.task, num_classes=spec.num_classes, threshold=threshold)
    if (theirs.shape, theirs.dtype) != (ours.shape, ours.dtype):
        raise RunError(
            f"export: expected {ours.dtype} {ours.shape} for case {case_id!r}, got {theirs.dtype} {theirs.shape}. "
            "Nothing was written."
        )
    margins = np.full(ours.shape, np.nan)
    logits = to_numpy(computed)
    differing = np.nonzero(ours != theirs)
    if spec.task == "multiclass":
        batch, rows, columns = differing
        won, lost = (logits[batch, labels[differing], rows, columns] for labels in (ours, theirs))
    else:
        won = (logits if spec.is_multilabel else logits[:, 0])[differing]
        lost = np.full_like(won, decision_level(threshold, double=False))
    larger = np.maximum(np.maximum(np.abs(won), np.abs(lost)), 1)
    margins[differing] = np.abs(won - lost) / larger
    return margins
