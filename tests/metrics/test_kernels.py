"""Steps that split the range of probabilities exactly, and bins whose edges decide."""

import numpy as np
import pytest

from segmeter.metrics import _kernels as tallies

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


def test_the_ends_of_the_range_have_steps_of_their_own():
    probs = np.array([0, 5e-324, 0.5, 1 - 2**-53, 1])
    assert steps_of(probs).tolist() == [0, 1, tallies.MIDDLE, tallies.STEPS - 2, tallies.STEPS - 1]
    assert (np.diff(LOWER) >= 0).all()


def test_steps_are_fine_near_both_ends():
    assert np.diff(LOWER[1:]).max() < 0.0005
    assert LOWER[2] < 2e-40
    assert np.diff(LOWER)[tallies.FINE_STEP - 1] < 1e-9


def test_winners_squares_and_logarithms_by_hand():
    target = np.array([0, 1, 1, 2], np.uint8)  # 2 is void
    probs = np.array([[0.75, 0.5, 1.0, 0.5], [0.25, 0.5, 0.0, 0.5]])
    counts, confidence, sums = np.zeros((2, 4), np.int64), np.zeros(4), np.zeros(2)
    impossible = tallies.tally_all(target, probs, 2, counts, confidence, sums)
    # of a tie the first class wins: pixel 1 is wrong with 0.5, pixel 2 wrong with 1, pixel 0 right with 0.75
    assert counts.tolist() == [[0, 1, 0, 1], [0, 0, 1, 0]]
    assert confidence.tolist() == [0, 0.5, 0.75, 1]
    assert sums[0] == 2 * 0.25**2 + 2 * 0.5**2 + 2
    assert sums[1] == pytest.approx(-np.log(0.75) - np.log(0.5), rel=1e-12)
    assert impossible == 1
