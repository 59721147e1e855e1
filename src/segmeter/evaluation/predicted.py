"""Predicts, post-processes, measures and writes a case of `eval` or `predict`; an interrupted run keeps its cases.

An image that is larger than memory is predicted in bands of lines: its labels wait in a temporary file.
"""

import logging
import math
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
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
from segmeter.errors import ConfigError
from segmeter.evaluation.manifest import PREDICTIONS, Entry, Manifest, find_damaged, parse_case_facts, read_case_facts
from segmeter.export.config import ExportConfig, ProbsDtype
from segmeter.export.writer import Writer
from segmeter.files import clear_leftovers, make_folder
from segmeter.inference.predictor import Predictor
from segmeter.inference.results import BandLoss, Loss, Prediction, sums_by_bands
from segmeter.metrics.cases.table import CaseRow
from segmeter.postprocess.config import PostprocessConfig
from segmeter.postprocess.pipeline import Cleaned, run_steps

_LOG = logging.getLogger(__name__)
Measuring = Callable[[Prediction, Cleaned], CaseRow]


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
        An additive loss; its sums and denominators are added over the planes. Or None.

    Returns
    -------
    Prediction
        `labels` (D, H, W), multilabel (K, D, H, W); `probs` (num_channels, D, H, W) or None; the volume's `sample`.

    Raises
    ------
    As `Predictor.predict`; the message names the plane. ConfigError for a model that finds objects.
    """
    if predictor.segmenter.card.output == "instances":
        raise ConfigError("inference: this model finds the objects of single planes, which are not those of a volume.")
    maps = dict[str, NDArray[Any]]()
    terms: NDArray[Any] | None = None
    planes = predictor.predict(volume, probs=probs, probs_dtype=probs_dtype, loss=loss)
    for number, plane in enumerate(planes):
        plane_maps = {"labels": plane.labels} | ({} if plane.probs is None else {"probs": plane.probs})
        for name, plane_map in plane_maps.items():
            if name not in maps:
                maps[name] = np.empty((*plane_map.shape[:-2], *volume.shape), plane_map.dtype)
            np.moveaxis(maps[name], volume.axis - 3, -3)[..., number, :, :] = plane_map
        if plane.loss is not None:
            terms = plane.loss if terms is None else terms + plane.loss
    sample = Sample(
        case_id=volume.case_id,
        image=volume[len(volume) // 2].image,
        target=volume.target(),
        plane_axis=volume.axis,
        geometry=volume.geometry,
    )
    return Prediction(sample=sample, labels=maps["labels"], probs=maps.get("probs"), loss=terms)


@dataclass(frozen=True, kw_only=True)
class CaseRun:
    """A model, its cases, and the folder of their files, for `evaluate` and `predict`.

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
        For a shard, the number of each case's batch in the whole run; None groups cases as they come.
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
        """Writes the files of these cases."""
        return Writer(self.folder / PREDICTIONS, self.export, self.dataset.spec, locate=self.dataset.locate)

    def predictions(self, cases: range, *, probs: bool, probs_dtype: ProbsDtype = "float32") -> Iterator[Prediction]:
        """Predict some cases, in the batches of the whole run; the planes of a volume are batches of their own."""
        if isinstance(self.dataset, VolumeSet):
            for index in cases:
                volume = self.dataset.open_volume(index)
                yield predict_volume(self.predictor, volume, probs=probs, probs_dtype=probs_dtype, loss=self.terms)
            return
        part = Part(self.dataset, cases)
        batches = self.batches and self.batches[cases.start : cases.stop]
        yield from self.predictor.predict(part, batches=batches, probs=probs, probs_dtype=probs_dtype, loss=self.terms)


def finish_case(job: CaseRun, prediction: Prediction) -> Entry:
    """Post-process and measure a prediction, and write its files."""
    with job.predictor.stages.timed("post-process"):
        axis = prediction.sample.plane_axis
        steps, spec = job.postprocess.steps, job.dataset.spec
        cleaned = run_steps(prediction.labels, steps, spec, probs=prediction.probs, plane_axis=axis)
        if prediction.instances is not None and cleaned.instances is None:  # a pixel whose class changed has no object
            instances = np.where(cleaned.labels == prediction.labels, prediction.instances, 0)
            cleaned = replace(cleaned, instances=instances)
    image = prediction.sample.image
    volume = [] if axis is None else ["volume", prediction.sample.case_id]
    return _finished(job, prediction, cleaned, kind=[*image.shape, str(image.dtype), *volume])


