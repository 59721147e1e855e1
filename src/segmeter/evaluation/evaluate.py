"""A checkpoint on a data set -> label maps, one row of counts per case, and the summary of the rows."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from torch import nn

from segmeter.data.dataset import Dataset
from segmeter.errors import DataError
from segmeter.evaluation.manifest import Entry, Manifest
from segmeter.evaluation.restore import Rest, count_restorable, describe
from segmeter.export.config import ExportConfig
from segmeter.export.writer import Writer
from segmeter.files import write_json
from segmeter.inference.outbox import Prediction
from segmeter.inference.predictor import Predictor
from segmeter.metrics.calibrated import summarise_calibration
from segmeter.metrics.calibration import Calibration
from segmeter.metrics.config import MetricsConfig
from segmeter.metrics.counts import count_case
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
    identity
        All that decides the results; a run goes on only where it is the same.
    resume
        Whether to go on with the run in `folder`.
    on_restored
        Called with the row of every case that is taken over from the interrupted run.
    """

    predictor: Predictor
    dataset: Dataset
    loss: nn.Module | None
    export: ExportConfig
    postprocess: PostprocessConfig
    metrics: MetricsConfig
    folder: Path
    on_case: Callable[[Prediction, Cleaned, CaseRow], None]
    identity: Mapping[str, Any] = field(default_factory=dict)
    resume: bool = False
    on_restored: Callable[[CaseRow], None] = lambda row: None


def evaluate(job: Evaluation) -> dict[str, Any]:
    """Predict every case once, write what was asked for, and measure it.

    Writes predictions/, cases.parquet, cases.csv and metrics.json into the run's folder, and manifest.json, from which
    an interrupted run goes on.

    Returns
    -------
    dict
        The content of metrics.json.

    Raises
    ------
    DataError
        A case has no target, or a file can't be read.
    ConfigError
        The run that is resumed was begun otherwise.
    RunError
        A prediction is not finite, or a file can't be written.
    """
    start = Manifest.resume if job.resume else Manifest.begin
    manifest = start(job.folder, job.identity, job.dataset.case_ids)
    if manifest.done:
        return cast(dict[str, Any], json.loads((job.folder / "metrics.json").read_bytes()))
    rows, sums = RowStore(), _calibration(job)
    try:
        _restore(job, manifest, rows)
        _predict(job, manifest, rows, sums)
    finally:
        manifest.close()
    write_cases(job.folder, rows, job.dataset.spec)
    summary = summarise(rows, job.dataset.spec, job.metrics)
    if sums is not None:
        summary["calibration"] = summarise_calibration(sums.compute(), job.dataset.spec)
    write_json(job.folder / "metrics.json", summary)
    manifest.finish()
    return summary


def _restore(job: Evaluation, manifest: Manifest, rows: RowStore) -> None:
    """Take over the cases that are done; for calibration every probability has to be seen again."""
    size = job.predictor.config.batch_size
    keep = count_restorable(manifest, job.folder / "predictions", batch_size=size) if job.resume else 0
    for entry in manifest.entries(keep=0 if job.metrics.calibration else keep):
        rows.append(entry.row)
        job.on_restored(entry.row)


def _predict(job: Evaluation, manifest: Manifest, rows: RowStore, sums: Calibration | None) -> None:
    spec, measures = job.dataset.spec, build_measures(job.metrics, job.dataset.spec)
    rest = Rest(job.dataset, len(rows))
    with Writer(job.folder / "predictions", job.export, spec) as writer:
        wanted = job.export.probs or sums is not None
        predictions = job.predictor.predict(rest, probs=wanted, loss=job.loss)
        for prediction in track(predictions, "evaluating", len(rest), parts=job.predictor.watch):
            cleaned = run_steps(prediction.labels, job.postprocess.steps, spec)
            export_case(writer, prediction, cleaned, job.export)
            row = _measure(job, measures, prediction, cleaned)
            rows.append(row)
            if sums is not None and prediction.probs is not None and prediction.sample.target is not None:
                sums.update(prediction.sample.target, prediction.probs)
            job.on_case(prediction, cleaned, row)
            note = describe(prediction.sample, writer.queued_names())
            manifest.add(Entry(row=row, sha256="", note=note))  # last: what is noted is done


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
    maps = CaseMaps(
        case_id=sample.case_id,
        target=sample.target,
        labels=cleaned.labels,
        spacing=job.metrics.spacing or (1.0, 1.0),
        spec=spec,
        target_instances=sample.instances,
        instances=cleaned.instances,
    )
    height, width = sample.image.shape[:2]
    return CaseRow(
        case_id=sample.case_id,
        height=height,
        width=width,
        counts=count_case(sample.target, cleaned.labels, spec),
        loss=prediction.loss,
        changed_pixels=cleaned.changed,
        extra=measure_case(maps, measures),
        spacing=job.metrics.spacing,
    )
