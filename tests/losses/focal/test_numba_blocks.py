"""What softmax and sigmoid kernels share, called directly and held against NumPy."""

import numpy as np
import pytest

from segmeter.losses.focal import numba_blocks
from segmeter.losses.focal.numba_blocks import Job
from segmeter.losses.focal.params import FocalParams

LOSSES = np.float32([1.5, 2.0, 4.0, 8.0, 16.0])
CLASSES = np.int32([0, -1, 3, -2, 1])  # the second is ignored, the fourth is bad


def make_job(**changes):
    return Job(**{**dict.fromkeys(Job._fields, 0), **changes})


def test_losses_that_do_not_count_are_0_and_the_others_are_kept_where_asked():
    losses, kept = LOSSES.copy(), np.full(8, -1, np.float32)
    numba_blocks.keep_losses(make_job(losses=kept.ctypes.data, elementwise=1), 2, 5, losses, CLASSES)
    np.testing.assert_array_equal(losses, [1.5, 0, 4, 0, 16])
    np.testing.assert_array_equal(kept, [-1, -1, 1.5, 0, 4, 0, 16, -1])


@pytest.mark.parametrize("elementwise", [0, 1])
def test_the_arriving_gradient_is_one_for_all_or_one_per_element(elementwise):
    arriving, scale = np.arange(1, 9, dtype=np.float32), np.zeros(5, np.float32)
    numba_blocks.read_scale(make_job(losses=arriving.ctypes.data, elementwise=elementwise), 2, 5, scale)
    np.testing.assert_array_equal(scale, arriving[2:7] if elementwise else [1] * 5)


def test_a_blocks_sums_are_added_in_float64_at_its_own_place():
    sums, weights = np.zeros((3, 3)), np.float32([0.5, 0, 2, 0, 1])
    job = make_job(sums=sums.ctypes.data)
    for _ in range(2):  # a sigmoid adds each of its channels
        numba_blocks.store_sums(LOSSES, weights, CLASSES, job, 1, 5)
    np.testing.assert_array_equal(sums, [[0, 0, 0], [63, 7, 2], [0, 0, 0]])
    large = np.full(1 << 15, 2.0**24 + 2, np.float32)  # in float32 the 2 would be lost
    numba_blocks.store_sums(large, large, np.zeros(large.size, np.int32), job, 0, large.size)
    assert sums[0, 0] == (2.0**24 + 2) * 2**15


def test_the_blocks_are_folded_in_order():
    rng = np.random.default_rng(0)
    parts, whole = rng.normal(size=(1000, 3)) * 10.0 ** rng.integers(-9, 9, (1000, 1)), np.zeros(3)
    numba_blocks.fold(parts.ctypes.data, len(parts), whole.ctypes.data)
    one_by_one = np.zeros(3)
    for part in parts:
        one_by_one += part
    np.testing.assert_array_equal(whole, one_by_one)


def test_the_options_are_float32():
    options = numba_blocks.options_of(FocalParams(softmax=False, gamma=0.1, smoothing=0.2, negative=0.3, positive=0.4))
    assert all(isinstance(value, np.float32) for value in options)
    assert options == tuple(np.float32([0.1, 0.2, 0.3, 0.4]))
