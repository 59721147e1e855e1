"""A checkpoint on images without reference -> label maps."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from segmeter.data.dataset import Dataset
from segmeter.data.verification.intensity import ScaleWatch
from segmeter.evaluation.evaluate import export_case
from segmeter.export.config import ExportConfig
from segmeter.export.writer import Writer
from segmeter.inference.async_results import Prediction
from segmeter.inference.predictor import Predictor
from segmeter.postprocess.config import PostprocessConfig
from segmeter.postprocess.pipeline import Cleaned, run_steps
from segmeter.progress import track

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class PredictionRun:
    """What is predicted, and where the label maps go.

    Parameters
    ----------
    predictor
        The model with its tiling, flips and device.
    dataset
        The images, without targets.
    export, postprocess
        Their groups of the configuration.
    folder
        The run's folder.
    on_case
        Called with every case, for example to draw it.

    Warns once where the images are not on the scale of those that the model was trained on.
    """

    predictor: Predictor
    dataset: Dataset
    export: ExportConfig
    postprocess: PostprocessConfig
    folder: Path
    on_case: Callable[[Prediction, Cleaned], None]


def predict(job: PredictionRun) -> int:
    """Predict every image and write its files under predictions/; returns how many cases were written."""
    spec, card = job.dataset.spec, job.predictor.segmenter.card
    watch = ScaleWatch(card.mean, card.std)
    with Writer(job.folder / "predictions", job.export, spec) as writer:
        predictions = job.predictor.predict(job.dataset, probs=job.export.probs)
        for prediction in track(predictions, "predicting", len(job.dataset), parts=job.predictor.watch):
            cleaned = run_steps(prediction.labels, job.postprocess.steps, spec)
            export_case(writer, prediction, cleaned, job.export)
            job.on_case(prediction, cleaned)
            _warn(watch.add(prediction.sample.image))
    _warn(watch.close())
    return len(job.dataset)


def _warn(lines: Sequence[str]) -> None:
    for line in lines:
        _LOG.warning("%s", line)
