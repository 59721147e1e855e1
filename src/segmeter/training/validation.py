"""Model and cases -> scores, through the same inference and counting as every evaluation."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from segmeter.bridge.scalars import read_scalars
from segmeter.checks import expected, nearest
from segmeter.classes import ClassSpec
from segmeter.data.by_rows.thumbnail import Tapped, Thumbnail, thumbnail_step
from segmeter.data.sample import Sample
from segmeter.errors import ConfigError, DataError
from segmeter.inference.async_results import Prediction
from segmeter.inference.bands import BandLoss, sums_by_bands
from segmeter.inference.predictor import Predictor
from segmeter.losses.additive import AdditiveLoss, additive, divide
from segmeter.metrics.pixels.confusion import count_case
from segmeter.metrics.pixels.overlap import OverlapScores, overlap_scores
from segmeter.training.config import AUTO, CLASS_MONITORS, MONITORS
from segmeter.training.data.cache import CachedDataset, Cases, Some

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

    def add(self, terms: Tensor) -> None:
        """Add a case whose sum and denominator of each part are known, (P, 2)."""
        self.cases += 1
        self._sums = self._sums + terms[:, 0]
        self._denominators = self._denominators + terms[:, 1]

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
    on_case: Callable[[int, Prediction], None] = lambda done, prediction: None,
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
        Called after each case with the number of cases done, and what was predicted.

    Returns
    -------
    None where it was given up.
    """
    counts: NDArray[np.int64] | None = None
    running = RunningLoss(additive(loss, cases.spec.ignore_index))
    for done, (prediction, case_counts) in enumerate(_predict(predictor, cases, running), start=1):
        if stopped():
            return None
        counts = case_counts if counts is None else counts + case_counts
        on_case(done, prediction)
    if counts is None:
        raise DataError("validation: there is no case to validate on.")
    overlap = overlap_scores(counts, task=cases.spec.task)
    named = zip(cases.spec.names, overlap.iou, overlap.support, strict=True)
    return Validation(
        values={**scores(overlap, cases.spec), "loss": running.value()},
        unlearned=tuple(name for name, iou, support in named if support > 0 and iou < UNLEARNED),
    )


def _predict(
    predictor: Predictor, cases: Cases, running: RunningLoss
) -> Iterator[tuple[Prediction, NDArray[np.int64]]]:
    """Each case with its counts; those that are larger than memory come last, and of their maps a small picture."""
    cached = cases if isinstance(cases, CachedDataset) and sums_by_bands(running.loss) else None
    large = frozenset() if cached is None else cached.large_cases()
    others = cases if not large else Some(cases, [index for index in range(len(cases)) if index not in large])
    for prediction in predictor.predict(others, loss=running):
        target = prediction.sample.target
        if target is None or prediction.loss is None:
            raise _without_mask(prediction.sample.case_id)
        yield prediction, count_case(target, prediction.labels, cases.spec)
    if cached is not None:
        for index in sorted(large):
            yield _stream(predictor, cached, index, running)


def _stream(
    predictor: Predictor, cases: CachedDataset, index: int, running: RunningLoss
) -> tuple[Prediction, NDArray[np.int64]]:
    """Predict and count a case by bands, as an evaluation does."""
    case_id, counts = cases.case_ids[index], np.zeros(cases.spec.counts_shape, np.int64)
    with cases.open_rows(index) as (image, target):
        if target is None:
            raise _without_mask(case_id)
        step = thumbnail_step(*image.shape[:2])
        small, small_labels, small_target = (Thumbnail(step, axis) for axis in (-3, -2, -2))
        loss = BandLoss(running.loss, predictor.device)
        tapped = Tapped(image, small)
        for band in predictor.stream(tapped, case_id=case_id, target=target, loss=loss):
            rows = cast(NDArray[Any], band.target)  # there is a target
            counts += count_case(rows, band.labels, cases.spec)
            small_labels.add(band.top, band.labels)
            small_target.add(band.top, rows)
    terms = loss.total()
    if terms is not None:
        running.add(terms)
    sample = Sample(case_id=case_id, image=small.pixels(), target=small_target.pixels())
    return Prediction(sample=sample, labels=small_labels.pixels()), counts


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
