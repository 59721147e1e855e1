"""Cases -> predicted, post-processed, measured and written, each noted in the manifest when its files are complete."""

import logging
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from segmeter.data.dataset import Dataset
from segmeter.data.location import UNKNOWN, Location
from segmeter.distributed.batches import BatchOf, Part, split_passes
from segmeter.evaluation.large.cases import check_whole_maps, predict_lines, split_parts
from segmeter.evaluation.manifest import Entry, Manifest
from segmeter.export.config import ExportConfig, LabelsFormat
from segmeter.export.writer import Writer
from segmeter.inference.async_results import Prediction
from segmeter.inference.predictor import Loss, Predictor
from segmeter.metrics.cases.table import CaseRow
from segmeter.parallel import map_in_threads
from segmeter.postprocess.config import PostprocessConfig
from segmeter.postprocess.pipeline import Cleaned, run_steps
from segmeter.progress import track
from segmeter.threads import count_cores

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
    """A case after post-processing; `row` where it is measured. `kind` is its image's, which decides on batches."""

    prediction: Prediction
    cleaned: Cleaned
    row: CaseRow | None
    kind: list[Any]


Measuring = Callable[[Prediction, Cleaned], CaseRow | None]


def unmeasured(prediction: Prediction, cleaned: Cleaned) -> None:
    """Measure nothing."""


def run_cases(
    job: CaseRun,
    manifest: Manifest,
    *,
    done: int,
    what: str,
    measure: Measuring = unmeasured,
    loss: Loss | None = None,
    probs: bool = False,
) -> Iterator[Finished]:
    """Predict all cases after the first `done`, write their files, and note them; yield each in its order.

    Post-processing and measuring run in threads beside the forward passes, and the files are written in others.

    Parameters
    ----------
    what
        What is being done, for the progress bar.
    measure
        Called in threads with each case that is post-processed.
    loss
        Computed for each case that has a target.
    probs
        Whether probabilities are needed though none are written.

    Raises
    ------
    DataError
        A file can't be read.
    InputError
        The probabilities of a case do not fit into memory; no case has been predicted.
    RunError
        A prediction is not finite, or a file can't be written. The cases before it are noted.
    """
    rest, streamed = range(done, len(job.dataset)), job.dataset.streamed_cases()
    probs = job.export.needs_probs or probs
    if job.resume and streamed.intersection(rest):
        kept = "resume: %d of %d cases are kept. A large image that was cut short begins at its first row again."
        _LOG.warning(kept, done, len(job.dataset))
    alone = streamed | (check_whole_maps(job.dataset, job.export, streamed) if probs else frozenset())
    _warn_of_lost_place(job, large=0 in streamed and job.dataset.header_of(0).streamed)
    hashing: dict[str, Any] = {"hashed": True, "stages": job.predictor.stages}
    with Writer(job.folder / PREDICTIONS, job.export, job.dataset.spec, locate=job.dataset.locate, **hashing) as writer:
        noted = _Noted(manifest, writer)

        def cases() -> Generator[Finished, None, None]:
            for part in split_parts(rest, alone):
                if part.start in streamed:
                    found: Iterator[Finished] = iter([finish_lines(job, part.start, measure, loss)])
                else:
                    found = _finish(job, job.predictions(part, probs=probs, loss=loss), measure)
                for case in found:
                    export_case(writer, case, job.export)
                    yield case
                    case_id = case.prediction.sample.case_id
                    noted.add(Entry(case_id=case_id, row=case.row, record={"image": case.kind}), writer.queued_names())

        with closing(cases()) as found:
            yield from track(found, what, len(rest), parts=job.predictor.watch)
        writer.close()
        noted.flush()


