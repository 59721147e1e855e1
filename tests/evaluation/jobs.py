"""Runs of a tiny network on drawn cases, what they leave, and what interrupts or damages them."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from segmeter.evaluation.evaluate import evaluate
from segmeter.evaluation.manifest import Manifest
from segmeter.evaluation.predicted import CaseRun
from segmeter.export.config import ExportConfig
from segmeter.inference.config import InferenceConfig
from segmeter.inference.predictor import Predictor
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.models.segmenter import Segmenter
from segmeter.postprocess.config import PostprocessConfig
from tests.training.tiny import CrossEntropy, TinyCases, tiny_segmenter


def predictor(segmenter: Segmenter | None = None, **options: Any) -> Predictor:
    config = InferenceConfig(**({"precision": "float32", "batch_size": 2} | options))
    return Predictor(segmenter or tiny_segmenter(), config, torch.device("cpu"))


def case_run(folder: Path, **changes: Any) -> CaseRun:
    fields = {"predictor": predictor(), "dataset": TinyCases(count=5), "export": ExportConfig()}
    return CaseRun(**(fields | {"postprocess": PostprocessConfig(), "folder": folder} | changes))


def evaluated(folder: Path, **changes: Any) -> dict[str, Any]:
    """The summary of an evaluation."""
    given = {"loss": CrossEntropy(), "metrics": MetricsConfig(bootstrap=20), "export": ExportConfig(probs=True)}
    given |= changes
    loss, metrics = given.pop("loss"), given.pop("metrics")
    return evaluate(case_run(folder, **given), metrics=metrics, loss=loss)


def files(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@contextmanager
def interrupted(after: int) -> Iterator[None]:
    """Press Ctrl-C in the block once so many cases are noted."""
    add, left = Manifest.add, [after]

    def add_and_leave(manifest: Manifest, entry: Any) -> None:
        add(manifest, entry)
        left[0] -= 1
        if not left[0]:
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Manifest, "add", add_and_leave)
        with pytest.raises(KeyboardInterrupt):
            yield


def empty(path: Path) -> None:
    path.write_bytes(b"")
