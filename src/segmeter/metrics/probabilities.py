"""Measures calibration from sums over images: whether 80 % of the pixels with a probability of 0.8 are of the class."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segmeter.checks import expected, require_kind, require_name, whole_number
from segmeter.classes import TASKS, Task
from segmeter.errors import InputError
from segmeter.metrics import arrays
from segmeter.metrics.arrays import FloatArray, IntArray
from segmeter.metrics.precision_recall import PrecisionRecallCurve, compute_precision_recall

BINS = 15
MOST_BINS = 10_000
_UNIT_BITS = 1074  # Every float64 is a multiple of 2**-1074.
_CHUNK = 1 << 20  # Count this many pixels at a time, to bound the memory.
_SUM_ERROR = 1e-3  # A pixel's probabilities may sum to 1 with this error. For float16 softmax it is up to 5e-4.


@dataclass(frozen=True, kw_only=True)
class Reliability:
    """Confidence and accuracy per bin (B,) of equal width: (0, 1/B], (1/B, 2/B], ...; 0 is in the first bin.

    Parameters
    ----------
    counts : int64
        Probabilities in each bin.
    confidence, accuracy : float64
        The mean probability of each bin, and the share of its pixels that are of the class. NaN in an empty bin.
    ece
        Expected calibration error: the mean gap between confidence and accuracy, weighted by the counts. NaN without
        pixels.
    mce
        Maximum calibration error: the largest gap of a bin that is not empty.
    """

    counts: IntArray
    confidence: FloatArray
    accuracy: FloatArray
    ece: float
    mce: float


@dataclass(frozen=True, kw_only=True)
class CalibrationScores:
    """Calibration and scores of probabilities.

    Parameters
    ----------
    n
        Number of pixels that are not ignored; for multilabel, the number of decisions, one per pixel and class.
    top_label
        Bins of the winning class's probability; None for multilabel, where no class wins.
    classwise
        Bins of each of the K classes against the rest; for binary only class 1.
    classwise_ece
        Mean of the classes' expected calibration errors.
    brier
        Mean squared error: the mean over pixels of the sum over classes (0 to 2). For binary and multilabel it is the
        mean over decisions, each with one probability (0 to 1).
    nll
        Mean negative logarithm of the probability of the target's class; inf if one of these probabilities is 0.
    n_impossible
        How many of these probabilities are 0.
    sweeps
        Precision and recall of each class at every threshold, in the order of `classwise`.
    """

    n: int
    top_label: Reliability | None
    classwise: tuple[Reliability, ...]
    classwise_ece: float
    brier: float
    nll: float
    n_impossible: int
    sweeps: tuple[PrecisionRecallCurve, ...]


class Calibration:
    """Sums over any number of images, in constant memory.

    The sums of images are added without rounding. So the result depends neither on the order of the images nor on how
    they are distributed over several instances.

    Parameters
    ----------
    num_classes
        K, background included; 2 for binary.
    task
        What the channels are, see `segmeter.classes`.
    bins
        B, 1 to 10 000.
    ignore_index
        Value of `target` that marks pixels to leave out; not a class.

    Examples
    --------
    >>> sums = Calibration(num_classes=2, task="binary", bins=4)
    >>> sums.update(np.array([[0, 1, 1, 1]]), np.array([[[0.1, 0.9, 0.7, 0.3]]]))
    >>> scores = sums.compute()
    >>> scores.classwise[0].accuracy  # 0.1 did not happen, 0.3 and 0.7 and 0.9 did
    array([0., 1., 1., 1.])
    >>> round(scores.brier, 3)
    0.15
    """

    def __init__(
        self, *, num_classes: int, task: Task = "multiclass", bins: int = BINS, ignore_index: int | None = None
    ) -> None:
        num_classes = whole_number("calibration", "num_classes", num_classes)
        bins = whole_number("calibration", "bins", bins)
        require_name("calibration", "task", task, TASKS)
        if num_classes < (1 if task == "multilabel" else 2) or (task == "binary" and num_classes != 2):
            rule = "2 for binary, >= 2 for multiclass, >= 1 for multilabel"
            raise InputError(expected("calibration", "num_classes", rule, num_classes))
        if not 1 <= bins <= MOST_BINS:
            raise InputError(expected("calibration", "bins", f"between 1 and {MOST_BINS}", bins))
        values = num_classes if task == "multiclass" else 2
        _, ignore_index = arrays.validated_num_classes("calibration", values, ignore_index)
        from segmeter.metrics import _kernels as tallies  # numba: only where something is counted

        self.settings = (task, num_classes, bins, ignore_index)
        channels = 1 if task == "binary" else num_classes
        self.counts = {  # the second of two rows has hits
            "tops": np.zeros((2, bins), np.int64),
            "classes": np.zeros((channels, 2, bins), np.int64),
            "sweeps": np.zeros((channels, 2, tallies.STEPS), np.int64),
            "impossible": np.zeros(1, np.int64),  # probabilities of 0 for the target's class
        }
        self.sums = [0] * ((channels + 1) * bins + 2)  # exact, in units of 2**-1074; in the order of `_parts`

    def update(self, target: NDArray[Any], probs: NDArray[Any]) -> None:
        """Add an image.

        Parameters
        ----------
        target : (...), for multilabel (K, ...), integer or bool
            The reference.
        probs : (K, ...), for binary (1, ...), (...) or a batch (B, 1, ...), float32 or float64 (float16 is widened)
            The probabilities of each class; for binary, of class 1. For multiclass they sum to 1 in every pixel.

        Raises
        ------
        InputError
            Shapes do not fit, a probability is NaN or outside 0 to 1, the probabilities of a pixel do not sum to 1, or
            a pixel that is not ignored is outside the classes.
        """
        from segmeter.metrics import _kernels as tallies

        task, num_classes, _, ignore_index = self.settings
        if task == "binary":
            target, probs = arrays.without_channel(target, probs), arrays.without_channel(probs, target)
        num_values = num_classes if task == "multiclass" else 2  # also the value of ignored pixels below
        no_labels = np.zeros(getattr(target, "shape", ()), np.uint8)
        valid_target, *_ = arrays.validated_labels(
            "calibration", target, no_labels, num_classes=num_values, ignore_index=ignore_index, axes=()
        )
        probs = _validated_probs(target, probs, task, num_classes)
        flat_target = valid_target.reshape(len(probs) if task == "multilabel" else 1, -1)
        flat_probs = probs.reshape(len(probs), -1)
        counts = self.counts
        image_sums = np.zeros(len(self.sums))
        top, confidence, losses = self._parts(image_sums)
        for start in range(0, flat_probs.shape[1], _CHUNK):  # in the order of the pixels, so that sums never differ
            chunk = slice(start, start + _CHUNK)
            targets = np.ascontiguousarray(flat_target[:, chunk])
            planes = np.ascontiguousarray(flat_probs[:, chunk])
            steps = np.empty(planes.shape[1], np.int32)
            for k, plane in enumerate(planes):
                plane_target, value = (targets[0], k) if task == "multiclass" else (targets[k], 1)
                tallies.find_steps(plane, steps)
                tallies.tally_plane(
                    plane_target,
                    plane,
                    steps,
                    value,
                    num_values,
                    counts["classes"][k],
                    confidence[k],
                    counts["sweeps"][k],
                )
                if task != "multiclass":  # both outcomes of one decision, in float64, as 1 - p has to be exact
                    both = np.stack([1 - plane.astype(np.float64), plane.astype(np.float64)])
                    counts["impossible"][0] += tallies.tally_all(
                        plane_target, both, num_values, counts["tops"], top, losses
                    )
            if task == "multiclass":
                counts["impossible"][0] += tallies.tally_all(
                    targets[0], planes, num_values, counts["tops"], top, losses
                )
        for i, total in enumerate(image_sums.tolist()):
            numerator, denominator = total.as_integer_ratio()
            self.sums[i] += numerator << (_UNIT_BITS - denominator.bit_length() + 1)

    def add(self, other: "Calibration") -> None:
        """Add the sums of another instance, which were taken over other images.

        Raises
        ------
        InputError
            Its classes, task, bins or ignored value differ.
        """
        require_kind("calibration", "other", other, Calibration)
        if other.settings != self.settings:
            raise InputError(expected("calibration", "other", f"to have the settings {self.settings}", other.settings))
        for name, counts in self.counts.items():
            counts += other.counts[name]
        self.sums = [first + second for first, second in zip(self.sums, other.sums, strict=True)]

    def compute(self) -> CalibrationScores:
        """Compute the scores of the images added so far; NaN where there are no pixels."""
        from segmeter.metrics import _kernels as tallies

        task, counts = self.settings[0], self.counts
        top, confidence, losses = self._parts(np.array([value / (1 << _UNIT_BITS) for value in self.sums]))
        classwise = tuple(map(_reliability, counts["classes"], confidence))
        lower_ends = tallies.lower_ends()
        n = int(counts["classes"].sum() if task == "multilabel" else counts["classes"][0].sum())
        squares, logarithms = arrays.divide(losses, np.array([n, n])).tolist()
        return CalibrationScores(
            n=n,
            top_label=None if task == "multilabel" else _reliability(counts["tops"], top),
            classwise=classwise,
            classwise_ece=float(arrays.mean_defined(np.array([reliability.ece for reliability in classwise]))),
            brier=squares if task == "multiclass" else squares / 2,
            nll=float("inf") if counts["impossible"][0] else logarithms,
            n_impossible=int(counts["impossible"][0]),
            sweeps=tuple(compute_precision_recall(histogram, lower_ends) for histogram in counts["sweeps"]),
        )

    def _parts(self, sums: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return views: top confidence (B,), confidence (C, B), and squared errors and negative logarithms (2,)."""
        channels, _, bins = self.counts["classes"].shape
        return sums[:bins], sums[bins:-2].reshape(channels, bins), sums[-2:]


