"""Steps that split the range of probabilities exactly, and precision-recall curves: by hand, and scikit-learn's."""

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, f1_score

from segmeter.metrics import _kernels as tallies
from segmeter.metrics.precision_recall import compute_precision_recall
from segmeter.metrics.probabilities import calibration

LOWER = tallies.lower_ends()


def steps_of(probs):
    steps = np.empty(len(probs), np.int32)
    tallies.find_steps(probs, steps)
    return steps


def probabilities(seed):
    """Of every size: all bit patterns of float32, seen from 0 and from 1, and float64 of as many octaves as it has."""
    rng = np.random.default_rng(seed)
    bits = rng.integers(0, np.float32(1).view(np.uint32) + 1, 200_000, dtype=np.uint32).view(np.float32)
    yield bits
    yield 1 - bits
    yield rng.random(200_000, np.float32)
    near = np.clip(bits * (1 + rng.normal(0, 1e-9, bits.size)), 0, 1)
    yield near
    yield 1 - near
    yield 10.0 ** rng.uniform(-308, 0, 100_000)
    yield 1 - 10.0 ** rng.uniform(-16, 0, 100_000)
    ends = [0, 5e-324, 2**-149, 2**-132, 2**-24, 0.25, 0.5, 0.75, 1 - 2**-24, 1 - 2**-53, 1]
    yield np.array([q for p in ends for q in (np.nextafter(p, 0), p, np.nextafter(p, 1))])


@pytest.mark.parametrize("seed", range(2))
def test_every_probability_lies_above_the_end_of_its_step_and_not_above_the_next(seed):
    assert LOWER.shape == (tallies.STEPS,)
    for probs in probabilities(seed):
        steps = steps_of(probs)
        wide = probs.astype(np.float64)
        assert (wide > LOWER[steps]).all()
        inner = steps + 1 < tallies.STEPS
        assert not (wide[inner] > LOWER[steps[inner] + 1]).any()
        assert (np.diff(steps[np.argsort(wide)]) >= 0).all()


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
