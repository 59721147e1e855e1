"""Measures calibration from sums over images: whether a probability of 0.8 is right in 80 % of its pixels."""

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
_UNIT_BITS = 1074  # float64 is a multiple of 2**-1074
_CHUNK = 1 << 20  # pixels at a time: bounds the memory
_SUM_ERROR = 1e-3  # how far the sum of a pixel's probabilities may be from 1: float16 softmax is off by 5e-4


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
        Expected calibration error: the mean gap between the two, weighted by the counts. NaN without pixels.
    mce
        The largest gap of a bin that is not empty.
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
        Pixels; for multilabel decisions, pixels times classes, that are not ignored.
    top_label
        Bins of the winning class's probability; None for multilabel, where no class wins.
    classwise
        Bins of each class against the rest, K of them; for binary only class 1.
    classwise_ece
        Mean of the classes' errors.
    brier
        Mean squared error: the mean over pixels of the sum over classes (0 to 2). For binary and multilabel it is the
        mean over decisions, each with one probability (0 to 1).
    nll
        Mean negative logarithm of the probability of the target's class; inf where one of these is 0.
    n_impossible
        How many of these probabilities are 0.
    sweeps
        Every threshold of each class, in the order of `classwise`.
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

    The sums of an image are added to those of the others without rounding, so the result depends neither on the order
    of the images nor on how they are shared out among several of these.

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
        _, ignore_index = arrays.check_classes("calibration", values, ignore_index)
        from segmeter.metrics import _kernels as tallies  # numba: only where something is counted

        self.settings = (task, num_classes, bins, ignore_index)
        channels = 1 if task == "binary" else num_classes
        self.counts = {  # of two rows the second is hits
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
            Of each class; for binary of class 1. For multiclass they sum to 1 in every pixel.

        Raises
        ------
        InputError
            Shapes do not fit, a probability is NaN or outside 0 to 1, they do not sum to 1, or a pixel that is not
            ignored is outside the classes.
        """
        from segmeter.metrics import _kernels as tallies

        task, num_classes, _, ignore_index = self.settings
        if task == "binary":
            target, probs = arrays.without_channel(target, probs), arrays.without_channel(probs, target)
        values, labels = num_classes if task == "multiclass" else 2, np.zeros(getattr(target, "shape", ()), np.uint8)
        options: dict[str, Any] = {"num_classes": values, "ignore_index": ignore_index, "axes": ()}
        known, *_ = arrays.known_labels("calibration", target, labels, **options)
        probs = _check_probs(target, probs, task, num_classes)
        pixels = known.reshape(len(probs) if task == "multilabel" else 1, -1)
        flat, image, counts = probs.reshape(len(probs), -1), np.zeros(len(self.sums)), self.counts
        top, confidence, losses = self._parts(image)
        for start in range(0, flat.shape[1], _CHUNK):  # in the order of the pixels, so that sums are the same anywhere
            part = slice(start, start + _CHUNK)
            own, planes = np.ascontiguousarray(pixels[:, part]), np.ascontiguousarray(flat[:, part])
            steps = np.empty(planes.shape[1], np.int32)
            for k, plane in enumerate(planes):
                held, value = (own[0], k) if task == "multiclass" else (own[k], 1)
                tallies.find_steps(plane, steps)
                tallies.tally_plane(
                    held, plane, steps, value, values, counts["classes"][k], confidence[k], counts["sweeps"][k]
                )
                if task != "multiclass":  # both outcomes of one decision, in float64, as 1 - p has to be exact
                    both = np.stack([1 - plane.astype(np.float64), plane.astype(np.float64)])
                    counts["impossible"][0] += tallies.tally_all(held, both, values, counts["tops"], top, losses)
            if task == "multiclass":
                counts["impossible"][0] += tallies.tally_all(own[0], planes, values, counts["tops"], top, losses)
        for place, total in enumerate(image.tolist()):
            numerator, denominator = total.as_integer_ratio()
            self.sums[place] += numerator << (_UNIT_BITS - denominator.bit_length() + 1)

    def add(self, other: "Calibration") -> None:
        """Add the sums of another instance, taken over other images.

        Raises
        ------
        InputError
            Its classes, task, bins or ignored value differ.
        """
        require_kind("calibration", "other", other, Calibration)
        if other.settings != self.settings:
            raise InputError(expected("calibration", "other", f"to have the settings {self.settings}", other.settings))
        for name, own in self.counts.items():
            own += other.counts[name]
        self.sums = [known + more for known, more in zip(self.sums, other.sums, strict=True)]

    def compute(self) -> CalibrationScores:
        """Compute the scores of the images added so far; NaN where there are no pixels."""
        from segmeter.metrics import _kernels as tallies

        task, counts = self.settings[0], self.counts
        top, confidence, losses = self._parts(np.array([value / (1 << _UNIT_BITS) for value in self.sums]))
        classwise, lower = tuple(map(_reliability, counts["classes"], confidence)), tallies.lower_ends()
        n = int(counts["classes"].sum() if task == "multilabel" else counts["classes"][0].sum())
        squares, logarithms = arrays.divide(losses, np.array([n, n])).tolist()
        return CalibrationScores(
            n=n,
            top_label=None if task == "multilabel" else _reliability(counts["tops"], top),
            classwise=classwise,
            classwise_ece=float(arrays.mean_defined(np.array([one.ece for one in classwise]))),
            brier=squares if task == "multiclass" else squares / 2,
            nll=float("inf") if counts["impossible"][0] else logarithms,
            n_impossible=int(counts["impossible"][0]),
            sweeps=tuple(compute_precision_recall(histogram, lower) for histogram in counts["sweeps"]),
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
    mean, share = arrays.divide(confidence, total), arrays.divide(counts[1], total)
    gaps, held = np.abs(counts[1] - confidence), total > 0
    return Reliability(
        counts=total,
        confidence=mean,
        accuracy=share,
        ece=float(arrays.divide(gaps.sum(), total.sum())),
        mce=float(np.abs(share - mean)[held].max()) if held.any() else float("nan"),
    )


def _check_probs(target: NDArray[Any], probs: NDArray[Any], task: Task, num_classes: int) -> NDArray[Any]:
    """Check probabilities, and return them as (C, ...), float32 or float64."""
    where = "calibration"
    if not isinstance(probs, np.ndarray) or isinstance(probs, np.ma.MaskedArray) or probs.dtype.kind != "f":
        given = f"{type(probs).__name__} {getattr(probs, 'dtype', '')}".rstrip()
        rule, remedy = "to be a plain NumPy array of floats", "Labels carry no probabilities."
        raise InputError(expected(where, "probs", rule, given, remedy))
    if task == "binary" and probs.shape == target.shape:
        probs = probs[None]
    wanted = target.shape if task == "multilabel" else (1 if task == "binary" else num_classes, *target.shape)
    if probs.shape != wanted or (task == "multilabel" and wanted[:1] != (num_classes,)):
        rule = f"to be {wanted} for a {task} target {target.shape} of {num_classes} classes"
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
