"""Columns made one at a time: the numbers of the array that they stand for."""

from functools import partial

import numpy as np
import pytest

from segmeter.errors import InputError
from segmeter.metrics.statistics import bootstrap as module
from segmeter.metrics.statistics.bootstrap import bootstrap, bootstrap_columns, mean_columns, mean_of_columns
from segmeter.metrics.statistics.lazy_columns import Columns, join_columns, lazy_means

RNG = np.random.default_rng(0)
VALUES = RNG.random((40, 3))
VALUES[::7, 1], VALUES[3, 2] = np.nan, np.inf


def lazily(values):
    return lazy_means(len(values), [partial(np.copy, column) for column in values.T])


def test_means_are_the_columns_of_the_array():
    """Mutation seen to fail: infinite before defined."""
    np.testing.assert_array_equal(lazily(VALUES).array(), mean_columns(VALUES))


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
