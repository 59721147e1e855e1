"""Evaluates a checkpoint on a data set, or predicts images without targets; both run the same cases the same way.

Forward passes run in the caller's thread. Post-processing, measuring and writing run in other threads beside them.
"""

import logging
from collections.abc import Generator, Iterable, Iterator, Sequence, Set
from contextlib import closing
from dataclasses import replace
from functools import partial
from itertools import pairwise, starmap
from typing import Any, cast

import numpy as np
from torch import nn

from segmeter.checks import expected
from segmeter.classes import ClassSpec
from segmeter.data.dataset import Dataset
from segmeter.data.files.array import LazyArray
from segmeter.data.files.geometry import NOWHERE
from segmeter.data.folds import check_dealing
from segmeter.data.planes import VolumeSet
from segmeter.data.verification.intensity import ScaleWatch
from segmeter.distributed.shards import note_shard
from segmeter.errors import ConfigError, DataError
from segmeter.evaluation.drive import SUMMARY, MemoryBudget, conclude, record_cases
from segmeter.evaluation.manifest import Entry, Manifest, open_manifest
from segmeter.evaluation.predicted import CaseRun, finish_case, finish_in_bands, restore_cases
from segmeter.export.config import ExportConfig, ProbsDtype
from segmeter.export.writer import check_volume_export
from segmeter.inference.config import WHOLE_PIXELS, InferenceConfig
from segmeter.inference.results import Prediction, sums_by_bands
from segmeter.losses.additive import additive
from segmeter.metrics.calibration_file import empty_sums
from segmeter.metrics.cases.run_columns import divide_terms
from segmeter.metrics.cases.table import CaseRow
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.measures.protocol import CaseMaps, Measure, build_measures
from segmeter.metrics.measures.row import BandedMaps, make_row
from segmeter.parallel import map_in_threads
from segmeter.postprocess.config import DistanceSplitConfig, PostprocessConfig, WatershedConfig
from segmeter.postprocess.pipeline import Cleaned, needs_probs
from segmeter.records import Summary, read_json
from segmeter.threads import count_cores

# Images that are run in tiles are read in bands beyond this size. Smaller ones are read whole, several ahead.
BANDED_PIXELS = 1 << 23

_LOG = logging.getLogger(__name__)


def evaluate(job: CaseRun, *, metrics: MetricsConfig, loss: nn.Module | None = None) -> dict[str, Any]:
    """Predict every case once, write the files that the configuration asks for, and measure it.

    Writes predictions/, cases.parquet, cases.csv and metrics.json into the run's folder, and manifest.json, from which
    an interrupted run is resumed.

    Parameters
    ----------
    job
        Each case of its data set must have a target.
    metrics
        The group `metrics` of the configuration.
    loss
        Reported beside the metrics, for each case and for all cases as one batch; or None.

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
    dataset, spec = job.dataset, job.dataset.spec
    for member in getattr(job.predictor.segmenter, "members", [job.predictor.segmenter]):
        check_dealing(dataset.dealt, member.card.data, split=dataset.split, model="the checkpoint")
    calibration = empty_sums(spec) if metrics.calibration else None
    measure = partial(measure_prediction, metrics, build_measures(metrics, spec), spec)

    def see(prediction: Prediction) -> None:
        if calibration is not None and prediction.probs is not None and prediction.sample.target is not None:
            calibration.update(prediction.sample.target, prediction.probs)

    run = replace(job, measure=measure, terms=None if loss is None else additive(loss, spec), see=see)
    check_streamable(run, metrics)
    manifest = run_cases(run, "evaluating", sees_all_probs=calibration is not None)
    if manifest.done:
        return read_json(job.folder / SUMMARY, Summary)
    rows = manifest.table(spec)
    return conclude(manifest, rows, spec, metrics, facts=note_shard(job.identity), calibration=calibration)


def predict(job: CaseRun) -> int:
    """Predict every image and write its files under predictions/, and manifest.json, from which a run is resumed.

    A resumed run keeps finished cases up to the first whose files are missing or changed. Warns once if the images have
    another scale than the model's training images.

    Returns
    -------
    int
        The number of all images, those of an interrupted run included.

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
    check_streamable(job)
    card = job.predictor.segmenter.card
    watch = ScaleWatch(card.mean, card.std, card.clip)
    run = replace(job, see=lambda prediction: _warn(watch.add(prediction.sample.image)))
    manifest = run_cases(run, "predicting")
    if not manifest.done:
        _warn(watch.close())
        manifest.finish()
    return len(job.dataset)


