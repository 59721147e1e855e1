"""one fine histogram of a class's probabilities -> every threshold at once: precision, recall, AP, best F1."""

from dataclasses import dataclass

import numpy as np

from segmeter.metrics.distances import IntArray
from segmeter.metrics.overlap import FloatArray, divide


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """A class against the rest at every threshold; NaN where the target never holds it.

    Parameters
    ----------
    thresholds, precision, recall : (M,), float64
        By falling threshold: what is predicted where p > threshold. Thresholds at which nothing changes are left out.
    average_precision
        Sum over the thresholds of precision times the recall that it adds (scikit-learn's, no interpolation).
    best_f1, best_threshold
        The largest F1 (Dice over the data set), and the highest threshold that has it.
    """

    thresholds: FloatArray
    precision: FloatArray
    recall: FloatArray
    average_precision: float
    best_f1: float
    best_threshold: float

    def thinned(self, points: int) -> "Sweep":
        """At most about so many points, evenly by recall; the scores stay those of all."""
        wanted = np.searchsorted(self.recall, np.linspace(0, 1, points), side="left")
        kept = np.unique(np.minimum(wanted, max(len(self.recall) - 1, 0))) if len(self.recall) else np.arange(0)
        return Sweep(
            thresholds=self.thresholds[kept],
            precision=self.precision[kept],
            recall=self.recall[kept],
            average_precision=self.average_precision,
            best_f1=self.best_f1,
            best_threshold=self.best_threshold,
        )


def sweep_thresholds(histogram: IntArray, lower: FloatArray) -> Sweep:
    """Turn counts (2, STEPS), row 1 the class and row 0 the rest, and the steps' lower ends into a sweep.

    Probabilities of one step count as equal. A step's lower end is exclusive: p > end is the step and all above.
    """
    held = np.flatnonzero(histogram.sum(axis=0))[::-1]
    rest, tp = np.cumsum(histogram[:, held], axis=1)
    positives = int(tp[-1]) if len(tp) else 0
    precision, recall = divide(tp, tp + rest), divide(tp, np.full(len(tp), positives))
    if not positives:
        nothing = float("nan")
        return Sweep(
            thresholds=lower[held],
            precision=precision,
            recall=recall,
            average_precision=nothing,
            best_f1=nothing,
            best_threshold=nothing,
        )
    f1 = 2 * tp / (tp + rest + positives)
    best = int(np.argmax(f1))
    return Sweep(
        thresholds=lower[held],
        precision=precision,
        recall=recall,
        average_precision=float((np.diff(recall, prepend=0.0) * precision).sum()),
        best_f1=float(f1[best]),
        best_threshold=float(lower[held][best]),
    )


def lower_ends(steps: int, middle: int, mantissa: int) -> FloatArray:
    """What a probability of each step exceeds; below 0 for the lowest, which holds 0 itself.

    Below 0.5 a step starts with a number p, so that the float32 before it is exceeded; from 0.5 on it is cut at
    1 - q, which it does not reach.
    """
    codes = np.arange(middle, dtype=np.uint32)  # of the steps from 2**-24 to 0.5
    first = np.float32(2.0**-24).view(np.uint32) >> np.uint32(23 - mantissa)
    edges = ((codes + first) << np.uint32(23 - mantissa)).view(np.float32)
    ends = np.empty(steps)
    ends[0] = -1.0
    ends[1:middle] = np.nextafter(edges[: middle - 1], np.float32(0))
    ends[middle] = np.nextafter(np.float32(0.5), np.float32(0))
    ends[steps - 1 - np.arange(1, middle)] = 1.0 - edges[1:middle].astype(np.float64)
    ends[steps - 1] = 1.0 - 2.0**-24
    return ends
