"""Model and cases -> scores, through the same inference and counting as every evaluation."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import nn

from segmeter.checks import expected, nearest
from segmeter.classes import ClassSpec
from segmeter.distributed.batches import Part, own_batches, split_passes
from segmeter.distributed.ranks import ALONE, World
from segmeter.distributed.shards import Shard
from segmeter.errors import EXIT_BAD_INPUT, ConfigError, DataError, OverflowedError, RunError, SegmeterError
from segmeter.inference.predictor import Predictor
from segmeter.losses.additive import AdditiveLoss, additive
from segmeter.metrics.cases.table import divide_terms
from segmeter.metrics.pixels.confusion import count_case
from segmeter.metrics.pixels.overlap import OverlapScores, overlap_scores
from segmeter.training.config import AUTO, CLASS_MONITORS, MONITORS
from segmeter.training.data.cache import Cases

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
        return spec.headline
    known = monitors(spec)
    if monitor not in known:
        rule = "to be a figure that validation computes"
        raise ConfigError(expected("training", "monitor", rule, repr(monitor), nearest(monitor, known)))
    return monitor


@dataclass(frozen=True, kw_only=True, eq=False)
class CaseSums:
    """What a case adds to the scores: its counts, and the sum and denominator of each part of its loss, (P, 2)."""

    counts: NDArray[np.int64]
    loss: NDArray[np.float64]


@dataclass(frozen=True)
class Fault:
    """A case that could not be scored, as any process can tell rank 0."""

    index: int
    problems: tuple[str, ...]
    refused: bool  # as its files are at fault
    overflowed: str | None  # the case, where the model's output is not finite

    def error(self) -> SegmeterError:
        """What is raised for it."""
        if self.overflowed is not None:
            return OverflowedError(self.problems, case_id=self.overflowed)
        return DataError(self.problems) if self.refused else RunError(self.problems)


def validate(
    predictor: Predictor,
    cases: Cases,
    loss: nn.Module,
    *,
    stopped: Callable[[], bool],
    on_case: Callable[[int], None] = lambda done: None,
    world: World = ALONE,
) -> Validation | None:
    """Score the model on every case; the counts of all cases are summed first, and so is what the loss divides by.

    Several processes share the batches of the cases out, and tell rank 0 what they found when they are done.

    Parameters
    ----------
    predictor
        Runs the model, with its way of tiling.
    cases
        Each with a target.
    loss
        Logits and target -> 0-d. Reported as that of all cases as one batch, where it adds (`AdditiveLoss`); region
        losses count each case on its own.
    stopped
        Asked after each case; once it says yes, the validation is given up, and the caller waits for the others by
        ``world.gather``.
    on_case
        Called after each case with the number of cases done.
    world
        The processes that call this with the same model and cases.

    Returns
    -------
    None where it was given up, and for all processes but the first.
    """
    found: dict[int, CaseSums] = {}
    fault: Fault | None = None
    try:
        for index, sums in _score(predictor, cases, additive(loss, cases.spec.ignore_index), world):
            if stopped():
                return None
            found[index] = sums
            on_case(min(len(found) * world.size, len(cases)))
    except _FaultError as error:
        fault = error.fault
    except Exception:
        if world.leads:  # the others are met where they wait
            world.gather(None)
        raise
    told = world.gather((found, fault))
    if not world.leads:
        return None
    faults = [each for _, each in told if each is not None]
    if faults:
        raise min(faults, key=lambda each: each.index).error() from None
    every = {index: sums for part, _ in told for index, sums in part.items()}
    return _summarise([every[index] for index in sorted(every)], cases.spec)


class _FaultError(Exception):
    def __init__(self, fault: Fault) -> None:
        super().__init__(fault)
        self.fault = fault


def _score(predictor: Predictor, cases: Cases, loss: AdditiveLoss, world: World) -> Iterator[tuple[int, CaseSums]]:
    """The cases that this process takes, by their number."""
    mine, passes = list(range(len(cases))), [range(len(cases))]
    if world.size > 1:
        size = predictor.config.batch_size
        mine, batches = own_batches(cases.kinds(), Shard(world.rank + 1, world.size), size)
        passes = list(split_passes(batches, range(len(mine)), size))
    done = 0
    try:
        for part in passes:
            held = cases if world.size == 1 else Part(cases, mine[part.start : part.stop])
            for prediction in predictor.predict(held, loss=loss):
                sample = prediction.sample
                if sample.target is None or prediction.loss is None:
                    raise DataError(f"{sample.case_id}: has no mask, and validation needs one for every case.")
                yield (
                    mine[done],
                    CaseSums(counts=count_case(sample.target, prediction.labels, cases.spec), loss=prediction.loss),
                )
                done += 1
    except SegmeterError as error:
        refused, overflowed = error.exit_code == EXIT_BAD_INPUT, getattr(error, "case_id", None)
        raise _FaultError(Fault(mine[done], error.problems, refused, overflowed)) from error


def _summarise(cases: Sequence[CaseSums], spec: ClassSpec) -> Validation:
    """The scores of all cases, added up in their order."""
    if not cases:
        raise DataError("validation: there is no case to validate on.")
    overlap = overlap_scores(np.sum([each.counts for each in cases], axis=0), task=spec.task)
    named = zip(spec.names, overlap.iou, overlap.support, strict=True)
    return Validation(
        values={**scores(overlap, spec), "loss": divide_terms(np.stack([each.loss for each in cases]))},
        unlearned=tuple(name for name, iou, support in named if support > 0 and iou < UNLEARNED),
    )


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