def _warn(lines: Sequence[str]) -> None:
    for line in lines:
        _LOG.warning("%s", line)


def run_cases(job: CaseRun, what: str, *, sees_all_probs: bool = False) -> Manifest:
    """Predict all cases that a resumed run lacks, measure them, write their files, and record them in their order.

    Parameters
    ----------
    what
        The activity that the progress bar names.
    sees_all_probs
        Whether `job.see` needs the probabilities of every case, so that a resumed run predicts all of them again.

    Returns
    -------
    Manifest
        It is done if the run was finished before and all its files are whole.

    Raises
    ------
    DataError
        A file can't be read.
    RunError
        A prediction is not finite, or a file can't be written. The cases before it are recorded.
    """
    manifest = open_manifest(job.folder, job.identity, job.dataset.case_ids, resume=job.resume)
    if manifest.done:
        return manifest
    done = restore_cases(job, manifest, none=sees_all_probs) if job.resume else 0
    rest = range(done, len(job.dataset))
    streamed = job.dataset.streamed_cases()
    if job.resume and streamed.intersection(rest):
        text = "resume: %d of %d cases are kept. A large image that was cut short begins at its first row again."
        _LOG.warning(text, done, len(job.dataset))
    probs = job.export.probs or job.export.confidence or sees_all_probs or needs_probs(job.postprocess.steps)
    full_precision = sees_all_probs or job.export.confidence  # otherwise the file's dtype is enough
    dtype: ProbsDtype = "float32" if full_precision else job.export.probs_dtype
    alone = set(streamed)
    if probs:  # several large cases with their probabilities would fill the memory
        headers = enumerate(map_in_threads(job.dataset.header_of, range(len(job.dataset))))
        alone |= {index for index, header in headers if header.height * header.width > WHOLE_PIXELS}
    edges = {rest.start, rest.stop}.union(*((index, index + 1) for index in alone.intersection(rest)))
    parts = starmap(range, pairwise(sorted(edges)))
    _warn_of_lost_geometry(job, large=0 in streamed and job.dataset.header_of(0).streamed)
    entries = _finish_all(job, parts, streamed, probs=probs, probs_dtype=dtype)
    record_cases(entries, manifest, what=what, total=len(rest), watch_parts=job.predictor.watch)
    return manifest


def _finish_all(
    job: CaseRun, parts: Iterable[range], streamed: Set[int], *, probs: bool, probs_dtype: ProbsDtype
) -> Generator[Entry, None, None]:
    """Predict parts of the cases, and finish them in threads, in order.

    Waiting predictions take at most ``export.queue_mb`` of memory, unless a single case takes more.
    """
    budget = MemoryBudget(job.export.queue_mb << 20)

    def predict_part(part: range) -> Iterator[tuple[Prediction, int]]:
        for prediction in job.predictions(part, probs=probs, probs_dtype=probs_dtype):
            if job.see is not None:
                job.see(prediction)
            sample = prediction.sample
            arrays = (prediction.labels, prediction.probs, sample.image, sample.target, sample.instances)
            size = sum(array.nbytes for array in arrays if isinstance(array, np.ndarray))
            budget.enter(size)
            yield prediction, size

    def work(waiting: tuple[Prediction, int]) -> Entry:
        prediction, size = waiting
        try:
            return finish_case(job, prediction)
        finally:
            budget.leave(size)

    threads = max(count_cores(), job.export.workers)
    ahead = threads + job.predictor.config.batch_size  # a whole batch is handed over before the next one is run
    for part in parts:
        if part.start in streamed:
            yield finish_in_bands(job, part.start)
        else:
            entries = map_in_threads(work, predict_part(part), threads=threads, ahead=ahead, name="finish")
            with closing(entries):
                yield from entries


def _warn_of_lost_geometry(job: CaseRun, *, large: bool) -> None:
    """Warn once, for the first case, if its image states a position that the predictions' format can't hold.

    Large label maps are TIFF or Zarr, whatever the configured format.
    """
    first = next(iter(job.dataset.case_ids), None)
    geometry = NOWHERE if first is None else job.dataset.locate(first)
    file_format = "png" if job.export.labels_format == "auto" else job.export.labels_format
    if large and file_format != "zarr":
        file_format = "tiff"
    if isinstance(job.dataset, VolumeSet):
        better_format = "nifti"
        is_lost = geometry.affine is not None and file_format in ("tiff", "zarr")
    else:
        better_format = "tiff"
        is_lost = file_format != "tiff" and (bool(geometry.geotiff) or (file_format == "png" and geometry.known))
    if is_lost and job.export.labels:
        text = "predictions: %s files can't say where the pixels of case %r lie. export.labels_format=%s keeps it."
        _LOG.warning(text, file_format, first, better_format)


