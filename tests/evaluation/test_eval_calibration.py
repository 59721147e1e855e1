"""An evaluation that measures probabilities and surfaces: the figures are those of the files that it exports."""

import json
from pathlib import Path

import numpy as np
import torch

from segmeter.evaluation.evaluate import Evaluation, evaluate
from segmeter.export.config import ExportConfig
from segmeter.inference.config import InferenceConfig
from segmeter.inference.predictor import Predictor
from segmeter.metrics.calibration import Calibration
from segmeter.metrics.calibration_file import summarise_calibration
from segmeter.metrics.config.measures import SurfaceConfig
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.postprocess.config import PostprocessConfig
from tests.training.tiny import TinyCases, tiny_segmenter


def run(folder: Path, cases: TinyCases, *, probs: bool, calibration: bool) -> dict:
    folder.mkdir()
    config = InferenceConfig(precision="float32", batch_size=2)
    return evaluate(
        Evaluation(
            predictor=Predictor(tiny_segmenter(), config, torch.device("cpu")),
            dataset=cases,
            loss=None,
            export=ExportConfig(probs=probs),
            postprocess=PostprocessConfig(),
            metrics=MetricsConfig(bootstrap=20, measures=(SurfaceConfig(),), calibration=calibration),
            folder=folder,
        )
    )


def test_the_figures_are_those_of_the_exported_probabilities(tmp_path: Path) -> None:
    cases = TinyCases(count=5)
    summary = run(tmp_path / "one", cases, probs=True, calibration=True)
    sums = Calibration(num_classes=cases.spec.num_classes, task=cases.spec.task, ignore_index=cases.spec.ignore_index)
    for i in range(len(cases)):
        sample = cases[i]
        sums.update(sample.target, np.load(tmp_path / "one" / "predictions" / "probs" / f"{sample.case_id}.npy"))
    assert summary["calibration"] == summarise_calibration(sums.compute(), cases.spec)
    assert summary["calibration"]["n"] > 0
    assert 0 < summary["calibration"]["ece"] < 1
    assert json.loads((tmp_path / "one" / "metrics.json").read_text()) == summary
    assert summary["measures"]["hd95"]


def test_probabilities_cross_for_the_figures_without_files_of_them(tmp_path: Path) -> None:
    summary = run(tmp_path / "one", TinyCases(count=3), probs=False, calibration=True)
    assert summary["calibration"]["brier"] > 0
    assert not (tmp_path / "one" / "predictions" / "probs").exists()
