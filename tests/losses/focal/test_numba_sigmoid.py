"""The sigmoid kernels' parts, called directly, against the definition in 60 digits."""

import numpy as np
import pytest

from segmeter.losses.focal import numba_sigmoid
from segmeter.losses.focal.numba_blocks import options_of
from segmeter.losses.focal.params import FocalParams
from tests.losses.extreme import RTOL, SIGMOID, TINY, exact_sigmoid

X = np.float32([x for x in SIGMOID for _ in range(2)])
CLASSES = np.int32([0, 1] * len(SIGMOID))


def split(classes=CLASSES):
    lines = np.zeros((6, X.size), np.float32)
    numba_sigmoid.split_sigmoid(X, classes, X.size, lines[0], lines[1], lines[2], lines[3])
    return lines


def exact(gamma, labels=CLASSES):
    return np.array([exact_sigmoid(gamma, float(x), int(label)) for x, label in zip(X, labels, strict=True)]).T


@pytest.mark.parametrize("gamma", [0.0, 0.5, 2.0, 3.7])
def test_losses_and_slopes_are_their_definition_at_extreme_logits(gamma):
    options = options_of(FocalParams(softmax=False, gamma=gamma, negative=0.75, positive=0.25))
    weight = np.where(CLASSES == 1, 0.25, 0.75)
    lines = split()
    numba_sigmoid.sigmoid_losses(CLASSES, lines, options, X.size)
    losses, slopes = exact(float(np.float32(gamma)))
    np.testing.assert_allclose(lines[2], weight * losses, rtol=RTOL, atol=TINY)
    row = X.copy()
    numba_sigmoid.sigmoid_slopes(row, CLASSES, split(), options, X.size, np.full(X.size, 3, np.float32))
    np.testing.assert_allclose(row, 3 * weight * slopes, rtol=RTOL, atol=TINY)


def test_smoothing_is_the_mixture_of_both_targets():
    options = options_of(FocalParams(softmax=False, gamma=2.0, smoothing=0.2))
    lines, row = split(), X.copy()
    numba_sigmoid.sigmoid_slopes(row, CLASSES, lines, options, X.size, np.ones(X.size, np.float32))
    numba_sigmoid.sigmoid_losses(CLASSES, lines, options, X.size)
    mixed = 0.9 * exact(2.0) + 0.1 * exact(2.0, 1 - CLASSES)
    np.testing.assert_allclose(lines[2], mixed[0], rtol=RTOL, atol=TINY)
    np.testing.assert_allclose(row, mixed[1], rtol=RTOL, atol=1e-7)  # near x = 0 the two slopes cancel


def test_elements_that_do_not_count_have_no_slope_even_where_they_are_nan():
    row, lines = np.full(X.size, np.nan, np.float32), np.full((6, X.size), np.nan, np.float32)
    options = options_of(FocalParams(softmax=False, gamma=2.0))
    numba_sigmoid.sigmoid_slopes(row, np.full_like(CLASSES, -1), lines, options, X.size, lines[5])
    assert not row.any()
