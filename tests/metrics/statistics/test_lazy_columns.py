"""Columns made one at a time: the numbers of the array that they stand for."""

from functools import partial

import numpy as np
import pytest

from segmeter.errors import InputError
from segmeter.metrics.statistics import bootstrap as module
from segmeter.metrics.statistics.bootstrap import bootstrap, bootstrap_columns, mean_columns, mean_of_columns
from segmeter.metrics.statistics.lazy_columns import Columns, held_columns, join_columns, lazy_means

RNG = np.random.default_rng(0)
VALUES = RNG.random((40, 3))
VALUES[::7, 1], VALUES[3, 2] = np.nan, np.inf


def lazily(values):
    return lazy_means(len(values), [partial(np.copy, column) for column in values.T])


def test_means_are_the_columns_of_the_array():
    """Mutation seen to fail: infinite before defined."""
    np.testing.assert_array_equal(lazily(VALUES).array(), mean_columns(VALUES))


def test_means_of_bounded_values_are_the_columns_of_the_array():
    bounded = np.where(np.isinf(VALUES), 0.5, VALUES)
    lazy = lazy_means(len(bounded), [partial(np.copy, column) for column in bounded.T], bounded=True)
    np.testing.assert_array_equal(lazy.array(), mean_columns(bounded, bounded=True))


@pytest.mark.parametrize("width", [0, 1, 2, 4, 5, 9, 13])
def test_blocks_are_all_columns_and_add_up_to_the_last_digit_as_the_array_does(width):
    """Mutation seen to fail: blocks of four, and the last one of what is left, which may be a single column."""
    array = RNG.random((50_000, width)) * 10.0 ** RNG.integers(-6, 6, width)
    blocks = list(Columns.of(array).blocks())
    np.testing.assert_array_equal(np.concatenate([array[:, :0], *blocks], axis=1), array)
    sums = np.concatenate([np.empty(0), *(block.sum(axis=0) for block in blocks)])
    assert sums.tobytes() == array.sum(axis=0).tobytes()
    assert all(block.shape[1] > 1 or width == 1 for block in blocks)


def test_columns_that_are_there_are_given_in_the_type_that_is_wanted():
    held = held_columns(3, [np.arange(3, dtype=np.int32), np.ones(3)], np.float64)
    np.testing.assert_array_equal(held.array(), [[0, 1], [1, 1], [2, 1]])
    assert {column.dtype for column in held} == {np.dtype(np.float64)}


def test_joined_columns_are_those_side_by_side():
    counts = RNG.integers(0, 9, (40, 2))
    joined = join_columns([Columns.of(counts), lazily(VALUES)])
    np.testing.assert_array_equal(joined.array(), np.concatenate([counts, mean_columns(VALUES)], axis=1))
    assert join_columns([Columns.of(counts)]).dtype == counts.dtype


def test_an_array_of_any_shape_comes_back():
    counts = RNG.integers(0, 9, (5, 2, 3))
    np.testing.assert_array_equal(Columns.of(counts).array(), counts)


@pytest.mark.parametrize("clusters", [None, [f"c{i % 17}" for i in range(40)]], ids=["cases", "clusters"])
@pytest.mark.parametrize("most", [16, 64], ids=["pools", "units"])
def test_intervals_are_those_of_the_array(monkeypatch, most, clusters):
    monkeypatch.setattr(module, "MOST_UNITS", most)
    options = {"resamples": 300, "clusters": clusters, "test": True}
    one = bootstrap(mean_columns(VALUES), mean_of_columns, **options)
    other = bootstrap_columns(lazily(VALUES), mean_of_columns, **options)
    for name in ("estimate", "low", "high", "replicates", "p_of_zero"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


def test_numbers_that_are_not_finite_are_refused():
    with pytest.raises(InputError, match=r"finite numbers \(N >= 1, \.\.\.\), got float64 \(2, 1\)"):
        bootstrap_columns(Columns.of(np.array([[1.0], [np.nan]])), mean_of_columns)
