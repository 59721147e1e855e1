"""Model and cases -> scores, through the same inference and counting as every evaluation."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from segmeter.checks import expected, nearest
from segmeter.errors import ConfigError, DataError
from segmeter.inference.predictor import Predictor
from segmeter.metrics.counts import count_case
from segmeter.metrics.overlap import overlap_scores
from segmeter.training.cache import Cases
from segmeter.training.config import CLASS_MONITORS, MONITORS
from segmeter.training.step import Loss
from segmeter.vocabulary import ClassSpec


def monitors(spec: ClassSpec) -> list[str]:
    """Every name that a validation computes, and that `training.monitor` may say."""
    return [*MONITORS, *(f"{kind}/{name}" for kind in CLASS_MONITORS for name in spec.names)]


def check_monitor(monitor: str, spec: ClassSpec) -> None:
    """Raise ConfigError with the nearest name unless a validation computes `monitor`."""
    known = monitors(spec)
    if monitor not in known:
        rule = "to be a figure that validation computes"
        raise ConfigError(expected("training", "monitor", rule, repr(monitor), nearest(monitor, known)))


def validate(predictor: Predictor, cases: Cases, loss: Loss, *, stopped: Callable[[], bool]) -> dict[str, float] | None:
    """Score the model on every case; the counts of all cases are summed first.

    Parameters
    ----------
    predictor
        Of the model, with its way of tiling.
    cases
        Each with a target.
    loss
        Logits and target -> 0-d; its mean over the cases is reported.
    stopped
        Asked after each case; once it says yes, the validation is given up.

    Returns
    -------
    One float per name in `monitors`, NaN where undefined; None where it was given up.
    """
    counts: NDArray[np.int64] | None = None
    losses: list[float] = []
    for prediction in predictor.predict(cases, loss=loss):
        if stopped():
            return None
        target = prediction.sample.target
        if target is None or prediction.loss is None:
            raise DataError(f"{prediction.sample.case_id}: has no mask, and validation needs one for every case.")
        case_counts = count_case(target, prediction.labels, cases.spec)
        counts = case_counts if counts is None else counts + case_counts
        losses.append(prediction.loss)
    if counts is None:
        raise DataError("validation: there is no case to validate on.")
    return {**scores(counts, cases.spec), "loss": sum(losses) / len(losses)}


def scores(counts: NDArray[np.int64], spec: ClassSpec) -> dict[str, float]:
    """The overlap scores that a run is followed by."""
    overlap = overlap_scores(counts, task=spec.task)
    named = {
        "mean_iou": float(overlap.mean_iou),
        "mean_dice": float(overlap.mean_dice),
        "pixel_accuracy": float(overlap.pixel_accuracy),
    }
    for kind, values in (("iou", overlap.iou), ("dice", overlap.dice)):
        named.update({f"{kind}/{name}": float(value) for name, value in zip(spec.names, values, strict=True)})
    return named


def higher_is_better(monitor: str) -> bool:
    """Of the figures that a validation computes, only the loss is better where it is lower."""
    return monitor != "loss"
