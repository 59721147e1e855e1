"""Cases -> predicted, post-processed, measured and written, each noted in the manifest when its files are complete."""

import logging
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from segmeter.checks import some
from segmeter.data.dataset import Dataset
from segmeter.distributed.batches import BatchOf, Part, split_batches, split_passes
from segmeter.errors import RunError
from segmeter.evaluation.large.cases import LargeRun, run_large, split_parts
from segmeter.evaluation.manifest import Entry, Manifest
from segmeter.evaluation.restore import count_restorable, describe, find_damaged
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
    streamed = job.dataset.streamed_cases()
    for batch in split_batches(kinds, job.predictor.config.batch_size):
        if not damaged.keys() & set(batch):
            continue
        if batch.start in streamed:
            run_large(large_run(job), batch.start)
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


def large_run(
    job: CaseRun, *, loss: Loss | None = None, measured: bool = False, spacing: tuple[float, ...] | None = None
) -> LargeRun:
    """What is done with the cases of a run that are larger than memory."""
    return LargeRun(
        predictor=job.predictor,
        dataset=job.dataset,
        export=job.export,
        postprocess=job.postprocess,
        folder=job.folder / PREDICTIONS,
        loss=loss,
        measured=measured,
        spacing=spacing,
    )


def run_cases(
    job: CaseRun,
    manifest: Manifest,
    *,
    done: int,
    what: str,
    large: LargeRun,
    measure: Measuring = lambda prediction, cleaned: None,
    probs: bool = False,
) -> Iterator[Finished]:
    """Predict all cases after the first `done`, write their files, and note them; yield each in its order.

    Post-processing and measuring run in threads beside the forward passes, and the files are written in others.

    Parameters
    ----------
    what
        What is being done, for the progress bar.
    large
        What is done with the cases that are larger than memory; its loss is that of all cases.
    measure
        Called in threads with each other case that is post-processed.
    probs
        Whether probabilities are needed though none are written.

    Raises
    ------
    DataError
        A file can't be read.
    RunError
        A prediction is not finite, or a file can't be written. The cases before it are noted.
    """
    rest, streamed = range(done, len(job.dataset)), job.dataset.streamed_cases()
    with Writer(large.folder, job.export, job.dataset.spec, hashed=True, stages=job.predictor.stages) as writer:
        noted = _Noted(manifest, writer)

        def cases() -> Generator[Finished, None, None]:
            for part in split_parts(rest, streamed):
                if part.start in streamed:
                    yield from _run_streamed(noted, large, part.start)
                else:
                    finish = partial(_finish, job, measure)
                    predictions = job.predictions(part, probs=job.export.needs_probs or probs, loss=large.loss)
                    yield from _run_part(job, writer, noted, predictions, finish)

        with closing(cases()) as found:
            yield from track(found, what, len(rest), parts=job.predictor.watch)
        writer.close()
        noted.flush()


def _run_part(
    job: CaseRun,
    writer: Writer,
    noted: "_Noted",
    predictions: Iterator[Prediction],
    finish: Callable[[Prediction], Finished],
) -> Iterator[Finished]:
    threads = count_cores()
    ahead = threads + job.predictor.config.batch_size  # a whole batch is handed over before the next one is run
    with closing(map_in_threads(finish, predictions, threads=threads, ahead=ahead, name="finish")) as cases:
        for case in cases:
            export_case(writer, case.prediction, case.cleaned, job.export)
            yield case
            sample = case.prediction.sample
            noted.add(Entry(case_id=sample.case_id, row=case.row, note=describe(sample)), writer.queued_names())


def _finish(job: CaseRun, measure: Measuring, prediction: Prediction) -> Finished:
    stages = job.predictor.stages
    with stages.timed("post-process"):
        cleaned = run_steps(prediction.labels, job.postprocess.steps, job.dataset.spec)
    with stages.timed("measure"):
        row = measure(prediction, cleaned)
    return Finished(prediction=prediction, cleaned=cleaned, row=row)


def _run_streamed(noted: "_Noted", large: LargeRun, index: int) -> Iterator[Finished]:
    case = run_large(large, index)
    yield Finished(prediction=case.prediction, cleaned=case.cleaned, row=case.row)
    note = {**case.note, "files": case.files}
    noted.add(Entry(case_id=case.prediction.sample.case_id, row=case.row, note=note), None)


class _Noted:
    """Adds each case to the manifest once its files are written, so that every case in the manifest is done."""

    def __init__(self, manifest: Manifest, writer: Writer) -> None:
        self._manifest = manifest
        self._writer = writer
        self._waiting: deque[tuple[Entry, list[str] | None]] = deque()

    def add(self, entry: Entry, queued: list[str] | None) -> None:
        """Take a case and the names of its files that are queued; None where its entry notes complete files."""
        self._waiting.append((entry, queued))
        self.flush()

    def flush(self) -> None:
        """Add the cases whose files are written, in their order."""
        while self._waiting:
            entry, names = self._waiting[0]
            if names is not None:
                files = self._writer.take_written(names)
                if files is None:
                    return
                entry = replace(entry, note={**entry.note, "files": files})
            self._waiting.popleft()
            self._manifest.add(entry)


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
