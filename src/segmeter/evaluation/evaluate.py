"""A checkpoint on a data set -> label maps, one row of counts per case, and the summary of the rows."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from torch import nn

from segmeter.data.folders.folds import check_dealing
from segmeter.data.verification.intensity import ScaleWatch
from segmeter.distributed.shards import note_shard
from segmeter.errors import DataError
from segmeter.evaluation.case_run import CaseRun, run_cases
from segmeter.evaluation.large.cases import check_streamable
from segmeter.evaluation.manifest import Manifest, open_manifest
from segmeter.evaluation.resume import repair_finished, restore_cases
from segmeter.files import write_json
from segmeter.inference.async_results import Prediction
from segmeter.inference.predictor import Loss
from segmeter.losses.additive import additive
from segmeter.metrics.cases.stored import write_cases
from segmeter.metrics.cases.table import CaseRow
from segmeter.metrics.cases.typed import divide_terms
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.measures.protocol import CaseMaps, Measure, build_measures
from segmeter.metrics.measures.row import bands_of, count_bands, make_row
from segmeter.metrics.probabilities.calibration import Calibration
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
    """What is evaluated, and what is kept of it; each case of `dataset` must have a target.

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
    """Predict every case once, write what was asked for, and measure it.

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
        The resumed run used another configuration, something needs a whole map that is larger than memory, or the cases
        are dealt otherwise than when the model was trained.
    RunError
        A prediction is not finite, or a file can't be written.
    """
    _check_dealing(job)
    loss = None if job.loss is None else additive(job.loss, job.dataset.spec.ignore_index)
    check_streamable(
        job.dataset,
        export=job.export,
        postprocess=job.postprocess,
        loss=loss,
        measures=[measure.name for measure in job.metrics.measures],
        calibration=job.metrics.calibration,
    )
    manifest = open_manifest(job.folder, job.identity, job.dataset.case_ids, resume=job.resume)
    if manifest.done:
        repair_finished(job, manifest)
        return read_json(job.folder / SUMMARY, Summary)
    sums = _calibration(job)
    try:  # calibration needs every probability, so with it all cases are predicted again
        done = restore_cases(job, manifest, none=job.metrics.calibration)
        _predict(job, manifest, done, sums, loss)
    finally:
        manifest.close()
    rows = manifest.table(job.dataset.spec)
    summary = summarise(rows, job.dataset.spec, job.metrics) | note_shard(job.identity)
    check_tables(job.metrics, manifest.identity)
    if sums is not None:
        summary["calibration"] = summarise_calibration(sums.compute(), job.dataset.spec)
        write_sums(job.folder, sums)
    written = write_cases(job.folder, rows, job.dataset.spec)
    write_json(job.folder / "metrics.json", summary)
    manifest.finish((SUMMARY, *written, *([] if sums is None else [SUMS])))
    return summary


def _predict(job: Evaluation, manifest: Manifest, done: int, sums: Calibration | None, loss: Loss | None) -> None:
    measure = partial(_measure, job, build_measures(job.metrics, job.dataset.spec))
    cases = run_cases(job, manifest, done=done, what="evaluating", measure=measure, loss=loss, probs=sums is not None)
    for case in cases:
        prediction = case.prediction
        if sums is not None and prediction.probs is not None and prediction.sample.target is not None:
            sums.update(prediction.sample.target, prediction.probs)


def _check_dealing(job: Evaluation) -> None:
    """Refuse a split of the data set that each model was trained on, where it is dealt otherwise now."""
    segmenter = job.predictor.segmenter
    for member in getattr(segmenter, "members", [segmenter]):
        dataset = job.dataset
        check_dealing(dataset.dealt, member.card.data, split=dataset.split, model="the checkpoint")


def _calibration(job: Evaluation) -> Calibration | None:
    """Calibration is that of the raw probabilities, before post-processing."""
    return empty_sums(job.dataset.spec) if job.metrics.calibration else None


def _measure(job: Evaluation, measures: Sequence[Measure], prediction: Prediction, cleaned: Cleaned) -> CaseRow:
    sample, spec = prediction.sample, job.dataset.spec
    if sample.target is None:
        raise DataError(f"evaluate: expected a target for every case, got none for {sample.case_id}. Use predict.")
    if isinstance(sample.target, np.ndarray):
        maps = CaseMaps(
            case_id=sample.case_id,
            target=sample.target,
            labels=cleaned.labels,
            spacing=job.metrics.spacing or (1.0, 1.0),
            spec=spec,
            target_instances=sample.instances,
            instances=cleaned.instances,
            image=sample.image,
        )
        row = make_row(maps, measures)
    else:  # read by lines, and counted alone
        row = count_bands(sample.case_id, sample.target.shape[-2:], bands_of(sample.target, cleaned.labels), spec)
    terms = prediction.loss
    return replace(
        row,
        loss=None if terms is None else divide_terms(terms[None]),
        loss_terms=() if terms is None else tuple((sums, denominators) for sums, denominators in terms.tolist()),
        changed_pixels=cleaned.changed,
        spacing=job.metrics.spacing,
    )


_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class PredictionRun(CaseRun):
    """Images without targets, and where their label maps go.

    Warns once where the images are not on the scale of those that the model was trained on.
    """


def predict(job: PredictionRun) -> int:
    """Predict every image and write its files under predictions/, and manifest.json, from which a run is resumed.

    A resumed run keeps what is done; files that are missing or not as they were written are made again, and named.

    Returns
    -------
    How many images are predicted in all.

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
        for case in run_cases(job, manifest, done=done, what="predicting"):
            _warn(watch.add(case.prediction.sample.image))
    finally:
        manifest.close()
    _warn(watch.close())
    manifest.finish()
    return len(job.dataset)


def _warn(lines: Sequence[str]) -> None:
    for line in lines:
        _LOG.warning("%s", line)
