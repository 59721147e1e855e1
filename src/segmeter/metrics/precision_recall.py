"""Computes precision and recall of a class at every threshold, from the sums of its calibration."""

import math
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import digamma

from segmeter.metrics.arrays import BoolArray, FloatArray, IntArray, divide

OF_A_CURVE = ("average_precision", "average_precision_error", "best_f1", "best_threshold")


@dataclass(frozen=True, kw_only=True)
class PrecisionRecallCurve:
    """Precision and recall of a class against the rest at every threshold; NaN if the target never contains the class.

    Parameters
    ----------
    thresholds, precision, recall : (M,), float64
        By falling threshold: a pixel is predicted where p > threshold, compared in float64. Thresholds at which nothing
        changes are left out.
    average_precision
        Sum over the thresholds of precision times the recall that each adds (scikit-learn's, no interpolation).
        Probabilities within a step count as equal. A step is less than 1/1024 of the distance to 0 or 1, whichever is
        nearer (1/64 below 2**-24), and all values between 0 and 2**-132 are one step.
    average_precision_error
        An upper bound on the difference from the average precision of the exact probabilities, whatever their order
        within a step. It is large if a model gives nearly the same probability everywhere, and too large if these
        probabilities are in fact equal.
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
        """Return a curve of at most this many points, evenly by recall. Its scores are still those of all points."""
        if not len(self.recall):
            return self
        nearest = np.searchsorted(self.recall, np.linspace(0, 1, count), side="left")
        index = np.unique(np.minimum(nearest, len(self.recall) - 1))
        return replace(
            self, thresholds=self.thresholds[index], precision=self.precision[index], recall=self.recall[index]
        )


def compute_precision_recall(histogram: IntArray, lower: FloatArray) -> PrecisionRecallCurve:
    """Turn counts (2, STEPS), row 1 the class and row 0 the rest, and the steps' lower ends into a curve.

    Probabilities within a step count as equal. In the first and the last step, which contain only 0 and 1, they are. A
    step's lower end is exclusive: p > end is the step and all above.
    """
    steps = np.flatnonzero(histogram.sum(axis=0))[::-1]
    rest, tp = np.cumsum(histogram[:, steps], axis=1)
    thresholds = lower[steps]
    positives = int(tp[-1]) if len(tp) else 0
    precision, recall = divide(tp, tp + rest), divide(tp, np.full(len(tp), positives))
    if not positives:
        undefined = dict.fromkeys(OF_A_CURVE, math.nan)
        return PrecisionRecallCurve(thresholds=thresholds, precision=precision, recall=recall, **undefined)
    f1 = 2 * tp / (tp + rest + positives)
    best = int(np.argmax(f1))
    return PrecisionRecallCurve(
        thresholds=thresholds,
        precision=precision,
        recall=recall,
        average_precision=float((np.diff(recall, prepend=0.0) * precision).sum()),
        average_precision_error=_order_error(tp, rest, (steps > 0) & (steps < len(lower) - 1)),
        best_f1=float(f1[best]),
        best_threshold=thresholds[best],  # np.float64, so that float32 probabilities are compared in float64
    )


def _order_error(tp: IntArray, rest: IntArray, tied: BoolArray) -> float:
    """Bound how much the average precision changes if the values within a step aren't equal, in whatever order.

    Let t pixels of the class and r of the rest come before a step. If the class comes first in the step, its precisions
    are (t + i) / (t + r + i) for i = 1, 2, ..., which digamma adds up. If it comes last, r includes the step's rest.
    """
    hits = np.diff(tp, prepend=0)

    def sum_precisions(rest_before: IntArray) -> FloatArray:
        start = (tp - hits + rest_before).astype(np.float64)
        gap: FloatArray = digamma(start + hits + 1) - digamma(start + 1)
        return hits - rest_before * gap

    as_ties = hits * divide(tp, tp + rest)
    first, last = sum_precisions(rest - np.diff(rest, prepend=0)), sum_precisions(rest)
    return max(float((first - as_ties)[tied].sum()), float((as_ties - last)[tied].sum())) / float(tp[-1])
