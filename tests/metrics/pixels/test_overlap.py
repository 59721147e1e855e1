"""Overlap scores against hand-worked values, scikit-learn, and the table of undefined cases."""

import math
import operator
from fractions import Fraction

import numpy as np
import pytest
from sklearn import metrics as reference

from segmeter.metrics.pixels.confusion import multilabel_counts
from segmeter.metrics.pixels.overlap import AGGREGATES, overlap_scores

PER_CLASS = ("iou", "dice", "precision", "recall", "specificity", "volumetric_similarity", "relative_volume_difference")


def test_scores_of_a_hand_worked_matrix():
    # rows 8, 5, 7; columns 7, 10, 3; 20 pixels. tp 6, 5, 3; fp 1, 5, 0; fn 2, 0, 4
    scores = overlap_scores(np.array([[6, 2, 0], [0, 5, 0], [1, 3, 3]]))
    expected = {
        "iou": [6 / 9, 5 / 10, 3 / 7],
        "dice": [12 / 15, 10 / 15, 6 / 10],
        "precision": [6 / 7, 5 / 10, 3 / 3],
        "recall": [6 / 8, 5 / 5, 3 / 7],
        "specificity": [11 / 12, 10 / 15, 13 / 13],
        "volumetric_similarity": [1 - 1 / 15, 1 - 5 / 15, 1 - 4 / 10],
        "relative_volume_difference": [-1 / 8, 5 / 5, -4 / 7],
        "mean_iou": (6 / 9 + 5 / 10 + 3 / 7) / 3,
        "pixel_accuracy": 14 / 20,
        "frequency_weighted_iou": (8 * 6 / 9 + 5 * 0.5 + 7 * 3 / 7) / 20,
        "support": [8, 5, 7],
    }
    for name, value in expected.items():
        np.testing.assert_allclose(getattr(scores, name), value, rtol=1e-12, err_msg=name)


def test_multilabel_scores_are_those_of_each_class_and_of_all_decisions_pooled():
    rng = np.random.default_rng(5)
    target = (rng.random((3, 400)) < np.array([[0.1], [0.5], [0.7]])).astype(np.uint8)
    labels = np.where(rng.random((3, 400)) < 0.3, 1 - target, target)
    scores = overlap_scores(multilabel_counts(target, labels), task="multilabel")
    per_class = reference.jaccard_score(target.T, labels.T, average=None)
    np.testing.assert_allclose(scores.iou, per_class, rtol=1e-12)
    assert scores.mean_iou == pytest.approx(per_class.mean(), rel=1e-12)
    assert scores.pixel_accuracy == pytest.approx((target == labels).mean(), rel=1e-12)
    assert scores.mcc == pytest.approx(reference.matthews_corrcoef(target.ravel(), labels.ravel()), rel=1e-12)
    assert scores.kappa == pytest.approx(reference.cohen_kappa_score(target.ravel(), labels.ravel()), rel=1e-12)
    true_negatives = ((target == 0) & (labels == 0)).sum(1)
    np.testing.assert_allclose(scores.specificity, true_negatives / (target == 0).sum(1), rtol=1e-12)


@pytest.mark.parametrize(
    ("counts", "iou", "precision", "recall"),
    [
        ([[4, 0], [0, 0]], np.nan, np.nan, np.nan),
        ([[4, 0], [3, 0]], 0.0, np.nan, 0.0),
        ([[4, 3], [0, 0]], 0.0, 0.0, np.nan),
    ],
    ids=["both_empty", "prediction_empty", "target_empty"],
)
def test_the_table_of_undefined_cases(counts, iou, precision, recall):
    scores = overlap_scores(np.array(counts))
    np.testing.assert_equal([scores.iou[1], scores.dice[1]], [iou, iou])
    assert scores.n_undefined == np.isnan(iou)
    np.testing.assert_equal([scores.precision[1], scores.recall[1]], [precision, recall])


def test_nothing_counted_leaves_every_score_undefined_and_a_single_class_kappa_and_mcc():
    scores = overlap_scores(np.zeros((3, 3), np.int64))
    assert all(np.isnan(getattr(scores, name)).all() for name in (*AGGREGATES, *PER_CLASS))
    scores = overlap_scores(np.array([[7, 0], [0, 0]]))
    np.testing.assert_equal([scores.kappa, scores.mcc, scores.pixel_accuracy], [np.nan, np.nan, 1])


@pytest.mark.parametrize("shape", [(5,), (2, 3)])
def test_a_stack_scores_as_its_members(shape):
    counts = np.random.default_rng(2).integers(0, 30, (*shape, 4, 4))
    counts[..., 3, :] = counts[..., 3] = 0
    stacked = overlap_scores(counts)
    for index in np.ndindex(shape):
        single = overlap_scores(counts[index])
        for name in (*PER_CLASS, *AGGREGATES, "support", "n_undefined"):
            np.testing.assert_array_equal(getattr(stacked, name)[index], getattr(single, name), err_msg=name)


def test_the_means_run_over_the_classes_asked_for():
    counts = np.array([[90, 0, 0], [5, 5, 0], [0, 5, 15]])
    scores = overlap_scores(counts, classes=[1, 2])
    assert scores.mean_iou == pytest.approx((5 / 15 + 15 / 20) / 2, rel=1e-12)
    assert scores.balanced_accuracy == pytest.approx((5 / 10 + 15 / 20) / 2, rel=1e-12)
    assert scores.pixel_accuracy == pytest.approx(110 / 120, rel=1e-12)  # pixels, whatever the classes


def exact(counts):
    """Kappa and the squared MCC with its sign, in fractions."""
    n = sum(map(sum, counts))
    rows, columns = [sum(row) for row in counts], [sum(column) for column in zip(*counts, strict=True)]
    agreement = n * sum(row[k] for k, row in enumerate(counts)) - sum(map(operator.mul, rows, columns))
    chance = n * n - sum(map(operator.mul, rows, columns))
    spread = (n * n - sum(t * t for t in rows)) * (n * n - sum(p * p for p in columns))
    kappa = Fraction(agreement, chance) if chance else math.nan
    return float(kappa), float(Fraction(agreement * abs(agreement), spread)) if spread else math.nan


def rare(seed):
    """One class of up to 10**15 pixels, the others of a few, found more or less."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, 10 ** rng.integers(1, 5), (size := int(rng.integers(2, 6)), size))
    counts[0, 0] = 10 ** rng.integers(3, 16)
    return counts


@pytest.mark.parametrize("counts", [np.array([[4 * 10**9, 1], [1, 1]]), *map(rare, range(60))])
def test_rare_classes_keep_the_digits_of_kappa_and_mcc(counts):
    kappa, square = exact(counts.tolist())
    scores = overlap_scores(counts)
    assert float(scores.kappa) == pytest.approx(kappa, rel=1e-12, abs=1e-15)
    assert float(scores.mcc * abs(scores.mcc)) == pytest.approx(square, rel=1e-12, abs=1e-15)


@pytest.mark.parametrize("task", ["multiclass", "multilabel"])
def test_whole_floats_and_lists_are_counts(task):
    counts = np.random.default_rng(4).integers(0, 2**40, (3, 2, 2))
    wanted = overlap_scores(counts, task=task)
    for given in (counts.astype(float), counts.tolist(), counts.astype(">u8"), counts.astype(np.uint64)):
        found = overlap_scores(given, task=task)
        assert found.support.dtype == np.int64
        for name in (*PER_CLASS, *AGGREGATES, "support"):
            np.testing.assert_array_equal(getattr(found, name), getattr(wanted, name), err_msg=name)