def finish_in_bands(job: CaseRun, index: int) -> Entry:
    """Predict and measure a case in bands of lines, as a batch of its own, and write its files."""
    with job.dataset.open_rows(index) as (image, target):
        case_id = job.dataset.case_ids[index]
        height, width = image.shape[:2]
        spec = job.dataset.spec
        shape = (spec.num_classes, height, width) if spec.is_multilabel else (height, width)
        spool = Spool(job.folder / PREDICTIONS, shape, spec.label_dtype)
        thumbnail = Thumbnail(thumbnail_step(height, width), -3)
        loss = BandLoss(job.terms, job.predictor.device) if target is not None and sums_by_bands(job.terms) else None
        for band in job.predictor.stream(tapped(image, thumbnail), case_id=case_id, target=target, loss=loss):
            spool.append(band.labels)
        sample = Sample(case_id=case_id, image=thumbnail.pixels(), target=target)  # type: ignore[arg-type]
        labels: Any = spool
        prediction = Prediction(sample=sample, labels=labels, loss=None if loss is None else loss.terms())
        if job.see is not None:
            job.see(prediction)
        if not job.dataset.header_of(index).streamed:  # small enough to be written like any other
            labels = spool.read(0, height)
        cleaned = Cleaned(labels=labels, instances=None, changed={})
        kind = [*image.shape, str(image.dtype), "by rows", case_id]
        return _finished(job, prediction, cleaned, kind=kind)


def _finished(job: CaseRun, prediction: Prediction, cleaned: Cleaned, *, kind: list[Any]) -> Entry:
    """Measure a case and write its files. `kind` describes its image: a batch has images of one kind."""
    case_id = prediction.sample.case_id
    stages = job.predictor.stages
    with stages.timed("measure"):
        row = None if job.measure is None else job.measure(prediction, cleaned)
    with stages.timed("write"):
        files = job.writer.write(
            case_id,
            cleaned.labels,
            instances=cleaned.instances,
            probs=prediction.probs,
            predicted=prediction.labels,
        )
    return Entry(case_id=case_id, row=row, resume_facts={"image": kind, "files": files})


class Spool:
    """Labels in a temporary file without a name, written from top to bottom and then read in bands of lines.

    Parameters
    ----------
    folder
        The folder of the file, which takes one or two bytes per pixel, times K for multilabel.
    shape
        (H, W), multilabel (K, H, W).
    dtype
        The dtype of the labels.
    """

    def __init__(self, folder: Path, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.shape, self.dtype = shape, dtype
        make_folder(folder)
        self._file: IO[bytes] = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115  (read for as long as this exists)
        weakref.finalize(self, self._file.close)
        self._lock = threading.Lock()
        self._line_shape = (*shape[:-2], shape[-1])

    def append(self, lines: NDArray[Any]) -> None:
        """Add the next lines, (..., h, W)."""
        self._file.write(np.moveaxis(lines, -2, 0).tobytes())

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Read lines, as any lazy array does. Nothing may be appended meanwhile."""
        line_bytes = math.prod(self._line_shape) * self.dtype.itemsize
        with self._lock:
            self._file.seek(start * line_bytes)
            content = self._file.read((stop - start) * line_bytes)
        return np.moveaxis(np.frombuffer(content, self.dtype).reshape(stop - start, *self._line_shape), 0, -2)


def restore_cases(job: CaseRun, manifest: Manifest, *, none: bool = False) -> int:
    """Keep the finished cases of an interrupted run whose files are whole, and return their number.

    Cases are kept up to the end of a batch. The others are predicted again in the batches of an uninterrupted run,
    because in different batches a network's outputs may differ in their last bits. With `none`, no case is kept.
    """
    clear_leftovers(job.folder / PREDICTIONS)
    kinds = list[Any]()
    done = parse_case_facts(read_case_facts(job.folder))
    for wanted, (case_id, facts) in zip(manifest.cases, done.items(), strict=False):
        if damaged := find_damaged(job.folder, [facts]):
            _LOG.warning(
                "resume: missing or damaged files are written again, with all that follow (%s).", some(damaged)
            )
        if damaged or case_id != wanted:
            break
        kinds.append(facts["image"])
    count = len(kinds)
    batch_size = job.predictor.config.batch_size
    *_, last_batch = [range(0), *split_batches(job.batches[:count] if job.batches else kinds, batch_size)]
    if count < len(manifest.cases) and len(last_batch) < batch_size:
        count = last_batch.start
    count = 0 if none else count
    manifest.truncate(count)
    return count
