"""A checkpoint on a data set -> label maps, one row of counts per case, and the summary of the rows."""

import json
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

from torch import nn

from segmeter.checks import some
from segmeter.data.dataset import Dataset
from segmeter.errors import DataError, RunError
from segmeter.evaluation.manifest import Entry, Manifest, read_notes
from segmeter.evaluation.restore import Part, count_restorable, describe, find_damaged, split_batches
from segmeter.export.config import ExportConfig
from segmeter.export.writer import Writer
from segmeter.files import clear_leftovers, write_json
from segmeter.inference.async_results import Prediction
from segmeter.inference.predictor import Predictor
from segmeter.losses.additive import additive, loss_terms
from segmeter.metrics.cases.packed import RowStore
from segmeter.metrics.cases.table import CaseRow, divide_terms, write_cases
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.measures.protocol import CaseMaps, Measure, build_measures
from segmeter.metrics.measures.row import make_row
from segmeter.metrics.probabilities.calibration import Calibration
from segmeter.metrics.probabilities.summary import summarise_calibration
from segmeter.metrics.summary.summary import summarise
from segmeter.postprocess.config import PostprocessConfig
from segmeter.postprocess.pipeline import Cleaned, run_steps
from segmeter.progress import track

RESULTS = ("metrics.json", "cases.parquet", "cases.csv")

_LOG = logging.getLogger(__name__)


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
        Reported beside the metrics, per case and of all cases as one batch, or None.
    export, postprocess, metrics
        Their groups of the configuration.
    folder
        The run's folder.
    on_case
        Called with every case when it has been measured, for example to draw it.
    identity
        Everything that determines the results; a run is resumed only if it is the same.
    resume
        Whether to continue the run in `folder`.
    on_restored
        Called with the row of every case that is kept from the interrupted run.
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
        The resumed run used another configuration.
    RunError
        A prediction is not finite, or a file can't be written.
    """
    start = Manifest.resume if job.resume else Manifest.begin
    manifest = start(job.folder, job.identity, job.dataset.case_ids)
    if manifest.done:
        damaged = manifest.damaged_results()
        if not damaged:
            notes = read_notes(job.folder)
            _repair(job, [notes[case_id]["note"] for case_id in manifest.cases])
            return cast(dict[str, Any], json.loads((job.folder / "metrics.json").read_bytes()))
        _LOG.warning("resume: missing or damaged results are written again (%s).", some(damaged))
        manifest = Manifest.begin(job.folder, job.identity, job.dataset.case_ids)
    rows, sums = RowStore(), _calibration(job)
    try:
        _restore(job, manifest, rows)
        _predict(job, manifest, rows, sums)
    finally:
        manifest.close()
    summary = summarise(rows, job.dataset.spec, job.metrics)
    if sums is not None:
        summary["calibration"] = summarise_calibration(sums.compute(), job.dataset.spec)
    write_cases(job.folder, rows, job.dataset.spec)
    write_json(job.folder / "metrics.json", summary)
    manifest.finish(RESULTS)
    return summary


def _restore(job: Evaluation, manifest: Manifest, rows: RowStore) -> None:
    """Keep the cases that are done; calibration needs every probability, so with it all cases are predicted again."""
    clear_leftovers(job.folder / "predictions")
    size = job.predictor.config.batch_size
    keep = count_restorable(manifest, batch_size=size) if job.resume and not job.metrics.calibration else 0
    notes = []
    for entry in manifest.entries(keep=keep):
        rows.append(entry.row)
        notes.append(entry.note)
        job.on_restored(entry.row)
    _repair(job, notes)


def _repair(job: Evaluation, notes: Sequence[Mapping[str, Any]]) -> None:
    """Write missing or damaged files of finished cases again, in the batches in which the cases were predicted.

    Raises
    ------
    RunError
        A file differs from what it was, as it may on another machine.
    """
    predictions = job.folder / "predictions"
    damaged = find_damaged(notes, predictions)
    if not damaged:
        return
    names = [name for found in damaged.values() for name in found]
    _LOG.warning("resume: missing or damaged files of predictions are written again (%s).", some(names))
    kinds, spec = [note["image"] for note in notes], job.dataset.spec
    for batch in split_batches(kinds, job.predictor.config.batch_size):
        if not damaged.keys() & set(batch):
            continue
        with Writer(predictions, job.export, spec) as writer:
            found = job.predictor.predict(Part(job.dataset, batch), probs=job.export.probs)
            for index, prediction in zip(batch, found, strict=True):
                if index in damaged:
                    cleaned = run_steps(prediction.labels, job.postprocess.steps, spec)
                    export_case(writer, prediction, cleaned, job.export)
    again = find_damaged([notes[index] for index in damaged], predictions)
    if again:
        names = [name for found in again.values() for name in found]
        remedy = "Start a new run with resume=null."
        raise RunError(f"resume: predictions differ from those of the resumed run ({some(names)}). {remedy}")


def _predict(job: Evaluation, manifest: Manifest, rows: RowStore, sums: Calibration | None) -> None:
    spec, measures = job.dataset.spec, build_measures(job.metrics, job.dataset.spec)
    rest = Part(job.dataset, range(len(rows), len(job.dataset)))
    with Writer(job.folder / "predictions", job.export, spec, hashed=True) as writer:
        noted = _Noted(manifest, writer)
        wanted = job.export.probs or sums is not None
        loss = None if job.loss is None else partial(loss_terms, additive(job.loss, spec.ignore_index))
        predictions = job.predictor.predict(rest, probs=wanted, loss=loss)
        for prediction in track(predictions, "evaluating", len(rest), parts=job.predictor.watch):
            cleaned = run_steps(prediction.labels, job.postprocess.steps, spec)
            export_case(writer, prediction, cleaned, job.export)
            row = _measure(job, measures, prediction, cleaned)
            if sums is not None and prediction.probs is not None and prediction.sample.target is not None:
                sums.update(prediction.sample.target, prediction.probs)
            job.on_case(prediction, cleaned, row)
            rows.append(row)
            noted.add(Entry(row=row, sha256="", note=describe(prediction.sample)))
        writer.close()
        noted.flush()


class _Noted:
    """Adds each case to the manifest once its files are written, so that every case in the manifest is done."""

    def __init__(self, manifest: Manifest, writer: Writer) -> None:
        self._manifest = manifest
        self._writer = writer
        self._waiting: deque[tuple[Entry, list[str]]] = deque()

    def add(self, entry: Entry) -> None:
        """Take a case whose files were just queued."""
        self._waiting.append((entry, self._writer.queued_names()))
        self.flush()

    def flush(self) -> None:
        """Add the cases whose files are written, in their order."""
        while self._waiting:
            entry, names = self._waiting[0]
            files = self._writer.take_written(names)
            if files is None:
                return
            self._waiting.popleft()
            self._manifest.add(replace(entry, note={**entry.note, "files": files}))


def _calibration(job: Evaluation) -> Calibration | None:
    """Calibration is that of the raw probabilities, before post-processing."""
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
    terms = prediction.loss
    return replace(
        make_row(maps, measures),
        loss=None if terms is None else divide_terms(terms[None]),
        loss_terms=() if terms is None else tuple((sums, denominators) for sums, denominators in terms.tolist()),
        changed_pixels=cleaned.changed,
        spacing=job.metrics.spacing,
    )
