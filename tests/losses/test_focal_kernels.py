"""The vector polynomials against NumPy in float64."""

import numpy as np
import pytest
from numba import njit

from segmeter.losses import focal_kernels


def apply(function, values):
    """Call the compiled scalar function on each value, as the kernels do."""

    @njit
    def loop(values, out):
        for i in range(len(values)):
            out[i] = function(values[i])

    out = np.empty_like(values)
    loop(values, out)
    return out


@pytest.fixture(scope="module")
def rng():
    return np.random.default_rng(0)


def test_exp_is_within_2_ulp_and_0_below_the_normal_range(rng):
    x = np.concatenate([-rng.uniform(0, 87.3, 20000), -(10 ** rng.uniform(-30, 1.9, 20000)), [0.0]]).astype(np.float32)
    exact = np.exp(x.astype(np.float64))
    assert np.max(np.abs(apply(focal_kernels.exp, x) - exact) / exact) < 2 * 2**-23
    assert apply(focal_kernels.exp, np.float32([0.0]))[0] == 1
    assert not apply(focal_kernels.exp, np.float32([-88, -1e4, -3e38, -np.inf])).any()
    assert np.isnan(apply(focal_kernels.exp, np.float32([np.nan])))


def test_log_is_within_2_ulp(rng):
    x = np.concatenate([10 ** rng.uniform(-37, 38, 20000), rng.uniform(0.5, 2, 20000), [1.0]]).astype(np.float32)
    exact = np.log(x.astype(np.float64))
    error = np.abs(apply(focal_kernels.log, x) - exact)
    assert np.max(error / np.maximum(np.abs(exact), 2**-23)) < 2 * 2**-23


def test_log1p_keeps_small_arguments(rng):
    x = np.concatenate([10 ** rng.uniform(-37, 4, 40000), [0.0]]).astype(np.float32)
    exact = np.log1p(x.astype(np.float64))
    error = np.abs(apply(focal_kernels.log1p, x) - exact)
    assert np.max(error / np.maximum(exact, 1e-38)) < 3 * 2**-23
    assert apply(focal_kernels.log1p, np.float32([0.0]))[0] == 0


def test_log1p_unit_is_within_2_ulp(rng):
    x = np.concatenate([10 ** rng.uniform(-37, 0, 40000), rng.uniform(0, 1, 20000), [0.0, 1.0]]).astype(np.float32)
    exact = np.log1p(x.astype(np.float64))
    error = np.abs(apply(focal_kernels.log1p_unit, x) - exact)
    assert np.max(error / np.maximum(exact, 1e-38)) < 2 * 2**-23
    assert apply(focal_kernels.log1p_unit, np.float32([0.0]))[0] == 0


@pytest.mark.parametrize("gamma", [0.0, 0.3, 1.0, 2.0, 3.0, 4.5])
def test_power_is_numpys_with_0_to_the_0_being_1(rng, gamma):
    base = np.concatenate([rng.uniform(0, 1, 1000), [0.0, 1.0]]).astype(np.float32)
    out = np.empty_like(base)
    focal_kernels.power(base, np.float32(gamma), base.size, out)
    exact = base.astype(np.float64) ** float(np.float32(gamma))
    np.testing.assert_allclose(out, exact, rtol=5e-6, atol=1e-37)


def test_a_label_is_a_class_or_ignored_or_bad():
    given = [(0, 0), (2, 2), (3, -2), (-1, -2), (255, -1)]
    assert [focal_kernels.class_of(np.int32(label), np.int32(255), np.int32(3)) for label, _ in given] == [
        found for _, found in given
    ]
    assert focal_kernels.class_of(np.int32(1), np.int32(1), np.int32(3)) == -1  # a class can be the ignored label