def calibration(
    target: NDArray[Any],
    probs: NDArray[Any],
    *,
    num_classes: int,
    task: Task = "multiclass",
    bins: int = BINS,
    ignore_index: int | None = None,
) -> CalibrationScores:
    """Measure the calibration of the probabilities of one image, or of a stack of images.

    Parameters
    ----------
    target, probs
        As for `Calibration.update`.
    num_classes, task, bins, ignore_index
        As for `Calibration`, which many images can be added to.

    Returns
    -------
    CalibrationScores

    Raises
    ------
    InputError
        As `Calibration.update`, or an option is out of range.

    References
    ----------
    Guo et al. 2017, arXiv:1706.04599 (ECE, MCE, NLL of the top label).

    Examples
    --------
    >>> target = np.array([[0, 1, 1]])
    >>> probs = np.array([[[0.9, 0.2, 0.6]], [[0.1, 0.8, 0.4]]], np.float32)
    >>> scores = calibration(target, probs, num_classes=2, bins=5)
    >>> scores.top_label.counts, scores.top_label.accuracy
    (array([0, 0, 0, 1, 2]), array([nan, nan, nan,  0.,  1.]))
    >>> round(scores.top_label.ece, 4)  # (0.6 wrong + |1.7 - 2|) / 3
    0.3
    """
    sums = Calibration(num_classes=num_classes, task=task, bins=bins, ignore_index=ignore_index)
    sums.update(target, probs)
    return sums.compute()


