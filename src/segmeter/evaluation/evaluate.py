"""A checkpoint on a data set -> label maps, one row of counts per case, and the summary of the rows."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from segmeter.data.dataset import Dataset
from segmeter.errors import DataError
from segmeter.export.config import ExportConfig
from segmeter.export.writer import Writer
from segmeter.files import write_json
from segmeter.inference.outbox import Prediction
from segmeter.inference.predictor import Predictor
from segmeter.metrics.calibrated import summarise_calibration
from segmeter.metrics.calibration import Calibration
from segmeter.metrics.config import MetricsConfig
from segmeter.metrics.counts import confusion_matrix, multilabel_counts
from segmeter.metrics.measures import CaseMaps, Measure, build_measures, measure_case
from segmeter.metrics.rows import CaseRow, write_cases
from segmeter.metrics.store import RowStore
from segmeter.metrics.summary import summarise
from segmeter.postprocess.config import PostprocessConfig
from segmeter.postprocess.pipeline import Cleaned, run_steps
from segmeter.progress import track


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """What is evaluated, and what is kept of it.

    Parameters
    ----------
    predictor
        The model with its tiling, flips and device.
    dataset
        The cases; each must have a target.
    loss
        Reported per case beside the metrics, or None.
    export, postprocess, metrics
        Their groups of the configuration.
    folder
        The run's folder.
    on_case
        Called with every case when it has been measured, for example to draw it.
    """

    predictor: Predictor
    dataset: Dataset
    loss: nn.Module | None
    export: ExportConfig
    postprocess: PostprocessConfig
    metrics: MetricsConfig
    folder: Path
    on_case: Callable[[Prediction, Cleaned, CaseRow], None]


def evaluate(job: Evaluation) -> dict[str, Any]:
    """Predict every case once, write what was asked for, and measure it.

    Writes predictions/, cases.parquet, cases.csv and metrics.json into the run's folder.

    Returns
    -------
    dict
        The content of metrics.json.

    Raises
    ------
    DataError
        A case has no target, or a file can't be read.
    RunError
        A prediction is not finite, or a file can't be written.
    """
    spec = job.dataset.spec
    rows, measures, sums = RowStore(), build_measures(job.metrics, spec), _calibration(job)
    with Writer(job.folder / "predictions", job.export, spec) as writer:
        wanted = job.export.probs or sums is not None
        predictions = job.predictor.predict(job.dataset, probs=wanted, loss=job.loss)
        for prediction in track(predictions, "evaluating", len(job.dataset)):
            cleaned = run_steps(prediction.labels, job.postprocess.steps, spec)
            export_case(writer, prediction, cleaned, job.export)
            row = _measure(job, measures, prediction, cleaned)
            rows.append(row)
            if sums is not None and prediction.probs is not None and prediction.sample.target is not None:
                sums.update(prediction.sample.target, prediction.probs)
            job.on_case(prediction, cleaned, row)
    write_cases(job.folder, rows, spec)
    summary = summarise(rows, spec, job.metrics)
    if sums is not None:
        summary["calibration"] = summarise_calibration(sums.compute(), spec)
    write_json(job.folder / "metrics.json", summary)
    return summary


def _calibration(job: Evaluation) -> Calibration | None:
    """Of the raw probabilities: post-processing has no part in them."""
    spec = job.dataset.spec
    if not job.metrics.calibration:
        return None
    return Calibration(num_classes=spec.num_classes, task=spec.task, ignore_index=spec.ignore_index)


def export_case(writer: Writer, prediction: Prediction, cleaned: Cleaned, export: ExportConfig) -> None:
    """Hand one case's files to the writer's threads."""
    case_id = prediction.sample.case_id
    if export.labels:
        writer.write_labels(case_id, cleaned.labels)
    if export.probs and prediction.probs is not None:
        writer.write_probs(case_id, prediction.probs)
    if export.instances and cleaned.instances is not None:
        writer.write_instances(case_id, cleaned.instances)


def _measure(job: Evaluation, measures: Sequence[Measure], prediction: Prediction, cleaned: Cleaned) -> CaseRow:
    sample, spec = prediction.sample, job.dataset.spec
    if sample.target is None:
        raise DataError(f"evaluate: expected a target for every case, got none for {sample.case_id}. Use predict.")
    if spec.task == "multilabel":
        counts = multilabel_counts(sample.target, cleaned.labels, ignore_index=spec.ignore_index)
    else:
        counts = confusion_matrix(
            sample.target, cleaned.labels, num_classes=spec.num_classes, ignore_index=spec.ignore_index
        )
    maps = CaseMaps(
        case_id=sample.case_id,
        target=sample.target,
        labels=cleaned.labels,
        spacing=job.metrics.spacing or (1.0, 1.0),
        spec=spec,
        instances=cleaned.instances,
    )
    height, width = sample.image.shape[:2]
    return CaseRow(
        case_id=sample.case_id,
        height=height,
        width=width,
        counts=counts,
        loss=prediction.loss,
        changed_pixels=cleaned.changed,
        extra=measure_case(maps, measures),
        spacing=job.metrics.spacing,
    )
