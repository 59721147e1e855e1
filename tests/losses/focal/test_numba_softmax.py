"""The softmax kernels' parts, called directly, against the definition in 60 digits."""

import numpy as np
import pytest

from segmeter.losses.focal import numba_softmax
from segmeter.losses.focal.numba_blocks import options_of
from segmeter.losses.focal.params import FocalParams
from tests.losses.extreme import RTOL, SOFTMAX, TINY, exact_softmax

ROWS = np.float32([row for row in SOFTMAX for _ in range(3)]).T.copy()  # (3, pixels)
CLASSES = np.int32([0, 1, 2] * len(SOFTMAX))
COUNT = CLASSES.size
WEIGHTS = np.float32([0.5, 2.0, 1.0])


def exact(gamma, labels=CLASSES):
    """Losses (pixels,) and gradients (3, pixels)."""
    pixels = [
        exact_softmax(gamma, tuple(map(float, row)), int(label)) for row, label in zip(ROWS.T, labels, strict=True)
    ]
    return np.array([loss for loss, _ in pixels]), np.array([gradient for _, gradient in pixels]).T


def largest():
    top = np.zeros(COUNT, np.float32)
    numba_softmax.find_largest(ROWS, COUNT, top)
    np.testing.assert_array_equal(top, ROWS.max(0))
    return top


@pytest.mark.parametrize("gamma", [0.0, 0.5, 2.0, 3.7])
def test_losses_and_gradients_are_their_definition_at_extreme_logits(gamma):
    rows, lines = ROWS.copy(), np.zeros((8, COUNT), np.float32)
    top, others, hot, delta, nll, q = largest(), lines[1], lines[2], lines[3], lines[4], lines[5]
    numba_softmax.split_exp(rows, CLASSES, COUNT, top, others, hot, delta)
    numba_softmax.hard_terms(others, hot, delta, COUNT, nll, q)
    gamma = float(np.float32(gamma))
    losses, gradients = exact(gamma)
    np.testing.assert_allclose(nll, exact(0.0)[0], rtol=RTOL, atol=TINY)
    np.testing.assert_allclose(q.astype(np.float64) ** gamma * nll, losses, rtol=RTOL, atol=TINY)
    options, scale = options_of(FocalParams(softmax=True, gamma=gamma)), np.full(COUNT, 3, np.float32)
    numba_softmax.hard_gradient(rows, CLASSES, WEIGHTS, lines, options, COUNT, scale)
    np.testing.assert_allclose(rows, 3 * WEIGHTS[CLASSES] * gradients, rtol=RTOL, atol=TINY)


@pytest.mark.parametrize("gamma", [0.0, 2.0])
def test_smoothing_is_the_mixture_of_all_classes(gamma):
    rows, deltas, losses = ROWS.copy(), np.zeros_like(ROWS), np.zeros(COUNT, np.float32)
    found, others = np.zeros(COUNT, np.int32), np.zeros(COUNT, np.float32)
    options = options_of(FocalParams(softmax=True, gamma=gamma, smoothing=0.3))
    numba_softmax.split_mixture(rows, COUNT, largest(), found, others, deltas)
    numba_softmax.mixture_losses(rows, deltas, others, WEIGHTS, CLASSES, options, COUNT, losses)
    numba_softmax.mixture_gradient(rows, deltas, others, WEIGHTS, CLASSES, options, COUNT, np.ones(COUNT, np.float32))
    expected, gradients = np.zeros(COUNT), np.zeros((3, COUNT))
    for k in range(3):
        amount = WEIGHTS[k] * np.where(k == CLASSES, 0.8, 0.1)
        loss, gradient = exact(gamma, np.full(COUNT, k))
        expected += amount * loss
        gradients += amount * gradient
    np.testing.assert_allclose(losses, expected, rtol=RTOL, atol=TINY)
    np.testing.assert_allclose(rows, gradients, rtol=RTOL, atol=1e-6)  # the classes' pulls cancel in part


def test_pixels_that_do_not_count_weigh_nothing_and_have_no_gradient_even_where_they_are_nan():
    line, classes = np.ones(COUNT, np.float32), np.where(CLASSES == 1, -1, CLASSES).astype(np.int32)
    numba_softmax.read_weights(WEIGHTS, classes, COUNT, line)
    np.testing.assert_array_equal(line, np.where(CLASSES == 1, 0, WEIGHTS[CLASSES]))
    rows, lines = np.full_like(ROWS, np.nan), np.full((8, COUNT), np.nan, np.float32)
    options = options_of(FocalParams(softmax=True, gamma=2.0))
    numba_softmax.hard_gradient(rows, np.full_like(CLASSES, -2), WEIGHTS, lines, options, COUNT, lines[7])
    assert not rows.any()
