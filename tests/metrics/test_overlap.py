"""Overlap scores against hand-worked values, scikit-learn, and the table of undefined cases."""

import numpy as np
import pytest
from sklearn import metrics as reference

from segmeter.errors import InputError
from segmeter.metrics.counts import confusion_matrix, multilabel_counts
from segmeter.metrics.overlap import AGGREGATES, Margins, compute_margins, overlap_scores, score_margins

PER_CLASS = ("iou", "dice", "precision", "recall", "specificity", "volumetric_similarity", "relative_volume_difference")


def maps(num_classes, *, seed, size=3000):
    rng = np.random.default_rng(seed)
    target = rng.choice(num_classes, size, p=rng.dirichlet(np.ones(num_classes)))
    labels = np.where(rng.random(size) < 0.4, rng.integers(0, num_classes, size), target)
    return target.astype(np.uint8), labels.astype(np.uint8)


def test_scores_of_a_hand_worked_matrix():
    # rows 8, 5, 7; columns 7, 10, 3; 20 pixels. tp 6, 5, 3; fp 1, 5, 0; fn 2, 0, 4
    scores = overlap_scores(np.array([[6, 2, 0], [0, 5, 0], [1, 3, 3]]))
    np.testing.assert_allclose(scores.iou, [6 / 9, 5 / 10, 3 / 7], rtol=1e-12)
    np.testing.assert_allclose(scores.dice, [12 / 15, 10 / 15, 6 / 10], rtol=1e-12)
    np.testing.assert_allclose(scores.precision, [6 / 7, 5 / 10, 3 / 3], rtol=1e-12)
    np.testing.assert_allclose(scores.recall, [6 / 8, 5 / 5, 3 / 7], rtol=1e-12)
    np.testing.assert_allclose(scores.specificity, [11 / 12, 10 / 15, 13 / 13], rtol=1e-12)
    np.testing.assert_allclose(scores.volumetric_similarity, [1 - 1 / 15, 1 - 5 / 15, 1 - 4 / 10], rtol=1e-12)
    np.testing.assert_allclose(scores.relative_volume_difference, [-1 / 8, 5 / 5, -4 / 7], rtol=1e-12)
    np.testing.assert_array_equal(scores.support, [8, 5, 7])
    assert scores.mean_iou == pytest.approx((6 / 9 + 5 / 10 + 3 / 7) / 3, rel=1e-12)
    assert scores.pixel_accuracy == pytest.approx(14 / 20, rel=1e-12)
    assert scores.frequency_weighted_iou == pytest.approx((8 * 6 / 9 + 5 * 0.5 + 7 * 3 / 7) / 20, rel=1e-12)


@pytest.mark.parametrize("num_classes", [2, 3, 19])
@pytest.mark.parametrize("seed", [0, 1])
def test_scores_equal_scikit_learn(num_classes, seed):
    target, labels = maps(num_classes, seed=seed)
    scores = overlap_scores(confusion_matrix(target, labels, num_classes=num_classes))
    present = np.union1d(target, labels)
    options = {"labels": present, "average": None, "zero_division": np.nan}
    for ours, theirs in (
        (scores.iou, reference.jaccard_score(target, labels, labels=present, average=None)),
        (scores.dice, reference.f1_score(target, labels, **options)),
        (scores.precision, reference.precision_score(target, labels, **options)),
        (scores.recall, reference.recall_score(target, labels, **options)),
    ):
        np.testing.assert_allclose(ours[present], theirs, rtol=1e-12)
    assert scores.pixel_accuracy == pytest.approx(reference.accuracy_score(target, labels), rel=1e-12)
    assert scores.kappa == pytest.approx(reference.cohen_kappa_score(target, labels), rel=1e-12)
    assert scores.mcc == pytest.approx(reference.matthews_corrcoef(target, labels), rel=1e-12)
    if len(np.unique(target)) == num_classes:
        balanced = reference.balanced_accuracy_score(target, labels)
        assert scores.balanced_accuracy == pytest.approx(balanced, rel=1e-12)


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
    np.testing.assert_equal([scores.precision[1], scores.recall[1]], [precision, recall])


def test_an_absent_class_is_left_out_of_the_mean_and_counted():
    scores = overlap_scores(np.array([[3, 1, 0], [0, 4, 0], [0, 0, 0]]))
    assert scores.mean_iou == pytest.approx((3 / 4 + 4 / 5) / 2, rel=1e-12)
    assert scores.n_undefined == 1


