"""Threshold sweeps: steps that split the range exactly, and scikit-learn's curve where each holds one value."""

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, f1_score, precision_recall_curve

from segmeter.metrics import tallies
from segmeter.metrics.calibration import calibration
from segmeter.metrics.sweeps import lower_ends, sweep_thresholds

LOWER = lower_ends(tallies.STEPS, tallies.MIDDLE, tallies.MANTISSA)


def steps_of(probs):
    steps = np.empty(len(probs), np.int32)
    tallies.find_steps(probs, steps)
    return steps


def test_every_float32_lies_above_the_end_of_its_step_and_not_above_the_next():
    rng = np.random.default_rng(0)
    bits = rng.integers(0, np.float32(1).view(np.uint32) + 1, 300_000, dtype=np.uint32)
    special = np.array([0, 2**-25, 2**-24, 0.25, np.nextafter(0.5, 0, dtype=np.float32), 0.5, 0.75, 1 - 2**-24, 1])
    probs = np.concatenate([bits.view(np.float32), rng.random(200_000, np.float32), special.astype(np.float32)])
    steps = steps_of(probs)
    assert (probs > LOWER[steps]).all()
    inner = steps + 1 < tallies.STEPS
    assert not (probs[inner] > LOWER[steps[inner] + 1]).any()
    assert (np.diff(LOWER) > 0).all()
    assert steps_of(np.array([0, 0.5, 1], np.float32)).tolist() == [0, tallies.MIDDLE, tallies.STEPS - 1]


def test_steps_are_fine_near_both_ends():
    assert np.diff(LOWER[1:]).max() < 0.0005
    assert np.diff(LOWER)[[1, -1]].max() < 1e-7


def test_a_sweep_by_hand():
    # falling: 0.9 hit, 0.8 no, 0.6 hit, 0.3 no; 2 hits in all
    target, probs = np.array([1, 0, 1, 0]), np.array([0.9, 0.8, 0.6, 0.3], np.float32)
    sweep = calibration(target, probs, num_classes=2, task="binary").sweeps[0]
    assert sweep.precision.tolist() == [1, 0.5, 2 / 3, 0.5]
    assert sweep.recall.tolist() == [0.5, 0.5, 1, 1]
    assert sweep.average_precision == pytest.approx(0.5 * 1 + 0.5 * 2 / 3, rel=1e-12)
    assert sweep.best_f1 == 0.8
    assert 0.599 < sweep.best_threshold < np.float32(0.6)


@pytest.mark.parametrize("seed", range(3))
def test_scikit_learn_agrees_where_every_step_holds_one_value(seed):
    rng = np.random.default_rng(seed)
    probs = np.unique(rng.random(3000, np.float32))
    probs = probs[np.unique(steps_of(probs), return_index=True)[1]]
    target = (rng.random(len(probs)) < probs**2).astype(np.uint8)
    sweep = calibration(target, probs, num_classes=2, task="binary").sweeps[0]
    assert sweep.average_precision == pytest.approx(average_precision_score(target, probs), rel=1e-12)
    precision, recall, _ = precision_recall_curve(target, probs)
    np.testing.assert_allclose(sweep.precision, precision[-2::-1], rtol=1e-12)
    np.testing.assert_allclose(sweep.recall, recall[-2::-1], rtol=1e-12)
    assert sweep.best_f1 == pytest.approx(f1_score(target, probs > sweep.best_threshold), rel=1e-12)
    others = [f1_score(target, probs >= p) for p in probs[::7]]
    assert max(others) <= sweep.best_f1


def test_overconfident_probabilities_are_still_told_apart():
    rng = np.random.default_rng(5)
    logits = rng.normal(0, 9, 20_000)
    target = (rng.random(20_000) < 1 / (1 + np.exp(-logits / 3))).astype(np.uint8)
    probs = (1 / (1 + np.exp(-logits))).astype(np.float32)
    sweep = calibration(target, probs, num_classes=2, task="binary").sweeps[0]
    assert sweep.average_precision == pytest.approx(average_precision_score(target, probs), abs=1e-4)  # of 1001 ties


def test_one_against_the_rest_for_each_class():
    rng = np.random.default_rng(6)
    probs = rng.dirichlet((1, 1, 1), 500).T.astype(np.float32)
    target = rng.integers(0, 3, 500)
    for k, sweep in enumerate(calibration(target, probs, num_classes=3).sweeps):
        assert sweep.average_precision == pytest.approx(average_precision_score(target == k, probs[k]), abs=1e-3)


def test_a_class_that_is_never_there_has_no_average_precision():
    sweep = calibration(np.zeros(4, int), np.linspace(0, 1, 4), num_classes=2, task="binary").sweeps[0]
    assert np.isnan(sweep.average_precision)
    assert np.isnan(sweep.best_threshold)
    assert np.isnan(sweep.recall).all()
    assert sweep.precision.tolist() == [0, 0, 0, 0]
    nothing = sweep_thresholds(np.zeros((2, tallies.STEPS), np.int64), LOWER)
    assert len(nothing.thresholds) == 0


def test_a_thinned_curve_keeps_its_ends_and_scores():
    rng = np.random.default_rng(7)
    probs = rng.random(5000, np.float32)
    sweep = calibration((rng.random(5000) < probs).astype(int), probs, num_classes=2, task="binary").sweeps[0]
    thin = sweep.thinned(50)
    assert len(thin.recall) <= 50
    assert (thin.recall[0], thin.recall[-1]) == (sweep.recall[0], 1.0)
    assert set(thin.precision) <= set(sweep.precision)
    assert thin.average_precision == sweep.average_precision
