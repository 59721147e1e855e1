"""Validated cases -> pictures of a training run."""

from pathlib import Path

from segmeter.classes import ClassSpec
from segmeter.inference.async_results import Prediction
from segmeter.metrics.pixels.confusion import count_case
from segmeter.metrics.pixels.overlap import headline_scores, overlap_scores
from segmeter.report.pictures.overlay import draw_overlay, write_overlay

PANEL = 320  # longest side of a panel, pixels: small, as there are many


def draw_validated(prediction: Prediction, folder: Path, *, spec: ClassSpec) -> Path:
    """Draw image, target, prediction and errors of a validated case as <case>.png, with its headline score."""
    sample = prediction.sample
    if sample.target is None:
        score = None
    else:
        overlap = overlap_scores(count_case(sample.target, prediction.labels, spec), task=spec.task)
        score = float(headline_scores(overlap, spec))
    picture = draw_overlay(
        sample.image, sample.target, prediction.labels, spec, title=sample.case_id, score=score, panel=PANEL
    )
    return write_overlay(folder, sample.case_id, picture)
