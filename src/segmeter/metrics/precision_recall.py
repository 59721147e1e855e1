"""Computes precision and recall of a class at every threshold, from the sums of its calibration."""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import digamma

from segmeter.metrics.arrays import BoolArray, FloatArray, IntArray, divide

OF_A_CURVE = ("average_precision", "average_precision_error", "best_f1", "best_threshold")


@dataclass(frozen=True, kw_only=True)
class PrecisionRecallCurve:
    """A class against the rest at every threshold; NaN where the target never holds it.

    Parameters
    ----------
    thresholds, precision, recall : (M,), float64
        By falling threshold: a pixel is predicted where p > threshold, compared in float64. Thresholds at which nothing
        changes are left out.
    average_precision
        Sum over the thresholds of precision times the recall that it adds (scikit-learn's, no interpolation).
        Probabilities of one step count as equal. A step is less than 1/1024 of the distance to 0 or 1, whichever is
        nearer (1/64 below 2**-24), and all values between 0 and 2**-132 are one step.
    average_precision_error
        An upper bound on the difference to the average precision of the exact probabilities, whatever their order
        within a step. It is large if a model gives nearly the same probability everywhere, and too large if they are
        equal.
    best_f1, best_threshold
        The largest F1 (Dice over the data set), and the highest threshold that has it.
    """

    thresholds: FloatArray
    precision: FloatArray
    recall: FloatArray
    average_precision: float
    average_precision_error: float
    best_f1: float
    best_threshold: float

    def thinned(self, count: int) -> "PrecisionRecallCurve":
        """Return about this many points at most, evenly by recall; the scores stay those of all points."""
        wanted = np.searchsorted(self.recall, np.linspace(0, 1, count), side="left")
        kept = np.unique(np.minimum(wanted, max(len(self.recall) - 1, 0))) if len(self.recall) else np.arange(0)
        points = {name: getattr(self, name)[kept] for name in ("thresholds", "precision", "recall")}
        return replace(self, **points)


def compute_precision_recall(histogram: IntArray, lower: FloatArray) -> PrecisionRecallCurve:
    """Turn counts (2, STEPS), row 1 the class and row 0 the rest, and the steps' lower ends into a sweep.

    Probabilities of one step count as equal, as they are in the first and in the last step, which hold 0 and 1. A
    step's lower end is exclusive: p > end is the step and all above.
    """
    held = np.flatnonzero(histogram.sum(axis=0))[::-1]
    rest, tp = np.cumsum(histogram[:, held], axis=1)
    positives = int(tp[-1]) if len(tp) else 0
    precision, recall = divide(tp, tp + rest), divide(tp, np.full(len(tp), positives))
    curve: dict[str, Any] = {"thresholds": lower[held], "precision": precision, "recall": recall}
    if not positives:
        return PrecisionRecallCurve(**curve | dict.fromkeys(OF_A_CURVE, math.nan))
    f1 = 2 * tp / (tp + rest + positives)
    best = int(np.argmax(f1))
    return PrecisionRecallCurve(
        **curve,
        average_precision=float((np.diff(recall, prepend=0.0) * precision).sum()),
        average_precision_error=_order_error(tp, rest, (held > 0) & (held < len(lower) - 1)),
        best_f1=float(f1[best]),
        best_threshold=lower[held][best],  # np.float64, so that float32 probabilities are compared in float64
    )


def _order_error(tp: IntArray, rest: IntArray, tied: BoolArray) -> float:
    """Return how far the average precision can be from that of ties, for any order of the values within a step.

    Where the class comes first in a step that begins after t of the class and r of the rest, its precisions are
    (t + i) / (t + r + i) for i = 1, 2, ..., which digamma adds up; where it comes last, r is that at the step's end.
    """
    hits = np.diff(tp, prepend=0)

    def summed(before: IntArray) -> FloatArray:
        start = (tp - hits + before).astype(np.float64)
        gap: FloatArray = digamma(start + hits + 1) - digamma(start + 1)
        return hits - before * gap

    found = hits * divide(tp, tp + rest)
    first, last = summed(rest - np.diff(rest, prepend=0)), summed(rest)
    return max(float((first - found)[tied].sum()), float((found - last)[tied].sum())) / float(tp[-1])
