"""Columns made one at a time are those of the array; draws are multinomial, whatever the blocks and threads."""

import functools
import operator

import numpy as np
import pytest

from segmeter.metrics.statistics import columns as module
from segmeter.metrics.statistics.bootstrap import bootstrap, bootstrap_columns
from segmeter.metrics.statistics.columns import Columns, map_weights, mean_columns, mean_of_columns

RNG = np.random.default_rng(0)
VALUES = RNG.random((40, 3))
VALUES[::7, 1], VALUES[3, 2] = np.nan, np.inf


def array(columns):
    return np.stack([*columns], axis=1)


def test_joined_columns_are_those_side_by_side():
    counts = RNG.integers(0, 9, (40, 2))
    joined = Columns.join(Columns.of(counts), Columns.of(mean_columns(VALUES)))
    np.testing.assert_array_equal(array(joined), np.concatenate([counts, mean_columns(VALUES)], axis=1))
    assert Columns.join(Columns.of(counts)).dtype == counts.dtype


def test_sums_are_added_up_in_the_order_of_the_cases():
    """Not pairwise, as NumPy adds a single column; mutation seen to fail: `column.sum()`."""
    column = 10.0 ** RNG.integers(-6, 6, 5000)
    assert Columns.of(column[:, None]).sums().tolist() == [functools.reduce(operator.add, column.tolist())]


@pytest.mark.parametrize("clusters", [None, [f"c{i % 17}" for i in range(40)]], ids=["cases", "clusters"])
@pytest.mark.parametrize("most", [16, 64], ids=["pools", "units"])
def test_intervals_are_those_of_the_array(monkeypatch, most, clusters):
    monkeypatch.setattr(module, "MOST_UNITS", most)
    options = {"resamples": 300, "seed": 0, "clusters": clusters, "test": True}
    held = mean_columns(VALUES)
    lazy = Columns(count=40, shape=(9,), dtype=held.dtype, make=lambda place: held[:, place].copy())
    one, other = bootstrap(held, mean_of_columns, **options), bootstrap_columns(lazy, mean_of_columns, **options)
    for name in ("estimate", "low", "high", "replicates", "p_of_zero"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


def all_weights(n_units, resamples, seed):
    return np.concatenate(list(map_weights(np.asarray, n_units, resamples, seed)))


def test_weights_are_multinomial_counts():
    weights = all_weights(7, 40_000, 0)
    assert weights.shape == (40_000, 7)
    assert (weights.sum(axis=1) == 7).all()
    # each is Binomial(7, 1/7): mean 1, variance 6/7, covariance -1/7; five standard errors of 40000 draws
    np.testing.assert_allclose(weights.mean(axis=0), 1, atol=5 * (6 / 7 / 40_000) ** 0.5)
    np.testing.assert_allclose(np.cov(weights.T), np.eye(7) - 1 / 7, atol=0.04)


def test_the_stream_is_fixed_forever():
    # PCG64(3) gives these raw words in every NumPy version; by hand: index = (32 bits * 5) >> 32
    raw = np.random.PCG64(3).random_raw(3)
    halves = [int(word) >> shift & 0xFFFFFFFF for word in raw for shift in (0, 32)][:5]
    expected = np.bincount([half * 5 >> 32 for half in halves], minlength=5)
    np.testing.assert_array_equal(all_weights(5, 1, 3)[0], expected)
    np.testing.assert_array_equal(all_weights(5, 1, 3)[0], [3, 1, 0, 0, 1])


def in_blocks(monkeypatch, cores):
    for name, value in (("_DRAWN", 50), ("_LEAST_ROWS", 8), ("_MANY_DRAWS", 0), ("count_cores", lambda: cores)):
        monkeypatch.setattr(module, name, value)


@pytest.mark.parametrize("cores", [1, 2, 3])
def test_neither_blocks_nor_threads_change_the_draws_and_their_order(monkeypatch, cores):
    """Mutation seen to fail: every block drawn from the start of the stream."""
    whole, other = all_weights(5, 100, 4), all_weights(5, 100, 5)
    in_blocks(monkeypatch, cores)
    np.testing.assert_array_equal(all_weights(5, 100, 4), whole)
    assert (other != whole).any()


def test_few_blocks_wait_to_be_taken(monkeypatch):
    """A block of sums is as large as the caller's columns make it. Mutation seen to fail: eight blocks per thread."""
    in_blocks(monkeypatch, 2)
    made = []
    blocks = map_weights(lambda weights: made.append(1) or weights, 5, 200, 4)
    for taken in range(1, 10):
        next(blocks)
        assert len(made) <= taken + 3


@pytest.mark.parametrize("n_units", [1, 2, 7, 1000])
def test_many_draws_are_tallied_like_few(monkeypatch, n_units):
    """The compiled loop against NumPy; mutation seen to fail: the high half of a word drawn first."""
    by_numpy = all_weights(n_units, 20, 6)
    monkeypatch.setattr(module, "_MANY_DRAWS", 0)
    np.testing.assert_array_equal(all_weights(n_units, 20, 6), by_numpy)
