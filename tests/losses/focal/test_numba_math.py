"""The vector polynomials against NumPy in float64, and bfloat16 rounding against torch."""

import numpy as np
import pytest
import torch
from numba import njit

from segmeter.losses.focal import numba_math


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
    assert np.max(np.abs(apply(numba_math.exp, x) - exact) / exact) < 2 * 2**-23
    assert apply(numba_math.exp, np.float32([0.0]))[0] == 1
    assert not apply(numba_math.exp, np.float32([-88, -1e4, -3e38, -np.inf])).any()
    assert np.isnan(apply(numba_math.exp, np.float32([np.nan])))


def test_log_is_within_2_ulp(rng):
    x = np.concatenate([10 ** rng.uniform(-37, 38, 20000), rng.uniform(0.5, 2, 20000), [1.0]]).astype(np.float32)
    exact = np.log(x.astype(np.float64))
    error = np.abs(apply(numba_math.log, x) - exact)
    assert np.max(error / np.maximum(np.abs(exact), 2**-23)) < 2 * 2**-23


def test_log1p_keeps_small_arguments(rng):
    x = np.concatenate([10 ** rng.uniform(-37, 4, 40000), [0.0]]).astype(np.float32)
    exact = np.log1p(x.astype(np.float64))
    error = np.abs(apply(numba_math.log1p, x) - exact)
    assert np.max(error / np.maximum(exact, 1e-38)) < 3 * 2**-23
    assert apply(numba_math.log1p, np.float32([0.0]))[0] == 0


def test_log1p_unit_is_within_2_ulp(rng):
    x = np.concatenate([10 ** rng.uniform(-37, 0, 40000), rng.uniform(0, 1, 20000), [0.0, 1.0]]).astype(np.float32)
    exact = np.log1p(x.astype(np.float64))
    error = np.abs(apply(numba_math.log1p_unit, x) - exact)
    assert np.max(error / np.maximum(exact, 1e-38)) < 2 * 2**-23
    assert apply(numba_math.log1p_unit, np.float32([0.0]))[0] == 0


def test_bfloat16_is_rounded_as_torch_rounds_it(rng):
    values = rng.standard_normal(5000).astype(np.float32) * 10.0 ** rng.integers(-30, 30, 5000).astype(np.float32)
    ties = np.float32([1 + 2**-8, 1 + 3 * 2**-8, np.inf, -np.inf, 0.0, -0.0, 3.4e38])
    values = np.concatenate([values, ties]).astype(np.float32)

    @njit
    def loop(values, out):
        for i in range(len(values)):
            out[i] = numba_math.rounded_bfloat(values[i])

    out = np.empty(len(values), np.uint16)
    loop(values, out)
    theirs = torch.from_numpy(values).to(torch.bfloat16).view(torch.int16).numpy().view(np.uint16)
    np.testing.assert_array_equal(out, theirs)
    loop(np.float32([np.nan]), out[:1])
    assert torch.from_numpy(out[:1].view(np.int16)).view(torch.bfloat16).isnan()


@pytest.mark.parametrize("gamma", [0.0, 0.3, 1.0, 2.0, 3.0, 4.5])
def test_power_is_numpys_with_0_to_the_0_being_1(rng, gamma):
    base = np.concatenate([rng.uniform(0, 1, 1000), [0.0, 1.0]]).astype(np.float32)
    out = np.empty_like(base)
    numba_math.power(base, np.float32(gamma), base.size, out)
    exact = base.astype(np.float64) ** float(np.float32(gamma))
    np.testing.assert_allclose(out, exact, rtol=5e-6, atol=1e-37)


def test_a_label_is_a_class_or_ignored_or_bad():
    given = [(0, 0), (2, 2), (3, -2), (-1, -2), (255, -1)]
    assert [numba_math.class_of(np.int64(label), 255, 3) for label, _ in given] == [found for _, found in given]
    assert numba_math.class_of(np.int64(1), 1, 3) == -1  # a class can be the ignored label
