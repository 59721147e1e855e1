"""Scores the model on the validation cases during training, through the inference and counting of every evaluation.

So `inference.precision` decides how it computes, not `training.precision`.

Each process scores its own part of the cases (`score_part`); rank 0 joins the parts and draws pictures (`Validator`).
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from segmeter.classes import ClassSpec
from segmeter.data.dataset import Dataset, Part
from segmeter.data.images import Thumbnail, tapped, thumbnail_step
from segmeter.data.sample import Sample
from segmeter.distributed.ranks import World
from segmeter.distributed.shards import Shard, own_batches
from segmeter.errors import DataError, OverflowedError, RunError, SegmeterError, StopSignals
from segmeter.inference.predictor import Predictor
from segmeter.inference.results import BandLoss, Prediction, sums_by_bands
from segmeter.losses.additive import AdditiveLoss
from segmeter.metrics.cases.run_columns import divide_terms
from segmeter.metrics.config.metrics import choose_headline
from segmeter.metrics.objects.scores import match_instances
from segmeter.metrics.pixels.confusion import count_case
from segmeter.metrics.pixels.overlap import overlap_scores
from segmeter.postprocess.config import StepConfig
from segmeter.postprocess.pipeline import needs_probs, run_steps
from segmeter.training.data.cases import CachedDataset, Cases, spread_evenly
from segmeter.training.job import TrainJob
from segmeter.training.learner import Learner
from segmeter.training.pictures import Pictures

UNLEARNED = 0.01  # a class of the targets counts as not found below this IoU


@dataclass(frozen=True, kw_only=True)
class Validation:
    """Scores of a model on the validation cases.

    Parameters
    ----------
    values
        One float per name in `config.monitors`, NaN where undefined.
    unlearned
        Classes of the targets whose IoU is below `UNLEARNED`.
    """

    values: dict[str, float]
    unlearned: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, eq=False)
class Scored:
    """One case's contribution to the scores.

    Parameters
    ----------
    index
        The index of the case.
    counts
        From `count_case`.
    terms
        The sum and the denominator of each part of the loss, (P, 2).
    objects
        From `count_objects`; None if no objects are matched.
    drawn
        The prediction, if a picture will be drawn of it.
    """

    index: int
    counts: NDArray[np.int64]
    terms: NDArray[np.float64]
    objects: NDArray[np.float64] | None = None
    drawn: Prediction | None = None


@dataclass(kw_only=True)
class PartScores:
    """The results of one process for its part of the cases. `signal` is the one that cut it short, or 0."""

    scored: list[Scored] = field(default_factory=list)
    fault: Exception | None = None
    signal: int = 0


def score_part(
    job: TrainJob, learner: Learner, *, stop: StopSignals, on_case: Callable[[int], None] = lambda done: None
) -> PartScores:
    """Score the published weights of rank 0 on this process's part of the cases.

    Every process of the run calls it. Each has its own running statistics of batch norm, so they are first copied from
    rank 0. From then on no process waits for another one.

    Parameters
    ----------
    job
        Its validation cases all have a target. A process takes every n-th batch, see `own_batches`. Predictions are
        kept for the cases that will be drawn. Post-processing splits objects, which are then matched with the objects
        of the masks.
    learner
        Its loss is reported as if all cases were one batch. Region losses count each case on its own.
    stop
        Asked after each case; a signal ends the part early.
    on_case
        Called after each case with the number of cases of this process that are done.

    Returns
    -------
    The results until a fault or a signal came. `join_parts` turns them into scores, and raises.
    """
    cases = job.data.val_cases
    steps = job.settings.steps
    world = job.world
    part = PartScores()
    assert cases is not None
    world.copy_first(learner.published.state_dict().values())
    pictured = spread_evenly(len(cases), job.settings.training.pictures) if job.draw else ()
    try:
        for index, prediction, counts in _predict(learner, cases, world, probs=needs_probs(steps)):
            if stop:
                part.signal = stop.number
                break
            terms = prediction.loss
            assert terms is not None  # there is a mask
            objects = count_objects(prediction, steps, cases.spec) if steps else None
            drawn = prediction if index in pictured else None
            part.scored.append(Scored(index=index, counts=counts, terms=terms, objects=objects, drawn=drawn))
            on_case(len(part.scored))
    except Exception as error:  # the other processes learn of it when they are done with their parts
        reason = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else repr(error)
        text = f"validation: process {world.rank + 1} of {world.size} failed: {reason}."
        part.fault = error if isinstance(error, SegmeterError) or world.leads else RunError(text)
    return part


def join_parts(parts: Sequence[PartScores], spec: ClassSpec, *, total: int) -> tuple[Validation, list[Prediction]]:
    """Add up the parts of all processes, in the order of the cases, and collect the predictions that will be drawn.

    Raises
    ------
    DataError
        A case has no mask or can't be read, or there is no case.
    RunError
        The processes saw different files, so a case was left out or scored twice.
    OverflowedError
        The model's output for a case is not finite.
    """
    for fault in (part.fault for part in parts if part.fault is not None):
        raise fault
    scored = sorted((case for part in parts for case in part.scored), key=lambda case: case.index)
    if not scored:
        raise DataError("validation: there is no case to validate on.")
    if [case.index for case in scored] != list(range(total)):
        got = f"{len(scored)} scores of {len({case.index for case in scored})} of {total} cases"
        raise RunError(f"validation: expected one score of each case, got {got}. Let all processes see the same files.")
    overlap = overlap_scores(np.sum([case.counts for case in scored], axis=0), task=spec.task)
    values = {name: float(getattr(overlap, name)) for name in ("mean_iou", "mean_dice", "pixel_accuracy")}
    for kind, per_class in (("iou", overlap.iou), ("dice", overlap.dice)):
        values |= {f"{kind}/{name}": float(value) for name, value in zip(spec.names, per_class, strict=True)}
    matched = [case.objects for case in scored if case.objects is not None]
    if matched:  # PQ over the objects of all cases
        ious, objects = np.sum(matched, axis=0)
        values[choose_headline(spec.task, spec.names, objects=True)] = float(ious / objects) if objects else math.nan
    values["loss"] = divide_terms(np.stack([case.terms for case in scored], dtype=np.float64))
    classes = zip(spec.names, overlap.iou, overlap.support, strict=True)
    unlearned = tuple(name for name, iou, support in classes if support > 0 and iou < UNLEARNED)
    return Validation(values=values, unlearned=unlearned), [case.drawn for case in scored if case.drawn is not None]


def _predict(
    learner: Learner, cases: Cases, world: World, *, probs: bool
) -> Iterator[tuple[int, Prediction, NDArray[np.int64]]]:
    """Yield each case of this process with its index and counts.

    Cases that are larger than memory come last, with reduced pictures in place of their maps.
    """
    predictor, loss = learner.predictor, learner.validation_loss
    cached = cases if isinstance(cases, CachedDataset) and sums_by_bands(loss) else None
    large = frozenset() if cached is None else cached.large_cases
    indices = [index for index in range(len(cases)) if index not in large]
    shard = Shard(world.rank + 1, world.size)
    batches = None
    if world.size > 1:  # batches hold the same images as in a validation by one process
        kinds = cases.kinds()
        own, batches = own_batches([kinds[index] for index in indices], shard, predictor.config.batch_size)
        indices = [indices[position] for position in own]
    # The traceback of an error would keep the generator alive, and the garbage collector might then close it in one of
    # the generator's own threads
    with closing(predictor.predict(Part(cases, indices), batches=batches, probs=probs, loss=loss)) as predictions:
        for index, prediction in zip(indices, predictions, strict=True):
            if (target := prediction.sample.target) is None:
                raise DataError(f"{prediction.sample.case_id}: has no mask, and validation needs one for every case.")
            yield index, prediction, count_case(target, prediction.labels, cases.spec)
    if cached is not None:
        for index in shard.take(sorted(large)):
            yield index, *_stream(predictor, cached, index, loss)


def _stream(
    predictor: Predictor, cases: CachedDataset, index: int, loss: AdditiveLoss
) -> tuple[Prediction, NDArray[np.int64]]:
    """Predict and count a large case in bands, as an evaluation does."""
    case_id = cases.case_ids[index]
    counts = np.zeros(cases.spec.counts_shape, np.int64)
    assert isinstance(cases.cases, Dataset)  # only its cases can be large
    with cases.cases.open_rows(index) as (image, target):
        assert target is not None  # every case has a mask
        step = thumbnail_step(*image.shape[:2])
        small_image, small_labels, small_target = (Thumbnail(step, axis) for axis in (-3, -2, -2))
        band_loss = BandLoss(loss, predictor.device)
        for band in predictor.stream(tapped(image, small_image), case_id=case_id, target=target, loss=band_loss):
            target_lines = cast(NDArray[Any], band.target)  # there is a target
            counts += count_case(target_lines, band.labels, cases.spec)
            small_labels.add(band.top, band.labels)
            small_target.add(band.top, target_lines)
    sample = Sample(case_id=case_id, image=small_image.pixels(), target=small_target.pixels())
    return Prediction(sample=sample, labels=small_labels.pixels(), loss=band_loss.terms()), counts


def count_objects(prediction: Prediction, steps: Sequence[StepConfig], spec: ClassSpec) -> NDArray[np.float64]:
    """Split a prediction into objects, match them with its mask's objects, and return the terms whose sums give PQ.

    Returns
    -------
    (2,) float64: the sum of IoU over matches, and tp + fp/2 + fn/2.
    """
    sample = prediction.sample
    assert sample.target is not None  # every case has a mask
    assert sample.instances is not None
    instances = run_steps(prediction.labels, steps, spec, prediction.probs).instances
    match = match_instances(sample.instances, np.asarray(instances), void=~spec.valid(sample.target))
    return np.array([match.iou.sum(), match.tp + (match.fp + match.fn) / 2])


class Validator:
    """Scores the published weights of a learner on the validation cases of its job; only rank 0 has one.

    Parameters
    ----------
    step
        The step that the run continues from.
    show
        Called after each case with the progress of the validation, in words.
    stop
        Asked after each case; a signal ends the validation. It also hears the signals of other processes.
    """

    def __init__(
        self, job: TrainJob, learner: Learner, *, step: int, show: Callable[[str], None], stop: StopSignals
    ) -> None:
        self._job = job
        self._learner = learner
        self._show = show
        self._stop = stop
        self._given_up: PartScores | None = None
        self._total = 0 if job.data.val_cases is None else len(job.data.val_cases)
        self._pictures = Pictures(job.folder, draw=job.draw, step=step)

    def __call__(self, step: int, lr: float) -> tuple[Validation, dict[str, Path]] | None:
        """Validate after a step, and draw the pictures of this validation.

        Returns
        -------
        The scores, and the picture of each case that was drawn; None if a signal came.

        Raises
        ------
        RunError
            The model's output is not finite. The message names the step, the learning rate and the case.
        """
        start = time.monotonic()
        world = self._job.world

        def on_case(done: int) -> None:
            done = min(done * world.size, self._total)
            seconds_left = (self._total - done) * (time.monotonic() - start) / done
            self._show(f", validating {done} of {self._total}, {seconds_left:.0f} s left")

        part = score_part(self._job, self._learner, stop=self._stop, on_case=on_case)
        if part.signal:
            self._given_up = part
            return None
        parts: list[PartScores] = world.gather(part)
        self._stop.hear(max(part.signal for part in parts))
        if any(part.signal for part in parts):
            return None
        try:
            validation, drawn = join_parts(parts, self._job.data.train_cases.spec, total=self._total)
        except OverflowedError as error:
            raise RunError(
                f"training: the model's output is NaN or infinite at step {step} (lr {lr:.3g}; validation "
                f"case {error.case_id!r}). Earlier checkpoints stay; lower optimizer.lr "
                f"({self._job.settings.optimizer.lr:g}), set training.clip_norm, or try inference.precision=float32."
            ) from error
        return validation, self._pictures.save(drawn, step)

    def settle(self) -> None:
        """After the save, let the other processes finish a validation that was cut short here."""
        if self._given_up is not None:
            self._job.world.gather(self._given_up)
            self._given_up = None