def _reliability(counts: IntArray, confidence: FloatArray) -> Reliability:
    total = counts.sum(axis=0)
    mean_confidence, accuracy = arrays.divide(confidence, total), arrays.divide(counts[1], total)
    gaps = np.abs(counts[1] - confidence)
    filled = total > 0
    return Reliability(
        counts=total,
        confidence=mean_confidence,
        accuracy=accuracy,
        ece=float(arrays.divide(gaps.sum(), total.sum())),
        mce=float(np.abs(accuracy - mean_confidence)[filled].max()) if filled.any() else float("nan"),
    )


def _validated_probs(target: NDArray[Any], probs: NDArray[Any], task: Task, num_classes: int) -> NDArray[Any]:
    """Check probabilities, and return them as (C, ...), float32 or float64."""
    where = "calibration"
    if not isinstance(probs, np.ndarray) or isinstance(probs, np.ma.MaskedArray) or probs.dtype.kind != "f":
        given = f"{type(probs).__name__} {getattr(probs, 'dtype', '')}".rstrip()
        rule, remedy = "to be a plain NumPy array of floats", "Labels carry no probabilities."
        raise InputError(expected(where, "probs", rule, given, remedy))
    if task == "binary" and probs.shape == target.shape:
        probs = probs[None]
    shape = target.shape if task == "multilabel" else (1 if task == "binary" else num_classes, *target.shape)
    if probs.shape != shape or (task == "multilabel" and shape[:1] != (num_classes,)):
        rule = f"to be {shape} for a {task} target {target.shape} of {num_classes} classes"
        raise InputError(expected(where, "probs", rule, probs.shape))
    probs = probs.astype(np.float64 if probs.dtype.itemsize > 4 else np.float32, copy=False)
    if probs.size and not (probs.min() >= 0 and probs.max() <= 1):
        given, remedy = f"{probs.min()} to {probs.max()}", "Pass softmax or sigmoid."
        raise InputError(expected(where, "probs", "to lie between 0 and 1", given, remedy))
    if task == "multiclass" and probs.size:
        off = float(np.abs(probs.sum(axis=0) - 1).max())
        if off > _SUM_ERROR:
            raise InputError(expected(where, "probs", "to sum to 1 in every pixel", f"a sum that is off by {off:.3g}"))
    return probs
