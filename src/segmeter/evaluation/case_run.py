"""Cases -> predicted, post-processed, measured and written, each noted in the manifest when its files are complete."""

import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from segmeter.checks import some
from segmeter.data.dataset import Dataset
from segmeter.errors import RunError
from segmeter.evaluation.manifest import Entry, Manifest
from segmeter.evaluation.restore import Part, count_restorable, describe, find_damaged, split_batches
from segmeter.evaluation.sharding import BatchOf, split_passes
from segmeter.export.config import ExportConfig
from segmeter.export.writer import Writer
from segmeter.files import clear_leftovers
from segmeter.inference.async_results import Prediction
from segmeter.inference.predictor import Loss, Predictor
from segmeter.metrics.cases.table import CaseRow
from segmeter.parallel import count_cores, map_in_threads
from segmeter.postprocess.config import PostprocessConfig
from segmeter.postprocess.pipeline import Cleaned, run_steps
from segmeter.progress import track

PREDICTIONS = "predictions"

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class CaseRun:
    """A model on cases, and where their files go: what `evaluate` and `predict` share.

    Parameters
    ----------
    predictor
        The model with its tiling, test-time augmentation and device.
    dataset
        The cases.
    export, postprocess
        Their groups of the configuration.
    folder
        The run's folder.
    identity
        Everything that determines the results; a run is resumed only if it is the same.
    resume
        Whether to continue the run in `folder`.
    batches
        Of a shard: the batch of each of its cases in the whole run, from `take_batches`; None groups them as they come.
    """

    predictor: Predictor
    dataset: Dataset
    export: ExportConfig
    postprocess: PostprocessConfig
    folder: Path
    identity: Mapping[str, Any] = field(default_factory=dict)
    resume: bool = False
    batches: Sequence[BatchOf] | None = None

    def predictions(self, cases: range, *, probs: bool, loss: Loss | None = None) -> Iterator[Prediction]:
        """Predict some cases, in the batches of the whole run."""
        size = self.predictor.config.batch_size
        for part in [cases] if self.batches is None else split_passes(self.batches, cases, size):
            yield from self.predictor.predict(Part(self.dataset, part), probs=probs, loss=loss)


@dataclass(frozen=True, kw_only=True, eq=False)
class Finished:
    """A case after post-processing; `row` where it is measured."""

    prediction: Prediction
    cleaned: Cleaned
    row: CaseRow | None


Measuring = Callable[[Prediction, Cleaned], CaseRow | None]


def open_manifest(job: CaseRun) -> Manifest:
    """Start the run's manifest, or continue that of the run that is resumed.

    Raises
    ------
    ConfigError
        The resumed run used another configuration or other cases.
    """
    start = Manifest.resume if job.resume else Manifest.begin
    return start(job.folder, job.identity, job.dataset.case_ids)


def restore_cases(job: CaseRun, manifest: Manifest, *, none: bool = False) -> Iterator[Entry]:
    """Yield the finished cases that are kept, then write their missing or damaged files again; `none` keeps none."""
    clear_leftovers(job.folder / PREDICTIONS)
    size = job.predictor.config.batch_size
    keep = 0 if none or not job.resume else count_restorable(manifest, batch_size=size, batches=job.batches)
    notes = []
    for entry in manifest.entries(keep=keep):
        notes.append(entry.note)
        yield entry
    repair_files(job, notes)


def repair_files(job: CaseRun, notes: Sequence[Mapping[str, Any]]) -> None:
    """Write missing or damaged files of finished cases again, in the batches in which the cases were predicted.

    Parameters
    ----------
    notes
        What was noted of the first cases, in their order.

    Raises
    ------
    RunError
        A file differs from what it was, as it may on another machine.
    """
    predictions = job.folder / PREDICTIONS
    damaged = find_damaged(notes, predictions)
    if not damaged:
        return
    names = [name for found in damaged.values() for name in found]
    _LOG.warning("resume: missing or damaged files of predictions are written again (%s).", some(names))
    spec = job.dataset.spec
    kinds = [note["image"] for note in notes] if job.batches is None else job.batches[: len(notes)]
    for batch in split_batches(kinds, job.predictor.config.batch_size):
        if not damaged.keys() & set(batch):
            continue
        with Writer(predictions, job.export, spec) as writer:
            found = job.predictor.predict(Part(job.dataset, batch), probs=job.export.needs_probs)
            for index, prediction in zip(batch, found, strict=True):
                if index in damaged:
                    cleaned = run_steps(prediction.labels, job.postprocess.steps, spec)
                    export_case(writer, prediction, cleaned, job.export)
    again = find_damaged([notes[index] for index in damaged], predictions)
    if again:
        names = [name for found in again.values() for name in found]
        remedy = "Start a new run with resume=null."
        raise RunError(f"resume: predictions differ from those of the resumed run ({some(names)}). {remedy}")


def run_cases(
    job: CaseRun,
    manifest: Manifest,
    *,
    done: int,
    what: str,
    measure: Measuring = lambda prediction, cleaned: None,
    probs: bool = False,
    loss: Loss | None = None,
) -> Iterator[Finished]:
    """Predict all cases after the first `done`, write their files, and note them; yield each in its order.

    Post-processing and measuring run in threads beside the forward passes, and the files are written in others.

    Parameters
    ----------
    what
        What is being done, for the progress bar.
    measure
        Called in threads with each case that is post-processed.
    probs
        Whether probabilities are needed though none are written.
    loss
        As for `Predictor.predict`.

    Raises
    ------
    DataError
        A file can't be read.
    RunError
        A prediction is not finite, or a file can't be written. The cases before it are noted.
    """
    rest = range(done, len(job.dataset))
    stages, spec, threads = job.predictor.stages, job.dataset.spec, count_cores()

    def finish(prediction: Prediction) -> Finished:
        with stages.timed("post-process"):
            cleaned = run_steps(prediction.labels, job.postprocess.steps, spec)
        with stages.timed("measure"):
            row = measure(prediction, cleaned)
        return Finished(prediction=prediction, cleaned=cleaned, row=row)

    with Writer(job.folder / PREDICTIONS, job.export, spec, hashed=True, stages=stages) as writer:
        noted = _Noted(manifest, writer)
        predictions = job.predictions(rest, probs=job.export.needs_probs or probs, loss=loss)
        ahead = threads + job.predictor.config.batch_size  # a whole batch is handed over before the next one is run
        with closing(map_in_threads(finish, predictions, threads=threads, ahead=ahead, name="finish")) as cases:
            for case in track(cases, what, len(rest), parts=job.predictor.watch):
                export_case(writer, case.prediction, case.cleaned, job.export)
                yield case
                note = describe(case.prediction.sample)
                noted.add(Entry(case_id=case.prediction.sample.case_id, row=case.row, note=note))
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


def export_case(writer: Writer, prediction: Prediction, cleaned: Cleaned, export: ExportConfig) -> None:
    """Hand one case's files to the writer's threads."""
    case_id = prediction.sample.case_id
    if export.labels:
        writer.write_labels(case_id, cleaned.labels)
    if export.probs and prediction.probs is not None:
        writer.write_probs(case_id, prediction.probs)
    if export.confidence and prediction.probs is not None:
        writer.write_confidence(case_id, prediction.probs, prediction.labels)
    if export.instances and cleaned.instances is not None:
        writer.write_instances(case_id, cleaned.instances)
    if export.objects:
        writer.write_objects(case_id, cleaned.labels, cleaned.instances)
