"""Model and cases -> scores, through the same inference and counting as every evaluation."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from torch import nn

from segmeter.checks import expected, nearest
from segmeter.classes import ClassSpec
from segmeter.data.sample import Sample
from segmeter.data.thumbnail import Thumbnail, tapped, thumbnail_step
from segmeter.distributed.batches import Part, own_batches, split_passes
from segmeter.distributed.faults import Fault
from segmeter.distributed.ranks import ALONE, World
from segmeter.distributed.shards import Shard
from segmeter.errors import ConfigError, DataError, RunError, SegmeterError
from segmeter.inference.async_results import Prediction
from segmeter.inference.bands import BandLoss, sums_by_bands
from segmeter.inference.predictor import Predictor
from segmeter.losses.additive import AdditiveLoss, additive
from segmeter.metrics.cases.typed import divide_terms
from segmeter.metrics.config.metrics import MetricsConfig, headline_of
from segmeter.metrics.pixels.confusion import count_case
from segmeter.metrics.pixels.overlap import OverlapScores, overlap_scores
from segmeter.progress import Pulse
from segmeter.training.config import AUTO, CLASS_MONITORS, MONITORS
from segmeter.training.data.cache import CachedDataset, Cases
from segmeter.training.run.signals import StopSignals

UNLEARNED = 0.01  # a class that the targets hold and whose IoU is below this is as good as not found


@dataclass(frozen=True, kw_only=True)
class Validation:
    """Scores of a model on the validation cases.

    Parameters
    ----------
    values
        One float per name in `monitors`, NaN where undefined.
    unlearned
        The classes that the targets hold and whose IoU is below `UNLEARNED`.
    """

    values: dict[str, float]
    unlearned: tuple[str, ...] = ()


def monitors(spec: ClassSpec) -> list[str]:
    """Every name that a validation computes, and that `training.monitor` may say."""
    return [*MONITORS, *(f"{kind}/{name}" for kind in CLASS_MONITORS for name in spec.names)]


def find_monitor(monitor: str, spec: ClassSpec) -> str:
    """Name the score that `training.monitor` means; ConfigError with the nearest name where validation has none such.

    Examples
    --------
    >>> cells = ClassSpec(task="binary", names=("background", "cell"), colours=((0, 0, 0), (9, 9, 9)))
    >>> find_monitor("auto", cells), find_monitor("mean_dice", cells)
    ('iou/cell', 'mean_dice')
    """
    if monitor == AUTO:
        return headline_of(MetricsConfig(), spec)
    known = monitors(spec)
    if monitor not in known:
        rule = "to be a figure that validation computes"
        raise ConfigError(expected("training", "monitor", rule, repr(monitor), nearest(monitor, known)))
    return monitor


@dataclass(frozen=True, kw_only=True, eq=False)
class Scored:
    """What one case adds to the scores.

    Parameters
    ----------
    index
        Of the case.
    counts
        From `count_case`.
    terms
        The sum and the denominator of each part of the loss, (P, 2).
    shown
        What was predicted, where somebody wants to draw it.
    """

    index: int
    counts: NDArray[np.int64]
    terms: NDArray[np.float64]
    shown: Prediction | None = None


@dataclass(kw_only=True)
class Share:
    """What one process found on its part of the cases; `signal` is the one that cut it short, 0 where none did."""

    scored: list[Scored] = field(default_factory=list)
    fault: Exception | None = None
    signal: int = 0


def take_share(
    predictor: Predictor,
    cases: Cases,
    loss: nn.Module,
    *,
    stop: StopSignals,
    on_case: Callable[[int], None] = lambda done: None,
    show: Collection[str] = (),
    world: World = ALONE,
) -> Share:
    """Score the model on this process's part of the cases; no process waits for another.

    Parameters
    ----------
    predictor
        Runs the model, with its way of tiling; the same in all processes.
    cases
        All of them, each with a target. A process takes every n-th batch, as `own_batches` says.
    loss
        Logits and target -> 0-d. Reported as that of all cases as one batch, where it adds (`AdditiveLoss`); region
        losses count each case on its own.
    stop
        Asked after each case; once there is a signal, the part is given up.
    on_case
        Called after each case with the number of this process's cases that are done.
    show
        The cases whose predictions are kept.
    world
        The processes among which the cases are shared out.

    Returns
    -------
    What was found until a fault or a signal came. `join_shares` makes scores of it, and raises.
    """
    share = Share()
    try:
        for index, prediction, counts in _predict(predictor, cases, additive(loss, cases.spec.ignore_index), world):
            if stop:
                share.signal = stop.number
                break
            terms, shown = prediction.loss, prediction if prediction.sample.case_id in show else None
            if terms is None:
                raise _without_mask(prediction.sample.case_id)
            Pulse.beat()
            share.scored.append(Scored(index=index, counts=counts, terms=terms, shown=shown))
            on_case(len(share.scored))
    except Exception as error:  # the others learn of it when they are done with their parts
        named = Fault.of(error, f"validation: process {world.rank + 1} of {world.size}")
        share.fault = error if isinstance(error, SegmeterError) or world.leads else RunError(named.lines)
    return share


def join_shares(shares: Sequence[Share], spec: ClassSpec, *, total: int) -> tuple[Validation, list[Prediction]]:
    """Add up what all processes found of `total` cases, in their order, and gather what is to be drawn.

    Raises
    ------
    DataError
        A case has no mask or can't be read, or there is none.
    RunError
        The processes saw different files, and so left a case out or scored it twice.
    OverflowedError
        The model's output for a case is not finite.
    """
    for fault in (share.fault for share in shares if share.fault is not None):
        raise fault
    scored = sorted((each for share in shares for each in share.scored), key=lambda each: each.index)
    if not scored:
        raise DataError("validation: there is no case to validate on.")
    if [each.index for each in scored] != list(range(total)):
        got = f"{len(scored)} scores of {len({each.index for each in scored})} of {total} cases"
        raise RunError(f"validation: expected one score of each case, got {got}. Let all processes see the same files.")
    overlap = overlap_scores(np.sum([each.counts for each in scored], axis=0), task=spec.task)
    named = zip(spec.names, overlap.iou, overlap.support, strict=True)
    found = Validation(
        values={
            **scores(overlap, spec),
            "loss": divide_terms(np.stack([each.terms for each in scored], dtype=np.float64)),
        },
        unlearned=tuple(name for name, iou, support in named if support > 0 and iou < UNLEARNED),
    )
    return found, [each.shown for each in scored if each.shown is not None]


def _predict(
    predictor: Predictor, cases: Cases, loss: AdditiveLoss, world: World
) -> Iterator[tuple[int, Prediction, NDArray[np.int64]]]:
    """Each case of this process with its number and counts.

    Those that are larger than memory come last, and of their maps a small picture.
    """
    cached = cases if isinstance(cases, CachedDataset) and sums_by_bands(loss) else None
    large = frozenset() if cached is None else cached.large_cases()
    others, mine = [index for index in range(len(cases)) if index not in large], Shard(world.rank + 1, world.size)
    for numbers in _passes(cases, others, mine, predictor.config.batch_size):
        for index, prediction in zip(numbers, predictor.predict(Part(cases, numbers), loss=loss), strict=True):
            target = prediction.sample.target
            if target is None:
                raise _without_mask(prediction.sample.case_id)
            yield index, prediction, count_case(target, prediction.labels, cases.spec)
    if cached is not None:
        for index in mine.take(sorted(large)):
            yield index, *_stream(predictor, cached, index, loss)


def _passes(cases: Cases, numbers: Sequence[int], mine: Shard, batch_size: int) -> Iterator[Sequence[int]]:
    """The cases of a process in passes, in each of which images of one kind are in the batches of a single process."""
    if mine.count == 1:
        yield numbers
        return
    kinds = cases.kinds()
    own, batches = own_batches([kinds[number] for number in numbers], mine, batch_size)
    for part in split_passes(batches, range(len(own)), batch_size):
        yield [numbers[index] for index in own[part.start : part.stop]]


def _stream(
    predictor: Predictor, cases: CachedDataset, index: int, whole: AdditiveLoss
) -> tuple[Prediction, NDArray[np.int64]]:
    """Predict and count a case by bands, as an evaluation does."""
    case_id, counts = cases.case_ids[index], np.zeros(cases.spec.counts_shape, np.int64)
    with cases.open_rows(index) as (image, target):
        if target is None:
            raise _without_mask(case_id)
        step = thumbnail_step(*image.shape[:2])
        small, small_labels, small_target = (Thumbnail(step, axis) for axis in (-3, -2, -2))
        loss = BandLoss(whole, predictor.device)
        kept = tapped(image, small)
        for band in predictor.stream(kept, case_id=case_id, target=target, loss=loss):
            Pulse.beat()
            rows = cast(NDArray[Any], band.target)  # there is a target
            counts += count_case(rows, band.labels, cases.spec)
            small_labels.add(band.top, band.labels)
            small_target.add(band.top, rows)
    sample = Sample(case_id=case_id, image=small.pixels(), target=small_target.pixels())
    return Prediction(sample=sample, labels=small_labels.pixels(), loss=loss.terms()), counts


def _without_mask(case_id: str) -> DataError:
    return DataError(f"{case_id}: has no mask, and validation needs one for every case.")


def scores(overlap: OverlapScores, spec: ClassSpec) -> dict[str, float]:
    """Name the overlap scores that a run is followed by."""
    named = {
        "mean_iou": float(overlap.mean_iou),
        "mean_dice": float(overlap.mean_dice),
        "pixel_accuracy": float(overlap.pixel_accuracy),
    }
    for kind, values in (("iou", overlap.iou), ("dice", overlap.dice)):
        named.update({f"{kind}/{name}": float(value) for name, value in zip(spec.names, values, strict=True)})
    return named


def higher_is_better(monitor: str) -> bool:
    """Tell whether a validation metric is better where it is higher: all are but the loss."""
    return monitor != "loss"
