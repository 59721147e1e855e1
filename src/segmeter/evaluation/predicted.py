"""Runs a model over the cases of a data set, as the source of `eval` and `predict`.

Forward passes run in the caller's thread. Post-processing, measuring and writing run in other threads beside them. An
image that is larger than memory goes through the same steps in bands of lines: its labels wait in a temporary file.
"""

import logging
import math
import tempfile
import threading
import weakref
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from segmeter.data.dataset import Dataset
from segmeter.data.files.geometry import NOWHERE, Geometry
from segmeter.data.images import Thumbnail, tapped, thumbnail_step
from segmeter.data.planes import VolumeSet
from segmeter.data.sample import Sample
from segmeter.distributed.batches import Part
from segmeter.evaluation.drive import drive
from segmeter.evaluation.large import large_cases, split_parts
from segmeter.evaluation.manifest import Entry, Manifest
from segmeter.evaluation.memory import Room
from segmeter.export.config import ExportConfig, ProbsDtype
from segmeter.export.writer import Writer
from segmeter.files import make_folder
from segmeter.inference.predictor import Predictor
from segmeter.inference.results import BandLoss, Loss, Prediction, sums_by_bands
from segmeter.inference.volumes import predict_volume
from segmeter.metrics.cases.table import CaseRow
from segmeter.parallel import map_in_threads
from segmeter.postprocess.config import PostprocessConfig
from segmeter.postprocess.pipeline import Bands, Cleaned, needs_probs, run_steps
from segmeter.threads import count_cores

PREDICTIONS = "predictions"

Measuring = Callable[[Prediction, Cleaned], CaseRow]

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class CaseRun:
    """A model, its cases, and the folder of their files: what `evaluate` and `predict` share.

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
        The batch of each case of a shard in the whole run, by number; None groups cases as they come.
    """

    predictor: Predictor
    dataset: Dataset
    export: ExportConfig
    postprocess: PostprocessConfig
    folder: Path
    identity: Mapping[str, Any] = field(default_factory=dict)
    resume: bool = False
    batches: Sequence[int] | None = None

    def writer(self) -> Writer:
        """Build the writer of the files of these cases."""
        return Writer(self.folder / PREDICTIONS, self.export, self.dataset.spec, locate=self.dataset.locate)

    def predictions(
        self, cases: range, *, probs: bool, probs_dtype: ProbsDtype = "float32", loss: Loss | None = None
    ) -> Iterator[Prediction]:
        """Predict some cases, in the batches of the whole run; the planes of a volume are batches of their own."""
        if isinstance(self.dataset, VolumeSet):
            for index in cases:
                volume = self.dataset.open_volume(index)
                yield predict_volume(self.predictor, volume, probs=probs, probs_dtype=probs_dtype, loss=loss)
            return
        batches, part = self.batches and self.batches[cases.start : cases.stop], Part(self.dataset, cases)
        yield from self.predictor.predict(part, batches=batches, probs=probs, probs_dtype=probs_dtype, loss=loss)


def run_cases(
    job: CaseRun,
    manifest: Manifest,
    *,
    done: int,
    what: str,
    measure: Measuring | None = None,
    loss: Loss | None = None,
    probs: bool = False,
    see: Callable[[Prediction], None] = lambda prediction: None,
) -> None:
    """Predict all cases after the first `done`, measure them, write their files, and record them in their order.

    Parameters
    ----------
    what
        The activity that the progress bar names.
    measure
        Makes the row of a case; called in threads.
    loss
        Computed for each case that has a target.
    probs
        Whether probabilities are needed even if none are written.
    see
        Called in the caller's thread with each prediction, before post-processing.

    Raises
    ------
    DataError
        A file can't be read.
    RunError
        A prediction is not finite, or a file can't be written. The cases before it are recorded.
    """
    rest, streamed = range(done, len(job.dataset)), job.dataset.streamed_cases()
    in_full = probs or job.export.confidence  # otherwise they are copied to the host in the dtype of their file
    dtype = "float32" if in_full else job.export.probs_dtype
    probs = job.export.needs_probs or probs or needs_probs(job.postprocess.steps)
    if job.resume and streamed.intersection(rest):
        kept = "resume: %d of %d cases are kept. A large image that was cut short begins at its first row again."
        _LOG.warning(kept, done, len(job.dataset))
    alone = streamed | (large_cases(job.dataset) if probs else frozenset())
    _warn_of_lost_geometry(job, large=0 in streamed and job.dataset.header_of(0).streamed)
    writer = job.writer()

    def entries() -> Generator[Entry, None, None]:
        for part in split_parts(rest, alone):
            if part.start in streamed:
                yield finish_in_bands(job, writer, part.start, measure, loss, see)
            else:
                found = job.predictions(part, probs=probs, probs_dtype=dtype, loss=loss)
                with closing(_finish_all(job, writer, found, measure, see)) as finished:
                    yield from finished

    drive(entries(), manifest, what=what, total=len(rest), parts=job.predictor.watch)


