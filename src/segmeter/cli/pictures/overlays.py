"""Cases as they are measured -> the run's pictures, and crops of the worst."""

import math
from collections.abc import Sequence
from pathlib import Path

from segmeter.classes import ClassSpec
from segmeter.cli.pictures.worst import WorstCases
from segmeter.inference.async_results import Prediction
from segmeter.metrics.cases.table import CaseRow
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.pixels.overlap import overlap_scores
from segmeter.metrics.summary.summary import mean_classes
from segmeter.postprocess.pipeline import Cleaned
from segmeter.report.config import ReportConfig
from segmeter.report.figures import headline_scores
from segmeter.report.pictures.gallery import Gallery
from segmeter.report.pictures.objects import Objects


class Drawer:
    """Draws the cases that the configuration asks for, each with its headline score, as metrics.json defines it.

    Of the worst, crops are kept too, which `segmeter.cli.pictures.worst` lists at the end.

    Called with each case in turn; the row is there where it was measured.
    """

    def __init__(
        self, config: ReportConfig, folder: Path, spec: ClassSpec, metrics: MetricsConfig | None = None
    ) -> None:
        self._gallery = Gallery(folder, config, spec)
        self._spec = spec
        self._classes = None if metrics is None else mean_classes(metrics, spec)
        self._worst = WorstCases(folder, spec, config.worst)

    def __call__(self, prediction: Prediction, cleaned: Cleaned, row: CaseRow | None = None) -> None:
        sample = prediction.sample
        score, class_scores = (None, ()) if row is None else self._scores(row)
        if row is not None and score is not None and sample.target is not None:
            step = math.ceil(row.height / cleaned.labels.shape[-2])  # of a case that is larger than memory
            maps = {"image": sample.image, "target": sample.target, "labels": cleaned.labels}
            self._worst.offer(sample.case_id, score, **maps, step=step)
        self._gallery.offer(
            sample.case_id,
            image=sample.image,
            target=sample.target,
            labels=cleaned.labels,
            score=score,
            class_scores=class_scores,
            objects=Objects(
                target=sample.instances, prediction=cleaned.instances if cleaned.labels.ndim == 2 else None
            ),
        )

    def remember(self, row: CaseRow) -> None:
        """Let a case of an interrupted run take part in the choice."""
        score, class_scores = self._scores(row)
        self._gallery.remember(row.case_id, score, class_scores)
        self._worst.remember(row.case_id, score)

    def remember_drawn(self, case_id: str) -> None:
        """Let a case without a score take part in the choice."""
        self._gallery.remember(case_id, None)

    def _scores(self, row: CaseRow) -> tuple[float, Sequence[float]]:
        """The headline of a case, and its IoU per class."""
        scores = overlap_scores(row.counts, task=self._spec.task, classes=self._classes)
        return float(headline_scores(scores, self._spec.task)), scores.iou.tolist()
