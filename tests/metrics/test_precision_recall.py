"""Precision-recall curves: by hand, and scikit-learn's where each step holds one value."""

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, f1_score

from segmeter.metrics import _kernels as tallies
from segmeter.metrics.precision_recall import compute_precision_recall
from segmeter.metrics.probabilities import calibration

LOWER = tallies.lower_ends()


def sweep_of(target, probs):
    return calibration(target, probs, num_classes=2, task="binary").sweeps[0]


def test_a_sweep_by_hand():
    # falling: 0.9 hit, 0.8 no, 0.6 hit, 0.3 no; 2 hits in all
    target, probs = np.array([1, 0, 1, 0]), np.array([0.9, 0.8, 0.6, 0.3], np.float32)
    sweep = sweep_of(target, probs)
    assert sweep.precision.tolist() == [1, 0.5, 2 / 3, 0.5]
    assert sweep.recall.tolist() == [0.5, 0.5, 1, 1]
    assert sweep.average_precision == pytest.approx(0.5 * 1 + 0.5 * 2 / 3, rel=1e-12)
    assert sweep.best_f1 == 0.8
    assert 0.599 < sweep.best_threshold < np.float32(0.6)


@pytest.mark.parametrize(
    ("of_class", "of_rest", "dtype"),
    [(-18, -30, "f4"), (-18, -30, "f8"), (-60, -66, "f4"), (30, 24, "f8"), (18, 14, "f8"), (-3, -6, "f4")],
)
def test_the_average_precision_of_confident_models_is_that_of_scikit_learn(of_class, of_rest, dtype):
    rng = np.random.default_rng(11)
    target = (rng.random(20_000) < 0.05).astype(np.uint8)
    logits = np.where(target, of_class, of_rest) + rng.normal(0, 4, target.size)
    probs = (1 / (1 + np.exp(-logits))).astype(dtype)
    sweep = sweep_of(target, probs)
    assert sweep.average_precision == pytest.approx(average_precision_score(target, probs), abs=5e-4)
    assert sweep.best_f1 == pytest.approx(f1_score(target, probs > sweep.best_threshold), rel=1e-12)
    assert sweep.average_precision_error < 0.01


def test_the_error_is_that_of_the_worst_order_within_the_steps():
    # one step above with the class once and the rest once, one below with the class twice and the rest once
    histogram = np.zeros((2, tallies.STEPS), np.int64)
    histogram[:, 20_000], histogram[:, 10_000] = (1, 1), (1, 2)
    sweep = compute_precision_recall(histogram, LOWER)
    ties = 1 / 3 * 1 / 2 + 2 / 3 * 3 / 5
    assert sweep.average_precision == pytest.approx(ties, rel=1e-12)
    first = (1 / 1 + 2 / 3 + 3 / 4) / 3
    last = (1 / 2 + 2 / 4 + 3 / 5) / 3
    assert sweep.average_precision_error == pytest.approx(max(first - ties, ties - last), rel=1e-9)


@pytest.mark.parametrize("spread", [1e-4, 1e-3, 1e-2, 1, 9])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_exact_average_precision_is_within_the_error(spread, dtype):
    rng = np.random.default_rng(12)
    target = (rng.random(5000) < 0.2).astype(np.uint8)
    probs = (1 / (1 + np.exp(-spread * (target + rng.normal(0, 1, target.size)) - 1))).astype(dtype)
    sweep = sweep_of(target, probs)
    exact = average_precision_score(target, probs)
    assert abs(sweep.average_precision - exact) <= sweep.average_precision_error + 1e-12
    assert (sweep.average_precision_error > 0.05) == (spread <= 1e-3)  # a model that says nearly the same everywhere


def test_0_and_1_are_ties_indeed():
    target, probs = np.array([0, 1, 1, 0, 1]), np.array([0, 0, 1, 1, 1], np.float32)
    sweep = sweep_of(target, probs)
    assert sweep.average_precision == pytest.approx(average_precision_score(target, probs), rel=1e-12)
    assert sweep.average_precision_error == 0


def test_a_class_that_is_never_there_has_no_average_precision():
    sweep = sweep_of(np.zeros(4, int), np.linspace(0, 1, 4))
    assert np.isnan([sweep.average_precision, sweep.best_threshold, *sweep.recall]).all()
    assert sweep.precision.tolist() == [0, 0, 0, 0]
    nothing = compute_precision_recall(np.zeros((2, tallies.STEPS), np.int64), LOWER)
    assert len(nothing.thresholds) == 0


def test_a_thinned_curve_keeps_its_ends_and_scores():
    rng = np.random.default_rng(7)
    probs = rng.random(5000, np.float32)
    sweep = sweep_of((rng.random(5000) < probs).astype(int), probs)
    thin = sweep.thinned(50)
    assert len(thin.recall) <= 50
    assert (thin.recall[0], thin.recall[-1]) == (sweep.recall[0], 1.0)
    assert set(thin.precision) <= set(sweep.precision)
    assert thin.average_precision == sweep.average_precision
