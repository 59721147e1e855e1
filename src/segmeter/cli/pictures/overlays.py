"""Cases as they are measured -> the run's pictures, and crops of the worst."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from segmeter.classes import ClassSpec
from segmeter.cli.pictures.worst import WorstCases, crops_path
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
from segmeter.report.pictures.layers import file_names, layers_path
from segmeter.report.pictures.objects import measured_objects
from segmeter.report.pictures.overlay import picture_path


class Drawer:
    """Draws the cases that the configuration asks for, each with its headline score, as metrics.json defines it.

    Of the worst, crops are kept too, which `segmeter.cli.pictures.worst` lists at the end.

    The `Pictures` of eval and predict: it is given each case in turn, with its row where it was measured. `files` gives
    the image of a case, then its masks, whose names stand with the picture.
    """

    def __init__(
        self,
        config: ReportConfig,
        folder: Path,
        spec: ClassSpec,
        metrics: MetricsConfig | None = None,
        *,
        files: Callable[[str], Sequence[Path]],
    ) -> None:
        self._folder = folder
        self._files = files
        self._gallery = Gallery(folder, config, spec)
        self._spec = spec
        self._metrics = metrics
        self._classes = None if metrics is None else mean_classes(metrics, spec)
        self._worst = WorstCases(folder, spec, config.worst)

    def draw(self, prediction: Prediction, cleaned: Cleaned, row: CaseRow | None = None) -> dict[str, Any]:
        """Draw a case if it is among the chosen so far; name -> size and hash, of what was drawn."""
        sample = prediction.sample
        image, *masks = self._files(sample.case_id)
        score, class_scores = (None, ()) if row is None else self._scores(row)
        names = list[str]()
        if row is not None and score is not None and sample.target is not None:
            step = math.ceil(row.height / cleaned.labels.shape[-2])  # of a case that is larger than memory
            maps = {"image": sample.image, "target": sample.target, "labels": cleaned.labels}
            names += [self._crops(sample.case_id)] * self._worst.offer(sample.case_id, score, **maps, step=step)
        drawn = self._gallery.offer(
            sample.case_id,
            image=sample.image,
            target=sample.target,
            labels=cleaned.labels,
            score=score,
            class_scores=class_scores,
            objects=measured_objects(
                self._metrics, sample.instances, cleaned.instances if cleaned.labels.ndim == 2 else None
            ),
            notes={"files": file_names({"image": [image], "target": masks})},
        )
        names += self._pictures(sample.case_id) if drawn else ()
        return {name: describe_file(self._folder / name) for name in names}

    def remember(self, case_id: str, row: CaseRow | None) -> None:
        """Let a case of an interrupted run take part in the choice."""
        score, class_scores = (None, ()) if row is None else self._scores(row)
        self._gallery.remember(case_id, score, class_scores)
        if score is not None:
            self._worst.remember(case_id, score)

    def names(self, case_id: str) -> tuple[str, ...]:
        """The names of all that may be drawn of a case, in the run's folder: picture, layers, crops."""
        return *self._pictures(case_id), self._crops(case_id)

    def kept(self) -> list[str]:
        """The names of what is chosen now."""
        pictures = (name for case_id in self._gallery.chosen() for name in self._pictures(case_id))
        return [*pictures, *map(self._crops, self._worst.chosen())]

    def _pictures(self, case_id: str) -> tuple[str, str]:
        return str(picture_path(Path(OVERLAYS), case_id)), str(layers_path(Path(), case_id))

    def _crops(self, case_id: str) -> str:
        return str(crops_path(Path(), case_id))

    def _scores(self, row: CaseRow) -> tuple[float, Sequence[float]]:
        """The headline of a case, and its IoU per class."""
        scores = overlap_scores(row.counts, task=self._spec.task, classes=self._classes)
        return float(headline_scores(scores, self._spec.task)), scores.iou.tolist()
