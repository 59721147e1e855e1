"""Computes overlap scores from counts, per class and aggregated, for one confusion matrix or a stack of them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from segmeter.checks import expected, require_name
from segmeter.classes import TASKS, Task
from segmeter.errors import InputError
from segmeter.metrics import arrays
from segmeter.metrics.arrays import FloatArray, IntArray, divide, mean_defined, validated_numbers

_EXACT = 2.0**53  # float64 holds every whole number up to this.


class ClassTotals(NamedTuple):
    """The sums that overlap scores need from counts: four per class, each (..., K).

    They are linear in the counts, so the totals of several cases, or of resampled cases, are sums of the cases' totals.
    """

    tp: NDArray[Any]
    target: NDArray[Any]
    predicted: NDArray[Any]
    total: NDArray[Any]

    def columns(self) -> NDArray[Any]:
        """Return one row per case: (..., 4 K)."""
        return np.concatenate(self, axis=-1)

    @classmethod
    def from_columns(cls, columns: NDArray[Any]) -> "ClassTotals":
        """Return the totals in rows that `columns` made."""
        return cls(*np.split(columns, 4, axis=-1))

    def map(self, change: Callable[[NDArray[Any]], NDArray[Any]]) -> "ClassTotals":
        """Apply the same change to each of the four."""
        return ClassTotals(*map(change, self))

    def ratio(self, name: str) -> FloatArray:
        """Compute one of `RATIOS` for each class."""
        return divide(*RATIOS[name](self))


@dataclass(frozen=True, kw_only=True)
class OverlapScores:
    """Scores per class (..., K) and aggregates (...), float64; NaN where undefined.

    Parameters
    ----------
    iou, dice
        tp / (tp + fp + fn) and 2 tp / (2 tp + fp + fn).
    precision, recall, specificity
        tp / (tp + fp), tp / (tp + fn) and tn / (tn + fp).
    support
        Pixels of the class in the target, int64 for integer counts.
    volumetric_similarity
        1 - |fn - fp| / (2 tp + fp + fn).
    relative_volume_difference
        (predicted - target) / target, signed; undefined where the target is empty.
    mean_iou, mean_dice
        Means over the defined classes among those asked for.
    balanced_accuracy
        Mean recall over the same classes.
    pixel_accuracy
        Correct pixels / counted pixels; for multilabel, correct decisions / decisions of all classes.
    frequency_weighted_iou
        IoU weighted by the class's share of the target.
    kappa, mcc
        Cohen's kappa and Matthews' (multiclass: Gorodkin's) correlation; for multilabel over all decisions pooled.
    n_undefined
        Classes that `mean_iou` left out, as they are in neither target nor prediction.
    """

    iou: FloatArray
    dice: FloatArray
    precision: FloatArray
    recall: FloatArray
    specificity: FloatArray
    support: NDArray[Any]
    volumetric_similarity: FloatArray
    relative_volume_difference: FloatArray
    mean_iou: FloatArray
    mean_dice: FloatArray
    balanced_accuracy: FloatArray
    pixel_accuracy: FloatArray
    frequency_weighted_iou: FloatArray
    kappa: FloatArray
    mcc: FloatArray
    n_undefined: NDArray[np.int64]


RATIOS: dict[str, Callable[[ClassTotals], tuple[NDArray[Any], NDArray[Any]]]] = {  # numerator and denominator
    "iou": lambda t: (t.tp, t.target + t.predicted - t.tp),
    "dice": lambda t: (2 * t.tp, t.target + t.predicted),
    "precision": lambda t: (t.tp, t.predicted),
    "recall": lambda t: (t.tp, t.target),
    "specificity": lambda t: (t.total - t.target - t.predicted + t.tp, t.total - t.target),
    "volumetric_similarity": lambda t: (t.target + t.predicted - abs(t.target - t.predicted), t.target + t.predicted),
    "relative_volume_difference": lambda t: (t.predicted - t.target, t.target),
}
_MEANS = {"mean_iou": "iou", "mean_dice": "dice", "balanced_accuracy": "recall"}

AGGREGATES = ("mean_iou", "mean_dice", "pixel_accuracy", "balanced_accuracy", "frequency_weighted_iou", "kappa", "mcc")


def overlap_scores(
    counts: NDArray[Any] | Sequence[Any],
    *,
    task: Task = "multiclass",
    classes: Sequence[int] | None = None,
    count_invalid: bool = False,
) -> OverlapScores:
    """Compute every overlap score of one case, of a sum of cases, or of a stack of either.

    Parameters
    ----------
    counts : (..., K, K), or (..., K, 2, 2) for multilabel
        From `confusion_matrix` or `multilabel_counts`; rows are the target. Whole numbers, integer or floating (such as
        the sums of `bootstrap`). The counts of a matrix must add up to at most 2**53, so that every sum is exact.
    task
        "multilabel" for (..., K, 2, 2) counts. Binary and multiclass counts are both (..., K, K).
    classes
        The classes that the means run over; None means all, background included (as mmseg and Cityscapes).
    count_invalid
        Whether the counts are (..., K, K + 1), with a last column of predictions outside the classes. Such a prediction
        is a false negative of the target's class, but a false positive of no class.

    Returns
    -------
    OverlapScores with arrays (..., K) per class and (...) for aggregates.

    Raises
    ------
    InputError
        The counts are not square per case, not whole numbers >= 0, or too many; the task is unknown, or `classes` names
        a class that does not exist.

    References
    ----------
    Gorodkin 2004, "Comparing two K-category assignments by a K-category correlation coefficient", Comput. Biol.
    Chem. 28, 367-374.

    Examples
    --------
    >>> scores = overlap_scores(np.array([[3, 1], [0, 0]]))  # class 1: predicted once, never there
    >>> scores.iou, scores.recall
    (array([0.75, 0.  ]), array([0.75,  nan]))
    """
    where, rule = "overlap_scores", "to be whole numbers >= 0"
    require_name(where, "task", task, TASKS)
    numbers = validated_numbers(where, "counts", counts, rule, kinds="iuf")
    with np.errstate(invalid="ignore"):  # infinity has no remainder
        refused = numbers[~((numbers >= 0) & (numbers % 1 == 0))]
    if refused.size:
        raise InputError(expected(where, "counts", rule, refused[0]))
    if numbers.sum(dtype=np.float64, axis=(-2, -1) if numbers.ndim > 1 else None).max(initial=0) > _EXACT:
        raise InputError(expected(where, "counts", "to sum to 2**53 pixels or fewer", "more"))
    # In int64, differences don't wrap and sums are exact.
    totals = class_totals(numbers.astype(np.int64, copy=False), task=task, count_invalid=count_invalid)
    chosen = arrays.validated_classes(where, classes, totals.tp.shape[-1])
    ratios = {name: totals.ratio(name) for name in RATIOS}
    return OverlapScores(
        **ratios,
        **{name: aggregate(name, totals, task=task, classes=chosen) for name in AGGREGATES},
        support=totals.target,
        n_undefined=np.isnan(np.take(ratios["iou"], chosen, axis=-1)).sum(axis=-1),
    )


def class_totals(counts: NDArray[Any], *, task: Task = "multiclass", count_invalid: bool = False) -> ClassTotals:
    """Reduce counts (..., K, K), or (..., K, 2, 2) for multilabel, to what the scores need."""
    square = counts.ndim >= 2 and counts.shape[-1] == counts.shape[-2] + count_invalid
    if task == "multilabel":
        if not (square and counts.ndim >= 3 and counts.shape[-1] == 2):
            raise InputError(expected("overlap_scores", "counts", "to be (..., K, 2, 2)", counts.shape))
        total = counts.sum(axis=(-2, -1))
        target, predicted = counts[..., 1, :].sum(axis=-1), counts[..., 1].sum(axis=-1)
        return ClassTotals(counts[..., 1, 1], target, predicted, total)
    if not square:
        rule = "to be (..., K, K + 1)" if count_invalid else "to be (..., K, K)"
        raise InputError(expected("overlap_scores", "counts", rule, counts.shape))
    target = counts.sum(axis=-1)
    total = np.broadcast_to(target.sum(axis=-1, keepdims=True), target.shape)
    tp = np.diagonal(counts, axis1=-2, axis2=-1)
    predicted = counts.sum(axis=-2)[..., : tp.shape[-1]]
    return ClassTotals(tp, target, predicted, total)


def aggregate(name: str, totals: ClassTotals, *, task: Task, classes: Sequence[int] | IntArray) -> FloatArray:
    """Compute one of `AGGREGATES` (...) from totals (..., K); means are over the given classes."""
    if name in _MEANS:
        return mean_defined(np.take(totals.ratio(_MEANS[name]), classes, axis=-1))
    if name == "frequency_weighted_iou":
        weighted = (totals.target * np.nan_to_num(totals.ratio("iou"))).sum(axis=-1)
        return divide(weighted, totals.target.sum(axis=-1))
    pooled = _pool(totals) if task == "multilabel" else totals
    if name == "pixel_accuracy":
        return divide(pooled.tp.sum(axis=-1), pooled.target.sum(axis=-1))
    pixels = pooled.target.sum(axis=-1, keepdims=True)
    fn, fp = pooled.target - pooled.tp, pooled.predicted - pooled.tp
    exact = (pooled.tp, pooled.target, pooled.predicted, fn, fp, pixels - pooled.target - fp)
    tp, target, predicted, fn, fp, tn = (np.asarray(part, np.float64) for part in exact)
    # In squared pixels, summed over classes: n tp - t p is the agreement beyond chance, and n^2 - t p its largest
    # value. n^2 - t^2 and n^2 - p^2 are the spreads of target and prediction. Differences of squares would lose all
    # digits of a rare class, so these are computed as sums of products of counts.
    not_target, not_predicted = fp + tn, fn + tn
    beyond_chance = (tp * tn - fn * fp).sum(axis=-1)
    if name == "kappa":
        return divide(beyond_chance, (target * not_predicted).sum(axis=-1))
    n, n_predicted = np.asarray(pixels, np.float64)[..., 0], predicted.sum(axis=-1)
    invalid = np.maximum(n - n_predicted, 0)  # predicted outside the classes; overlapping groups may have more than n
    predicted_spread = (predicted * not_predicted).sum(axis=-1) + invalid * n_predicted
    return divide(beyond_chance, np.sqrt((target * not_target).sum(axis=-1)) * np.sqrt(predicted_spread))


def _pool(totals: ClassTotals) -> ClassTotals:
    """Return the totals of the single 2 x 2 table of all multilabel decisions."""
    present = totals.map(lambda part: part.sum(axis=-1))
    absent = present.map(lambda part: present.total - part)
    tp = np.stack([absent.target - present.predicted + present.tp, present.tp], axis=-1)
    target, predicted = (np.stack(pair, axis=-1) for pair in zip(absent[1:3], present[1:3], strict=True))
    return ClassTotals(tp, target, predicted, np.stack([present.total, present.total], axis=-1))