def _finish_all(
    job: CaseRun,
    writer: Writer,
    predictions: Iterator[Prediction],
    measure: Measuring | None,
    see: Callable[[Prediction], None],
) -> Generator[Entry, None, None]:
    """Finish predictions in threads, in order. Waiting ones take at most ``export.queue_mb`` of memory, or are one
    case.
    """
    room = Room(job.export.queue_mb << 20)

    def held() -> Iterator[tuple[Prediction, int]]:
        for prediction in predictions:
            see(prediction)
            size = prediction.labels.nbytes + (0 if prediction.probs is None else prediction.probs.nbytes)
            room.enter(size)
            yield prediction, size

    def work(waiting: tuple[Prediction, int]) -> Entry:
        prediction, size = waiting
        try:
            return finish(job, writer, prediction, measure)
        finally:
            room.leave(size)

    threads = max(count_cores(), job.export.workers)
    ahead = threads + job.predictor.config.batch_size  # a whole batch is handed over before the next one is run
    yield from map_in_threads(work, held(), threads=threads, ahead=ahead, name="finish")


def finish(job: CaseRun, writer: Writer, prediction: Prediction, measure: Measuring | None) -> Entry:
    """Post-process and measure a prediction, and write its files."""
    with job.predictor.stages.timed("post-process"):
        axis = prediction.sample.plane_axis
        given: dict[str, Any] = {"probs": prediction.probs, "plane_axis": axis}
        cleaned = run_steps(prediction.labels, job.postprocess.steps, job.dataset.spec, **given)
        if prediction.instances is not None and cleaned.instances is None:  # a pixel of another class has no object
            kept = np.where(cleaned.labels == prediction.labels, prediction.instances, 0)
            cleaned = replace(cleaned, instances=kept)
    image, volume = prediction.sample.image, [] if axis is None else ["volume", prediction.sample.case_id]
    return _finished(job, writer, prediction, cleaned, measure, kind=[*image.shape, str(image.dtype), *volume])


def finish_in_bands(
    job: CaseRun,
    writer: Writer,
    index: int,
    measure: Measuring | None = None,
    loss: Loss | None = None,
    see: Callable[[Prediction], None] = lambda prediction: None,
) -> Entry:
    """Predict, post-process and measure a case in bands of lines, as a batch of its own, and write its files."""
    with job.dataset.open_rows(index) as (image, target):
        case_id, (height, width) = job.dataset.case_ids[index], image.shape[:2]
        spec, stages = job.dataset.spec, job.predictor.stages
        bands = Bands(job.postprocess.steps, spec, height=height)
        shape = (spec.num_classes, height, width) if spec.is_multilabel else (height, width)
        spool = Spool(job.folder / PREDICTIONS, shape, spec.label_dtype)
        picture = Thumbnail(thumbnail_step(height, width), -3)
        sums = BandLoss(loss, job.predictor.device) if target is not None and sums_by_bands(loss) else None
        stream = job.predictor.stream(tapped(image, picture), case_id=case_id, target=target, loss=sums)

        def keep(labels: NDArray[Any]) -> None:
            with stages.timed("post-process"):
                spool.append(bands.push(labels))

        found = (band.labels for band in stream)
        with closing(map_in_threads(keep, found, threads=1, ahead=2, name="post-process")) as kept:
            for _ in kept:
                pass
        sample = Sample(case_id=case_id, image=picture.pixels(), target=target)  # type: ignore[arg-type]
        labels: Any = spool
        prediction = Prediction(sample=sample, labels=labels, loss=None if sums is None else sums.terms())
        see(prediction)
        if not job.dataset.header_of(index).streamed:  # small enough to be written like any other
            labels = spool.read(0, height)
        cleaned = Cleaned(labels=labels, instances=None, changed=bands.changed)
        kind = [*image.shape, str(image.dtype), "by rows", case_id]
        return _finished(job, writer, prediction, cleaned, measure, kind=kind)


