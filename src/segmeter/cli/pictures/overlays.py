"""Cases as they are measured -> the run's pictures."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from segmeter.classes import ClassSpec
from segmeter.files import describe_file
from segmeter.inference.async_results import Prediction
from segmeter.metrics.cases.table import CaseRow
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.pixels.overlap import overlap_scores
from segmeter.metrics.summary.summary import mean_classes
from segmeter.postprocess.pipeline import Cleaned
from segmeter.report.config import ReportConfig
from segmeter.report.figures import headline_scores
from segmeter.report.pictures.gallery import OVERLAYS, Gallery
from segmeter.report.pictures.layers import layers_path
from segmeter.report.pictures.objects import Objects
from segmeter.report.pictures.overlay import picture_path


class Drawer:
    """Draws the cases that the configuration asks for, each with its headline score, as metrics.json defines it.

    The `Pictures` of eval and predict: it is given each case in turn, with its row where it was measured.
    """

    def __init__(
        self, config: ReportConfig, folder: Path, spec: ClassSpec, metrics: MetricsConfig | None = None
    ) -> None:
        self._folder = folder
        self._gallery = Gallery(folder, config, spec)
        self._spec = spec
        self._classes = None if metrics is None else mean_classes(metrics, spec)

    def draw(self, prediction: Prediction, cleaned: Cleaned, row: CaseRow | None = None) -> dict[str, Any]:
        """Draw a case if it is among the chosen so far; name -> size and hash, of what was drawn."""
        sample = prediction.sample
        score, class_scores = (None, ()) if row is None else self._scores(row)
        drawn = self._gallery.offer(
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
        return {name: describe_file(self._folder / name) for name in self.names(sample.case_id)} if drawn else {}

    def remember(self, case_id: str, row: CaseRow | None) -> None:
        """Let a case of an interrupted run take part in the choice."""
        self._gallery.remember(case_id, *((None, ()) if row is None else self._scores(row)))

    def names(self, case_id: str) -> tuple[str, ...]:
        """The names of a case's picture, and of the folder of its layers, in the run's folder."""
        return str(picture_path(Path(OVERLAYS), case_id)), str(layers_path(Path(), case_id))

    def kept(self) -> list[str]:
        """The cases that are chosen now."""
        return sorted(self._gallery.chosen())

    def _scores(self, row: CaseRow) -> tuple[float, Sequence[float]]:
        """The headline of a case, and its IoU per class."""
        scores = overlap_scores(row.counts, task=self._spec.task, classes=self._classes)
        return float(headline_scores(scores, self._spec.task)), scores.iou.tolist()
