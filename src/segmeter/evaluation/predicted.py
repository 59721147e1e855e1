"""Predicts, post-processes, measures and writes a case of `eval` or `predict`, and keeps those of an interrupted run.

An image that is larger than memory goes through the same steps in bands of lines: its labels wait in a temporary file.
"""

import logging
import math
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import takewhile
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from segmeter.checks import some
from segmeter.data.dataset import Dataset, Part
from segmeter.data.images import Thumbnail, tapped, thumbnail_step
from segmeter.data.planes import Volume, VolumeSet
from segmeter.data.sample import Sample
from segmeter.distributed.shards import split_batches
from segmeter.errors import ConfigError, RunError
from segmeter.evaluation.manifest import PREDICTIONS, Entry, Manifest, parse_records, read_records
from segmeter.export.config import ExportConfig, ProbsDtype
from segmeter.export.writer import Writer
from segmeter.files import clear_leftovers, is_whole, make_folder
from segmeter.inference.predictor import Predictor
from segmeter.inference.results import BandLoss, Loss, Prediction, sums_by_bands
from segmeter.metrics.cases.table import CaseRow
from segmeter.parallel import map_in_threads
from segmeter.postprocess.config import PostprocessConfig
from segmeter.postprocess.pipeline import Bands, Cleaned, run_steps

_LOG = logging.getLogger(__name__)
Measuring = Callable[[Prediction, Cleaned], CaseRow]
Records = Sequence[Mapping[str, Any]]