def _warn_of_lost_place(job: CaseRun, *, large: bool) -> None:
    """Say once, of the first case, that its files say where its pixels lie and those that are written will not."""
    first = next(iter(job.dataset.case_ids), None)
    location = UNKNOWN if first is None else job.dataset.locate(first)
    form = job.export.labels_format
    numbered = job.export.instances and job.postprocess.steps and form == "png"  # else instances are TIFF
    written = job.export.labels or numbered
    lost = _lost_place(location, form, large=large) if written else ""
    if location.problem:
        _LOG.warning("predictions: files do not say where their pixels lie, as of case %r: %s", first, location.problem)
    elif lost:
        _LOG.warning("predictions: case %r %s, which is lost. export.labels_format=tiff keeps it.", first, lost)


def _lost_place(location: Location, form: LabelsFormat, *, large: bool) -> str:
    """What an image's file says of its place and a label map's does not, or ""; large ones are TIFF or Zarr."""
    if form == "tiff" or (large and form != "zarr"):
        return ""
    if form == "png":
        return "says where its pixels lie" if location.known else ""
    if location.geotiff:
        return "has GeoTIFF tags"
    return "has a spacing without a unit" if form != "zarr" and location.spacing and not location.unit else ""


def _finish(job: CaseRun, predictions: Iterator[Prediction], measure: Measuring) -> Generator[Finished, None, None]:
    """Post-process and measure predictions in threads, in their order."""
    threads = count_cores()
    ahead = threads + job.predictor.config.batch_size  # a whole batch is handed over before the next one is run
    finish = partial(finish_case, job, measure)
    with closing(map_in_threads(finish, predictions, threads=threads, ahead=ahead, name="finish")) as cases:
        yield from cases


def finish_case(job: CaseRun, measure: Measuring, prediction: Prediction) -> Finished:
    """Post-process and measure a prediction."""
    stages, image = job.predictor.stages, prediction.sample.image
    with stages.timed("post-process"):
        cleaned = run_steps(prediction.labels, job.postprocess.steps, job.dataset.spec)
    with stages.timed("measure"):
        row = measure(prediction, cleaned)
    return Finished(prediction=prediction, cleaned=cleaned, row=row, kind=[*image.shape, str(image.dtype)])


def finish_lines(job: CaseRun, index: int, measure: Measuring = unmeasured, loss: Loss | None = None) -> Finished:
    """Predict, post-process and measure a case that is read by lines: a batch of its own."""
    folder, case_id = job.folder / PREDICTIONS, job.dataset.case_ids[index]
    with job.dataset.open_rows(index) as (image, target):
        prediction, cleaned = predict_lines(
            job.predictor,
            job.dataset,
            index,
            image=image,
            target=target,
            postprocess=job.postprocess,
            folder=folder,
            loss=loss,
        )
        with job.predictor.stages.timed("measure"):
            row = measure(prediction, cleaned)
        if not job.dataset.header_of(index).streamed:  # small enough to be written like any other
            labels: Any = cleaned.labels
            cleaned = replace(cleaned, labels=labels.read(0, image.shape[0]))
    kind = [*image.shape, str(image.dtype), "by rows", case_id]
    return Finished(prediction=prediction, cleaned=cleaned, row=row, kind=kind)


class _Noted:
    """Adds each case to the manifest once its files are written, so that every case in the manifest is done."""

    def __init__(self, manifest: Manifest, writer: Writer) -> None:
        self._manifest = manifest
        self._writer = writer
        self._waiting: deque[tuple[Entry, list[str]]] = deque()

    def add(self, entry: Entry, queued: list[str]) -> None:
        """Take a case and the names of its files that are queued."""
        self._waiting.append((entry, queued))
        self.flush()

    def flush(self) -> None:
        """Add the cases whose files are written, in their order."""
        while self._waiting:
            entry, names = self._waiting[0]
            files = self._writer.take_written(names)
            if files is None:
                return
            self._waiting.popleft()
            self._manifest.add(replace(entry, record={**entry.record, "files": files}))


def export_case(writer: Writer, case: Finished, export: ExportConfig) -> None:
    """Hand one case's files to the writer's threads."""
    prediction, cleaned, case_id = case.prediction, case.cleaned, case.prediction.sample.case_id
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
