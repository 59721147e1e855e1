"""Model and cases -> scores, through the same inference and counting as every evaluation."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from segmeter.bridge.scalars import read_scalars
from segmeter.checks import expected, nearest
from segmeter.classes import ClassSpec
from segmeter.errors import ConfigError, DataError
from segmeter.inference.predictor import Predictor
from segmeter.losses.additive import AdditiveLoss, additive, divide
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


class RunningLoss:
    """The loss of all cases together: its sums and denominators are added on the device, case by case.

    Parameters
    ----------
    loss
        A part whose denominator is a number is averaged over the cases.
    """

    def __init__(self, loss: AdditiveLoss) -> None:
        self.loss = loss
        self.cases = 0
        self._sums: Tensor | float = 0.0
        self._denominators: Tensor | float = 0.0

    def __call__(self, logits: Tensor, target: Tensor) -> Tensor:
        """Add a batch of one case, (1, num_channels, H, W) and its target; give its own loss, 0-d."""
        sums, denominators = self.loss.sums(logits, target), self.loss.denominators(target)
        self.cases += 1
        self._sums = self._sums + sums.double()
        self._denominators = self._denominators + denominators
        return divide(sums, denominators)

    def value(self) -> float:
        """Read the loss of all that was added; NaN where nothing was."""
        if not isinstance(self._sums, Tensor) or not isinstance(self._denominators, Tensor):
            return math.nan
        return read_scalars([divide(self._sums, self._denominators, otherwise=self.cases)])[0]


def validate(
    predictor: Predictor,
    cases: Cases,
    loss: nn.Module,
    *,
    stopped: Callable[[], bool],
    on_case: Callable[[int], None] = lambda done: None,
) -> Validation | None:
    """Score the model on every case; the counts of all cases are summed first, and so is what the loss divides by.

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
        Asked after each case; once it says yes, the validation is given up.

    on_case
        Called after each case with the number of cases done.

    Returns
    -------
    None where it was given up.
    """
    counts: NDArray[np.int64] | None = None
    running = RunningLoss(additive(loss, cases.spec.ignore_index))
    for done, prediction in enumerate(predictor.predict(cases, loss=running), start=1):
        if stopped():
            return None
        target = prediction.sample.target
        if target is None or prediction.loss is None:
            raise DataError(f"{prediction.sample.case_id}: has no mask, and validation needs one for every case.")
        case_counts = count_case(target, prediction.labels, cases.spec)
        counts = case_counts if counts is None else counts + case_counts
        on_case(done)
    if counts is None:
        raise DataError("validation: there is no case to validate on.")
    overlap = overlap_scores(counts, task=cases.spec.task)
    named = zip(cases.spec.names, overlap.iou, overlap.support, strict=True)
    return Validation(
        values={**scores(overlap, cases.spec), "loss": running.value()},
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
