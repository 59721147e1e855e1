"""Columns made one at a time: the numbers of the array that they stand for."""

import numpy as np
import pytest

from segmeter.metrics.statistics import columns as module
from segmeter.metrics.statistics.bootstrap import bootstrap, bootstrap_columns
from segmeter.metrics.statistics.columns import Columns, lazy_means, mean_columns, mean_of_columns

RNG = np.random.default_rng(0)
VALUES = RNG.random((40, 3))
VALUES[::7, 1], VALUES[3, 2] = np.nan, np.inf


def array(columns):
    return np.stack([*columns], axis=1)


def lazily(values):
    return lazy_means(*values.shape, lambda place: values[:, place].copy())


def test_means_are_the_columns_of_the_array():
    """Mutation seen to fail: infinite before defined."""
    np.testing.assert_array_equal(array(lazily(VALUES)), mean_columns(VALUES))


def test_joined_columns_are_those_side_by_side():
    counts = RNG.integers(0, 9, (40, 2))
    joined = Columns.join(Columns.of(counts), lazily(VALUES))
    np.testing.assert_array_equal(array(joined), np.concatenate([counts, mean_columns(VALUES)], axis=1))
    assert Columns.join(Columns.of(counts)).dtype == counts.dtype


def test_sums_are_added_up_in_the_order_of_the_cases():
    """Not pairwise, as NumPy adds a single column; mutation seen to fail: `column.sum()`."""
    column = 10.0 ** RNG.integers(-6, 6, 5000)
    assert Columns.of(column[:, None]).sums().tolist() == [sum(column.tolist())]


@pytest.mark.parametrize("clusters", [None, [f"c{i % 17}" for i in range(40)]], ids=["cases", "clusters"])
@pytest.mark.parametrize("most", [16, 64], ids=["pools", "units"])
def test_intervals_are_those_of_the_array(monkeypatch, most, clusters):
    monkeypatch.setattr(module, "MOST_UNITS", most)
    options = {"resamples": 300, "seed": 0, "clusters": clusters, "test": True}
    one = bootstrap(mean_columns(VALUES), mean_of_columns, **options)
    other = bootstrap_columns(lazily(VALUES), mean_of_columns, **options)
    for name in ("estimate", "low", "high", "replicates", "p_of_zero"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
