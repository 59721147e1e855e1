"""Class weights from pixel counts: what holds for every scheme. The formulas are tested with the configuration."""

from typing import get_args

import numpy as np
import pytest

from segmeter.losses.build import class_weights
from segmeter.losses.config import Scheme

SCHEMES = get_args(Scheme)
COUNTS = np.array([700, 200, 99, 1, 0])


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_share_decides_not_the_number_of_pixels(scheme):
    weights = class_weights(COUNTS, scheme)
    np.testing.assert_allclose(class_weights(COUNTS * 2**40, scheme), weights, rtol=1e-12)
    np.testing.assert_allclose(class_weights(COUNTS.astype(np.uint16), scheme), weights, rtol=1e-12)
    order = [3, 1, 4, 0, 2]
    np.testing.assert_array_equal(class_weights(COUNTS[order], scheme), weights[order])


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_rarer_class_weighs_more(scheme):
    weights = class_weights(COUNTS, scheme)
    assert (np.diff(weights[:4]) > 0).all()


@pytest.mark.parametrize(("scheme", "offset"), [("log", 1.02), ("mild", 1.1)])
def test_logarithms_are_bounded(scheme, offset):
    assert class_weights(COUNTS, scheme)[4] == pytest.approx(1 / np.log(offset))
    assert class_weights(np.array([5]), scheme)[0] == pytest.approx(1 / np.log(1 + offset))


def test_median_and_inverse_leave_an_absent_class_out():
    assert class_weights(COUNTS, "median")[4] == class_weights(COUNTS, "inverse")[4] == 0