def test_nothing_counted_leaves_every_score_undefined():
    scores = overlap_scores(np.zeros((3, 3), np.int64))
    for name in AGGREGATES:
        assert np.isnan(getattr(scores, name)), name
    for name in PER_CLASS:
        assert np.isnan(getattr(scores, name)).all(), name


def test_kappa_and_mcc_are_undefined_when_there_is_only_one_class():
    scores = overlap_scores(np.array([[7, 0], [0, 0]]))
    assert np.isnan(scores.kappa)
    assert np.isnan(scores.mcc)
    assert scores.pixel_accuracy == 1


@pytest.mark.parametrize("shape", [(5,), (2, 3)])
def test_a_stack_scores_as_its_members(shape):
    counts = np.random.default_rng(2).integers(0, 30, (*shape, 4, 4))
    counts[..., 3, :] = counts[..., 3] = 0
    stacked = overlap_scores(counts)
    for index in np.ndindex(shape):
        single = overlap_scores(counts[index])
        for name in (*PER_CLASS, *AGGREGATES, "support", "n_undefined"):
            np.testing.assert_array_equal(getattr(stacked, name)[index], getattr(single, name), err_msg=name)


def test_renaming_the_classes_permutes_the_scores_and_leaves_the_aggregates():
    counts = np.random.default_rng(7).integers(0, 99, (4, 4))
    order = np.array([2, 0, 3, 1])
    plain, turned = overlap_scores(counts), overlap_scores(counts[np.ix_(order, order)])
    np.testing.assert_array_equal(turned.iou, plain.iou[order])
    for name in AGGREGATES:
        assert getattr(turned, name) == pytest.approx(getattr(plain, name), rel=1e-12), name


def test_swapping_target_and_prediction_swaps_precision_and_recall():
    counts = np.random.default_rng(8).integers(0, 99, (4, 4))
    plain, turned = overlap_scores(counts), overlap_scores(counts.T)
    np.testing.assert_array_equal(turned.precision, plain.recall)
    np.testing.assert_array_equal(turned.dice, plain.dice)


def test_the_means_run_over_the_classes_asked_for():
    counts = np.array([[90, 0, 0], [5, 5, 0], [0, 5, 15]])
    scores = overlap_scores(counts, classes=[1, 2])
    assert scores.mean_iou == pytest.approx((5 / 15 + 15 / 20) / 2, rel=1e-12)
    assert scores.balanced_accuracy == pytest.approx((5 / 10 + 15 / 20) / 2, rel=1e-12)
    assert scores.pixel_accuracy == pytest.approx(110 / 120, rel=1e-12)  # pixels, whatever the classes


def test_unsigned_counts_do_not_wrap():
    counts = np.array([[3, 1], [0, 0]], np.uint8)
    np.testing.assert_allclose(overlap_scores(counts).volumetric_similarity, [1 - 1 / 7, 0], rtol=1e-12)


def test_sums_beyond_float32_stay_exact():
    counts = np.array([[2**24 + 1, 1], [0, 2**24 + 3]])
    assert overlap_scores(counts).pixel_accuracy == (2**25 + 4) / (2**25 + 5)


def test_margins_are_linear_and_survive_their_columns():
    counts = np.random.default_rng(1).integers(0, 9, (6, 3, 3))
    margins = compute_margins(counts)
    total = Margins.from_columns(margins.columns().sum(axis=0))
    np.testing.assert_array_equal(score_margins(total).iou, overlap_scores(counts.sum(axis=0)).iou)


@pytest.mark.parametrize(
    ("counts", "options", "message"),
    [
        (np.zeros((2, 3), int), {}, r"`counts` to be \(\.\.\., K, K\), got \(2, 3\)"),
        (np.zeros((3, 3), int), {"task": "multilabel"}, r"\(\.\.\., K, 2, 2\), got \(3, 3\)"),
        (np.zeros((3, 3)), {}, r"integers >= 0, got float64 \(3, 3\)"),
        (np.full((2, 2), -1), {}, "integers >= 0"),
        (np.zeros((2, 2), int), {"classes": [2]}, r"distinct class indices, 0 to 1, got \[2\]"),
        (np.zeros((2, 2), int), {"classes": [1, 1]}, "distinct class indices"),
        (np.zeros((2, 2), int), {"classes": []}, "distinct class indices"),
    ],
    ids=range(7),
)
def test_refusals(counts, options, message):
    with pytest.raises(InputError, match=message):
        overlap_scores(counts, **options)
