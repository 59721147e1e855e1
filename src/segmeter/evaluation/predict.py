"""A checkpoint on images without reference -> label maps."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from segmeter.data.dataset import Dataset
from segmeter.evaluation.evaluate import export_case
from segmeter.evaluation.manifest import Manifest
from segmeter.evaluation.restore import Part
from segmeter.evaluation.sharding import BatchOf, split_passes
from segmeter.export.config import ExportConfig
from segmeter.export.writer import Writer
from segmeter.inference.async_results import Prediction
from segmeter.inference.predictor import Predictor
from segmeter.postprocess.config import PostprocessConfig
from segmeter.postprocess.pipeline import Cleaned, run_steps
from segmeter.progress import track


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
    identity
        Everything that determines the results; shards are merged only where it is the same.
    batches
        Of a shard: the batch of each of its cases in the whole run, from `take_batches`; None groups them as they come.
    """

    predictor: Predictor
    dataset: Dataset
    export: ExportConfig
    postprocess: PostprocessConfig
    folder: Path
    on_case: Callable[[Prediction, Cleaned], None]
    identity: Mapping[str, Any] = field(default_factory=dict)
    batches: Sequence[BatchOf] | None = None


def predict(job: PredictionRun) -> int:
    """Predict every image and write its files under predictions/; returns how many cases were written.

    manifest.json lists them at the end, with the hash of every file.
    """
    spec, names = job.dataset.spec, dict[str, list[str]]()
    manifest = Manifest.begin(job.folder, job.identity, job.dataset.case_ids)
    with Writer(job.folder / "predictions", job.export, spec, hashed=True) as writer:
        for prediction in track(_predictions(job), "predicting", len(job.dataset), parts=job.predictor.watch):
            cleaned = run_steps(prediction.labels, job.postprocess.steps, spec)
            export_case(writer, prediction, cleaned, job.export)
            names[prediction.sample.case_id] = writer.queued_names()
            job.on_case(prediction, cleaned)
        writer.close()
        for case_id, written in names.items():
            manifest.note(case_id, {"files": writer.take_written(written)})
    manifest.finish()
    return len(job.dataset)


def _predictions(job: PredictionRun) -> Iterator[Prediction]:
    every, size = range(len(job.dataset)), job.predictor.config.batch_size
    for part in [every] if job.batches is None else split_passes(job.batches, every, size):
        yield from job.predictor.predict(Part(job.dataset, part), probs=job.export.probs)