def _finished(
    job: CaseRun,
    writer: Writer,
    prediction: Prediction,
    cleaned: Cleaned,
    measure: Measuring | None,
    *,
    kind: list[Any],
) -> Entry:
    """Measure a case and write its files. `kind` is that of its image, by which batches are formed."""
    case_id, stages = prediction.sample.case_id, job.predictor.stages
    with stages.timed("measure"):
        row = None if measure is None else measure(prediction, cleaned)
    with stages.timed("write"):
        of_model = {"probs": prediction.probs, "predicted": prediction.labels}
        files = writer.write(case_id, cleaned.labels, instances=cleaned.instances, **of_model)
    return Entry(case_id=case_id, row=row, record={"image": kind, "files": files})


class Spool:
    """Labels in a temporary file without a name, written from top to bottom and then read in bands of lines.

    Parameters
    ----------
    folder
        The folder of the file, which takes one or two bytes per pixel, times K for multilabel.
    shape
        (H, W), multilabel (K, H, W).
    dtype
        Of the labels.
    """

    def __init__(self, folder: Path, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.shape, self.dtype = shape, dtype
        make_folder(folder)
        self._file: IO[bytes] = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115  (read for as long as this exists)
        weakref.finalize(self, self._file.close)
        self._turn = threading.Lock()
        self._line = (*shape[:-2], shape[-1])  # of one line, as it is stored

    def append(self, lines: NDArray[Any]) -> None:
        """Add the next lines, (..., h, W)."""
        self._file.write(np.moveaxis(lines, -2, 0).tobytes())

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Read lines, as any lazy array does; nothing may be appended meanwhile."""
        size = math.prod(self._line) * self.dtype.itemsize
        with self._turn:
            self._file.seek(start * size)
            content = self._file.read((stop - start) * size)
        return np.moveaxis(np.frombuffer(content, self.dtype).reshape(stop - start, *self._line), 0, -2)


def _warn_of_lost_geometry(job: CaseRun, *, large: bool) -> None:
    """Warn once, for the first case, if its image states a geometry that the files to be written can't state."""
    first = next(iter(job.dataset.case_ids), None)
    geometry = NOWHERE if first is None else job.dataset.locate(first)
    form = job.export.picture_format
    numbered = job.export.instances and job.postprocess.steps and form == "png"  # otherwise instances are TIFF
    if isinstance(job.dataset, VolumeSet):
        if geometry.affine is not None and job.export.labels and form in ("tiff", "zarr"):
            said = "predictions: %s files have no position, so that of %r is lost. export.labels_format=nifti keeps it."
            _LOG.warning(said, form, first)
        return
    lost = _lost_part(geometry, form, large=large) if job.export.labels or numbered else ""
    if geometry.spacing_problem:
        said = "predictions: files do not say where their pixels lie, as of case %r: %s"
        _LOG.warning(said, first, geometry.spacing_problem)
    elif lost:
        _LOG.warning("predictions: case %r %s, which is lost. export.labels_format=tiff keeps it.", first, lost)


def _lost_part(geometry: Geometry, form: str, *, large: bool) -> str:
    """Describe the part of an image's geometry that label maps of a format can't state, or return "". Large maps are
    TIFF or Zarr.
    """
    if form == "tiff" or (large and form != "zarr"):
        return ""
    if form == "png":
        return "says where its pixels lie" if geometry.known else ""
    if geometry.geotiff:
        return "has GeoTIFF tags"
    return "has a spacing without a unit" if form != "zarr" and geometry.spacing and not geometry.unit else ""