def measure_prediction(
    metrics: MetricsConfig, measures: Sequence[Measure], spec: ClassSpec, prediction: Prediction, cleaned: Cleaned
) -> CaseRow:
    """Measure a case after post-processing. Its spacing comes from the configuration, or else from its file.

    Raises
    ------
    DataError
        The case has no target.
    """
    sample = prediction.sample
    unit = ""
    spacing: tuple[float, ...] | None = metrics.spacing
    if spacing is None and sample.geometry is not None:
        spacing, unit = sample.geometry.spacing, sample.geometry.unit or ""
    maps: CaseMaps | BandedMaps
    if sample.target is None:
        raise DataError(f"evaluate: expected a target for every case, got none for {sample.case_id}. Use predict.")
    if isinstance(sample.target, np.ndarray):
        maps = CaseMaps(
            case_id=sample.case_id,
            target=sample.target,
            labels=cleaned.labels,
            spacing=spacing or (1.0,) * (2 if sample.geometry is None else 3),
            spec=spec,
            target_instances=sample.instances,
            instances=cleaned.instances,
            image=sample.image if sample.plane_axis is None else None,
        )
    else:  # the image is larger than memory
        labels = cast(LazyArray, prediction.labels)
        maps = BandedMaps(case_id=sample.case_id, target=sample.target, labels=labels, spec=spec)
    terms = prediction.loss
    return replace(
        make_row(maps, measures),
        loss=None if terms is None else divide_terms(terms[None]),
        loss_terms=() if terms is None else tuple((total, denominator) for total, denominator in terms.tolist()),
        changed_pixels=cleaned.changed,
        spacing=spacing,
        unit=unit,
    )


def check_streamable(job: CaseRun, metrics: MetricsConfig | None = None) -> None:
    """Refuse, all at once, the settings that don't work for volumes or for cases that are read in bands.

    Raises
    ------
    ConfigError
        One line per setting.
    """
    dataset = job.dataset
    steps = job.postprocess.steps
    if isinstance(dataset, VolumeSet):
        problems = check_volume_export(job.export, dataset.spec)
        rule, remedy = "to be left out for volumes", "Connected components are the objects of a volume."
        flat = [step.name for step in steps if isinstance(step, WatershedConfig | DistanceSplitConfig)]
        problems += [expected("postprocess", name, rule, "a step of pictures", remedy) for name in flat]
        if problems:
            raise ConfigError(problems)
    needs = _whole_map_needs(job.export, job.postprocess)
    if metrics is not None:
        remedy = "Leave it out; pixels are counted."
        needs += [(f"metrics.measures: {measure.name}", remedy) for measure in metrics.measures]
        needs += [("metrics.calibration", "Set it to false.")] if metrics.calibration else []
    if job.terms is not None and not sums_by_bands(job.terms):
        needs.append(("loss", "Set loss=focal, which is a sum over pixels."))
    if needs and (streamed := dataset.streamed_cases()):
        first = min(streamed)
        header = dataset.header_of(first)
        why = "a Zarr image" if header.format == "zarr" else f"{header.height} x {header.width} pixels"
        rule = f"to work by rows, as case {dataset.case_ids[first]!r} is read by rows ({why})"
        raise ConfigError([expected("config", what, rule, "what needs it whole", remedy) for what, remedy in needs])


def _whole_map_needs(export: ExportConfig, postprocess: PostprocessConfig) -> list[tuple[str, str]]:
    """Find the settings that need a whole map, each with its remedy."""
    needs = [(f"postprocess.{step.name}", "Leave it out, or set postprocess=none.") for step in postprocess.steps]
    needs += [(f"export.{name}", "Set it to false.") for name in ("probs", "confidence") if getattr(export, name)]
    return needs + ([("export.objects", "Set it to [].")] if export.objects else [])


def prefer_bands(
    dataset: Dataset, *, inference: InferenceConfig, export: ExportConfig, postprocess: PostprocessConfig
) -> Dataset:
    """Return a data set that reads large tiled images in bands, unless a setting needs a whole map.

    Reading in bands takes less memory. The labels are the same either way.
    """
    if _whole_map_needs(export, postprocess):
        return dataset
    tile = inference.tile
    return replace(dataset, rows_above=WHOLE_PIXELS if tile is None else max(BANDED_PIXELS, tile**2))
