"""Cases as they are measured -> the run's pictures."""

from pathlib import Path
from typing import Protocol

from segmeter.inference.outbox import Prediction
from segmeter.metrics.config import MetricsConfig
from segmeter.metrics.overlap import overlap_scores
from segmeter.metrics.rows import CaseRow
from segmeter.metrics.summary import mean_classes
from segmeter.postprocess.pipeline import Cleaned
from segmeter.report.config import ReportConfig
from segmeter.report.gallery import Gallery
from segmeter.vocabulary import ClassSpec


class Draw(Protocol):
    """Takes one case; the row is there where it was measured."""

    def __call__(self, prediction: Prediction, cleaned: Cleaned, row: CaseRow | None = None) -> None: ...


def drawer(config: ReportConfig, folder: Path, spec: ClassSpec, metrics: MetricsConfig | None = None) -> Draw:
    """Draw the cases that the configuration asks for, with the mean IoU as metrics.json defines it."""
    classes = None if metrics is None else mean_classes(metrics, spec)
    gallery = Gallery(folder / "overlays", config, spec)

    def draw(prediction: Prediction, cleaned: Cleaned, row: CaseRow | None = None) -> None:
        sample = prediction.sample
        gallery.offer(
            sample.case_id,
            image=sample.image,
            target=sample.target,
            labels=cleaned.labels,
            mean_iou=None
            if row is None
            else float(overlap_scores(row.counts, task=spec.task, classes=classes).mean_iou),
        )

    return draw
