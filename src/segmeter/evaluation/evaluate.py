"""Evaluates a checkpoint on a data set, or predicts images without targets; both run the same cases the same way."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import numpy as np
from torch import nn

from segmeter.classes import ClassSpec
from segmeter.data.files.array import LazyArray
from segmeter.data.folders.folds import check_dealing
from segmeter.data.verification.intensity import ScaleWatch
from segmeter.distributed.shards import note_shard
from segmeter.errors import DataError
from segmeter.evaluation.large import check_streamable
from segmeter.evaluation.manifest import open_manifest
from segmeter.evaluation.predicted import CaseRun, run_cases
from segmeter.evaluation.resume import repair_finished, restore_cases
from segmeter.files import write_json
from segmeter.inference.results import Prediction
from segmeter.losses.additive import additive
from segmeter.metrics.cases.stored import write_cases
from segmeter.metrics.cases.table import CaseRow
from segmeter.metrics.cases.typed import divide_terms
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.measures.protocol import CaseMaps, Measure, build_measures
from segmeter.metrics.measures.row import BandedMaps, make_row
from segmeter.metrics.probabilities.stored import NAME as SUMS
from segmeter.metrics.probabilities.stored import empty_sums, summarise_calibration, write_sums
from segmeter.metrics.summary.slice_labels import check_tables
from segmeter.metrics.summary.summarise import summarise
from segmeter.postprocess.pipeline import Cleaned
from segmeter.records import Summary, read_json

SUMMARY = "metrics.json"

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Evaluation(CaseRun):
    """A model and the cases to evaluate it on; each case of `dataset` must have a target.

    Parameters
    ----------
    loss
        Reported beside the metrics, per case and of all cases as one batch, or None.
    metrics
        Its group of the configuration.
    """

    loss: nn.Module | None
    metrics: MetricsConfig


def evaluate(job: Evaluation) -> dict[str, Any]:
    """Predict every case once, write the files that the configuration asks for, and measure it.

    Writes predictions/, cases.parquet, cases.csv and metrics.json into the run's folder, and manifest.json, from which
    an interrupted run is resumed.

    Returns
    -------
    dict
        The content of metrics.json.

    Raises
    ------
    DataError
        A case has no target, or a file can't be read or changed since it was checked.
    ConfigError
        The resumed run used another configuration, something needs a whole map that is larger than memory, or cases
        were assigned to splits differently in training.
    RunError
        A prediction is not finite, or a file can't be written.
    """
    dataset, metrics = job.dataset, job.metrics
    for member in getattr(job.predictor.segmenter, "members", [job.predictor.segmenter]):
        check_dealing(dataset.dealt, member.card.data, split=dataset.split, model="the checkpoint")
    spec = dataset.spec
    loss = None if job.loss is None else additive(job.loss, spec)
    check_streamable(
        dataset,
        export=job.export,
        postprocess=job.postprocess,
        loss=loss,
        measures=[measure.name for measure in metrics.measures],
        calibration=metrics.calibration,
    )
    manifest = open_manifest(job.folder, job.identity, dataset.case_ids, resume=job.resume)
    if manifest.done:
        repair_finished(job, manifest)
        return read_json(job.folder / SUMMARY, Summary)
    sums = empty_sums(spec) if metrics.calibration else None
    measure = partial(measure_prediction, metrics, build_measures(metrics, spec), spec)

    def calibrate(prediction: Prediction) -> None:
        target, probs = prediction.sample.target, prediction.probs
        if sums is not None and probs is not None and target is not None:
            sums.update(target, probs)

    try:  # calibration needs every probability, so with it all cases are predicted again
        done, probs = restore_cases(job, manifest, none=metrics.calibration), sums is not None
        run_cases(job, manifest, done=done, what="evaluating", measure=measure, loss=loss, probs=probs, see=calibrate)
    finally:
        manifest.close()
    rows = manifest.table(spec)
    summary = summarise(rows, spec, metrics) | note_shard(job.identity)
    check_tables(metrics, manifest.identity)
    if sums is not None:
        summary["calibration"] = summarise_calibration(sums.compute(), spec)
        write_sums(job.folder, sums)
    written = write_cases(job.folder, rows, spec)
    write_json(job.folder / SUMMARY, summary)
    manifest.finish((SUMMARY, *written, *([] if sums is None else [SUMS])))
    return summary


def measure_prediction(
    metrics: MetricsConfig, measures: Sequence[Measure], spec: ClassSpec, prediction: Prediction, cleaned: Cleaned
) -> CaseRow:
    """Measure a case after post-processing. Its spacing is the configured one, or else that of its file.

    Raises
    ------
    DataError
        The case has no target.
    """
    row, terms = make_row(_maps_of(metrics, spec, prediction, cleaned), measures), prediction.loss
    geometry = None if metrics.spacing else prediction.sample.geometry
    return replace(
        row,
        loss=None if terms is None else divide_terms(terms[None]),
        loss_terms=() if terms is None else tuple((total, denominator) for total, denominator in terms.tolist()),
        changed_pixels=cleaned.changed,
        spacing=metrics.spacing if geometry is None else geometry.spacing,
        unit="" if geometry is None else geometry.unit or "",
    )


def _maps_of(
    metrics: MetricsConfig, spec: ClassSpec, prediction: Prediction, cleaned: Cleaned
) -> CaseMaps | BandedMaps:
    sample = prediction.sample
    if sample.target is None:
        raise DataError(f"evaluate: expected a target for every case, got none for {sample.case_id}. Use predict.")
    if not isinstance(sample.target, np.ndarray):  # the image is larger than memory
        labels = cast(LazyArray, prediction.labels)
        return BandedMaps(case_id=sample.case_id, target=sample.target, labels=labels, spec=spec)
    stated = (1.0,) * 2 if sample.geometry is None else sample.geometry.spacing or (1.0,) * 3
    return CaseMaps(
        case_id=sample.case_id,
        target=sample.target,
        labels=cleaned.labels,
        spacing=metrics.spacing or stated,
        spec=spec,
        target_instances=sample.instances,
        instances=cleaned.instances,
        image=sample.image if sample.plane_axis is None else None,
    )


@dataclass(frozen=True, kw_only=True)
class PredictionRun(CaseRun):
    """Images without targets, and the folder of their label maps.

    Warns once if the images are not on the scale of those that the model was trained on.
    """


def predict(job: PredictionRun) -> int:
    """Predict every image and write its files under predictions/, and manifest.json, from which a run is resumed.

    A resumed run keeps finished cases. Files that are missing or changed are named and written again.

    Returns
    -------
    int
        The number of predicted images in all.

    Raises
    ------
    DataError
        A file can't be read.
    ConfigError
        The resumed run used another configuration or other images; or something needs a whole map that is larger than
        memory.
    RunError
        A prediction is not finite, or a file can't be written.
    """
    check_streamable(job.dataset, export=job.export, postprocess=job.postprocess)
    card = job.predictor.segmenter.card
    watch = ScaleWatch(card.mean, card.std, card.clip)
    manifest = open_manifest(job.folder, job.identity, job.dataset.case_ids, resume=job.resume)
    if manifest.done:
        repair_finished(job, manifest)
        return len(job.dataset)
    try:
        done = restore_cases(job, manifest)
        see = lambda prediction: _warn(watch.add(prediction.sample.image))  # noqa: E731
        run_cases(job, manifest, done=done, what="predicting", see=see)
    finally:
        manifest.close()
    _warn(watch.close())
    manifest.finish()
    return len(job.dataset)


def _warn(lines: Sequence[str]) -> None:
    for line in lines:
        _LOG.warning("%s", line)