def predict_volume(
    predictor: Predictor,
    volume: Volume,
    *,
    probs: bool = False,
    probs_dtype: ProbsDtype = "float32",
    loss: Loss | None = None,
) -> Prediction:
    """Predict all planes of a volume in batches.

    Parameters
    ----------
    predictor, probs, probs_dtype
        As for `Predictor.predict`.
    volume
        Its planes are read as they are needed.
    loss
        An additive loss, whose sums and denominators are added over the planes; or None.

    Returns
    -------
    Prediction
        `labels` (D, H, W), multilabel (K, D, H, W); `probs` (num_channels, D, H, W) or None; a `sample` as of a volume.

    Raises
    ------
    As `Predictor.predict`; the message names the plane. ConfigError for a model that finds objects.
    """
    if predictor.segmenter.card.output == "instances":
        raise ConfigError("inference: this model finds the objects of single planes, which are not those of a volume.")
    whole = dict[str, NDArray[Any]]()
    terms: NDArray[Any] | None = None
    planes = predictor.predict(volume, probs=probs, probs_dtype=probs_dtype, loss=loss)
    for number, plane in enumerate(planes):
        parts = {"labels": plane.labels} | ({} if plane.probs is None else {"probs": plane.probs})
        for name, found in parts.items():
            if name not in whole:
                whole[name] = np.empty((*found.shape[:-2], *volume.shape), found.dtype)
            np.moveaxis(whole[name], volume.axis - 3, -3)[..., number, :, :] = found
        if plane.loss is not None:
            terms = plane.loss if terms is None else terms + plane.loss
    sample = Sample(
        case_id=volume.case_id,
        image=volume[len(volume) // 2].image,
        target=volume.target(),
        plane_axis=volume.axis,
        geometry=volume.geometry,
    )
    return Prediction(sample=sample, labels=whole["labels"], probs=whole.get("probs"), loss=terms)


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
    measure
        Makes the row of a case; called in threads.
    terms
        The additive loss that is computed for each case with a target.
    see
        Called in the caller's thread with each prediction, before post-processing.
    """

    predictor: Predictor
    dataset: Dataset
    export: ExportConfig
    postprocess: PostprocessConfig
    folder: Path
    identity: Mapping[str, Any] = field(default_factory=dict)
    resume: bool = False
    batches: Sequence[int] | None = None
    measure: Measuring | None = None
    terms: Loss | None = None
    see: Callable[[Prediction], None] | None = None

    @cached_property
    def writer(self) -> Writer:
        """The writer of the files of these cases."""
        return Writer(self.folder / PREDICTIONS, self.export, self.dataset.spec, locate=self.dataset.locate)

    def predictions(self, cases: range, *, probs: bool, probs_dtype: ProbsDtype = "float32") -> Iterator[Prediction]:
        """Predict some cases, in the batches of the whole run; the planes of a volume are batches of their own."""
        options: dict[str, Any] = {"probs": probs, "probs_dtype": probs_dtype, "loss": self.terms}
        if isinstance(self.dataset, VolumeSet):
            for index in cases:
                yield predict_volume(self.predictor, self.dataset.open_volume(index), **options)
            return
        batches, part = self.batches and self.batches[cases.start : cases.stop], Part(self.dataset, cases)
        yield from self.predictor.predict(part, batches=batches, **options)


def finish(job: CaseRun, prediction: Prediction) -> Entry:
    """Post-process and measure a prediction, and write its files."""
    with job.predictor.stages.timed("post-process"):
        axis = prediction.sample.plane_axis
        steps, spec = job.postprocess.steps, job.dataset.spec
        cleaned = run_steps(prediction.labels, steps, spec, probs=prediction.probs, plane_axis=axis)
        if prediction.instances is not None and cleaned.instances is None:  # a pixel of another class has no object
            kept = np.where(cleaned.labels == prediction.labels, prediction.instances, 0)
            cleaned = replace(cleaned, instances=kept)
    image, volume = prediction.sample.image, [] if axis is None else ["volume", prediction.sample.case_id]
    return _finished(job, prediction, cleaned, kind=[*image.shape, str(image.dtype), *volume])


def finish_in_bands(job: CaseRun, index: int) -> Entry:
    """Predict, post-process and measure a case in bands of lines, as a batch of its own, and write its files."""
    with job.dataset.open_rows(index) as (image, target):
        case_id, (height, width) = job.dataset.case_ids[index], image.shape[:2]
        spec, stages = job.dataset.spec, job.predictor.stages
        bands = Bands(job.postprocess.steps, spec, height=height)
        shape = (spec.num_classes, height, width) if spec.is_multilabel else (height, width)
        spool = Spool(job.folder / PREDICTIONS, shape, spec.label_dtype)
        picture = Thumbnail(thumbnail_step(height, width), -3)
        sums = BandLoss(job.terms, job.predictor.device) if target is not None and sums_by_bands(job.terms) else None
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
        if job.see is not None:
            job.see(prediction)
        if not job.dataset.header_of(index).streamed:  # small enough to be written like any other
            labels = spool.read(0, height)
        cleaned = Cleaned(labels=labels, instances=None, changed=bands.changed)
        kind = [*image.shape, str(image.dtype), "by rows", case_id]
        return _finished(job, prediction, cleaned, kind=kind)


def _finished(job: CaseRun, prediction: Prediction, cleaned: Cleaned, *, kind: list[Any]) -> Entry:
    """Measure a case and write its files. `kind` is that of its image, by which batches are formed."""
    case_id, stages = prediction.sample.case_id, job.predictor.stages
    with stages.timed("measure"):
        row = None if job.measure is None else job.measure(prediction, cleaned)
    with stages.timed("write"):
        of_model = {"probs": prediction.probs, "predicted": prediction.labels}
        files = job.writer.write(case_id, cleaned.labels, instances=cleaned.instances, **of_model)
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


def restore_cases(job: CaseRun, manifest: Manifest, *, none: bool = False) -> int:
    """Keep the finished cases, write their missing or damaged files again, and return how many cases there are.

    Cases are kept up to the end of a batch. The others are predicted again in the batches of an uninterrupted run,
    because in different batches a network's outputs may differ in their last bits. With `none`, no case is kept, unless
    the run is finished.
    """
    if manifest.done:
        finished = parse_records(read_records(job.folder))
        repair_files(job, [finished[case_id] for case_id in manifest.cases])
        return len(manifest.cases)
    clear_leftovers(job.folder / PREDICTIONS)
    found = parse_records(manifest.keep()) if job.resume else {}
    first = takewhile(lambda pair: pair[0] == pair[1], zip(found, manifest.cases, strict=False))
    records = [found[case_id] for case_id, _ in first]
    kinds, size = _kinds(job, records), job.predictor.config.batch_size
    count = 0 if none else whole_batches(kinds, size, len(manifest.cases))
    manifest.keep(count)
    repair_files(job, records[:count])
    return count


def _kinds(job: CaseRun, records: Records) -> Sequence[Any]:
    """Return what decides the batches of the first cases: those of the whole run, or the kinds of their images."""
    return [record["image"] for record in records] if job.batches is None else job.batches[: len(records)]


def whole_batches(kinds: Sequence[Any], size: int, total: int) -> int:
    """Count how many of the first images, out of `total`, fill batches of one kind each.

    Examples
    --------
    >>> whole_batches("aaaab", 2, 9), whole_batches("aaaaab", 4, 6)
    (4, 6)
    """
    batches = list(split_batches(kinds, size))
    whole = not batches or len(kinds) == total or len(batches[-1]) == size
    return len(kinds) if whole else batches[-1].start


def repair_files(job: CaseRun, records: Records) -> None:
    """Write missing or damaged files of finished cases again, in the batches in which the cases were predicted.

    Parameters
    ----------
    records
        The records of the first cases, in their order.

    Raises
    ------
    RunError
        A file differs from the one before, as it may on another machine.
    """
    damaged = find_damaged(records, job.folder / PREDICTIONS)
    if not damaged:
        return
    names = [name for found in damaged.values() for name in found]
    _LOG.warning("resume: missing or damaged files of predictions are written again (%s).", some(names))
    streamed, job = job.dataset.streamed_cases(), replace(job, measure=None, terms=None, see=None)
    for batch in split_batches(_kinds(job, records), job.predictor.config.batch_size):
        if damaged.keys().isdisjoint(batch):
            continue
        if batch.start in streamed:
            finish_in_bands(job, batch.start)
            continue
        probs = job.export.probs or job.export.confidence
        for index, prediction in zip(batch, job.predictions(batch, probs=probs), strict=True):
            if index in damaged:
                finish(job, prediction)
    again = find_damaged([records[index] for index in damaged], job.folder / PREDICTIONS)
    differing = [name for found in again.values() for name in found]
    if differing:
        rule, remedy = "predictions differ from those of the resumed run", "Start a new run with resume=null."
        raise RunError(f"resume: {rule} ({some(differing)}). {remedy}")


def find_damaged(records: Records, predictions: Path) -> dict[int, list[str]]:
    """Find the names of files that are missing or changed since they were written, by the index of their case."""
    damaged = dict[int, list[str]]()
    for index, record in enumerate(records):
        if names := [name for name, entry in record["files"].items() if not is_whole(predictions / name, entry)]:
            damaged[index] = names
    return damaged
