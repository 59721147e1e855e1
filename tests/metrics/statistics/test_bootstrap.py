"""Intervals: exact sums, the same bits for a seed whatever the blocks and threads, and honest edges."""

import functools
import math
import operator

import numpy as np
import pytest

from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.pixels.overlap import overlap_scores
from segmeter.metrics.statistics import columns as module
from segmeter.metrics.statistics.bootstrap import bootstrap, bootstrap_columns, mean_interval
from segmeter.metrics.statistics.columns import Columns, draw_pools, map_weights, mean_columns, mean_of_columns, to_grid
from segmeter.metrics.summary.summarise import summarise
from tests.metrics.build import class_spec, random_rows

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


SKEWED = np.random.default_rng(1).gamma(1.0, size=(80, 1))


def interval_of_mean(values, **options):
    result = bootstrap(mean_columns(values), mean_of_columns, **options)
    return result.estimate[0], result.low[0], result.high[0]


def test_ties_count_half_so_that_a_symmetric_statistic_is_not_shifted():
    # 15 zeros and 15 ones: resampled means tie with .5 in a seventh of the draws, and there is no bias to correct
    values = np.repeat([[0.0], [1.0]], 15, axis=0)
    plain, shifted = (interval_of_mean(values, resamples=5000, interval=name) for name in ("percentile", "bca"))
    assert plain == shifted


@pytest.mark.parametrize("scale", [1.0, 1e-300, 1e12], ids=str)
def test_grid_sums_do_not_depend_on_the_order(scale):
    values = np.random.default_rng(3).normal(size=(1000, 2)) * scale
    values[:, 1] = -np.abs(values[:, 1])
    grid = np.stack([to_grid(column) for column in values.T], axis=1)
    np.testing.assert_allclose(grid, values, rtol=0, atol=np.abs(values).max() * 2**-41)
    forward, backward = np.zeros(2), np.zeros(2)
    for row in grid:
        forward += row
    for row in grid[::-1]:
        backward += row
    np.testing.assert_array_equal(forward, backward)
    np.testing.assert_array_equal(forward, np.ones(1000) @ grid)
    counts = np.random.default_rng(3).integers(0, 2**40, 200)
    np.testing.assert_array_equal(to_grid(counts), counts)  # integers stay as they are


def test_the_statistic_gets_the_shape_and_the_whole_numbers_of_the_columns():
    counts = np.random.default_rng(7).integers(0, 30, (9, 3, 3), dtype=np.int32)
    seen = []

    def statistic(sums):
        seen.append((sums.dtype, sums.shape[1:]))
        return overlap_scores(sums).mean_iou  # which refuses floats

    one = bootstrap(counts, statistic, resamples=400, seed=2)
    assert set(seen) == {(np.dtype(np.int64), (3, 3))}
    assert (one.estimate.shape, one.low.shape, one.replicates.shape) == ((), (), (400,))
    np.testing.assert_array_equal(one.estimate, overlap_scores(counts.sum(axis=0)).mean_iou)
    weights = all_weights(9, 400, 2)
    sums = np.einsum("bn,nij->bij", weights, counts).astype(np.int64)
    np.testing.assert_array_equal(one.replicates, overlap_scores(sums).mean_iou)
    several = bootstrap(counts * 1.0, lambda sums: sums[:, 0], resamples=50)
    assert (several.estimate.shape, several.high.shape, several.replicates.shape) == ((3,), (3,), (50, 3))
    assert several.estimate.dtype == np.float64


def test_clusters_are_drawn_together():
    values = np.repeat(np.arange(6.0)[:, None], 5, axis=0)
    clusters = [f"p{i // 5}" for i in range(30)]
    result = bootstrap(mean_columns(values), mean_of_columns, resamples=400, clusters=clusters)
    alone = bootstrap(mean_columns(np.arange(6.0)[:, None]), mean_of_columns, resamples=400)
    assert result.n_units == 6
    np.testing.assert_array_equal(result.replicates, alone.replicates)


@pytest.mark.parametrize("clusters", [None, list("aabbc")])
def test_no_columns_have_no_estimates(clusters):
    found = bootstrap(np.zeros((5, 0)), lambda sums: sums, resamples=100, clusters=clusters)
    assert found.estimate.shape == found.low.shape == (0,)


def test_undefined_values_are_left_out_and_infinite_ones_are_not():
    values = np.repeat([[1.0, np.nan, np.inf], [2.0, np.nan, 1.0], [np.nan, np.nan, 1.0]], 3, axis=0)
    result = bootstrap(mean_columns(values), mean_of_columns, resamples=20_000)
    np.testing.assert_equal(result.estimate, [1.5, np.nan, np.inf])
    np.testing.assert_equal(result.low, [1.0, np.nan, 1.0])
    np.testing.assert_equal(result.high, [2.0, np.nan, np.inf])


def test_equal_cases_have_an_interval_of_no_width():
    assert interval_of_mean(np.full((20, 1), 0.3), resamples=100) == pytest.approx((0.3, 0.3, 0.3), rel=1e-12)


@pytest.mark.parametrize(("cases", "given"), [(1, False), (4, False), (5, True)])
def test_fewer_than_five_cases_have_no_interval(cases, given):
    estimate, low, high = interval_of_mean(np.linspace(0.2, 0.7, cases)[:, None], resamples=100)
    assert np.isfinite(estimate)
    assert np.isfinite([low, high]).all() == given


def test_pools_hold_each_unit_once_and_are_equal_in_size_or_one_apart():
    pools = draw_pools(1070, 100, 3)
    assert sorted(set(np.bincount(pools))) == [10, 11]
    np.testing.assert_array_equal(draw_pools(1070, 100, 3), pools)
    assert (draw_pools(1070, 100, 4) != pools).any()


def test_few_units_are_never_pooled(monkeypatch):
    plain = interval_of_mean(SKEWED, resamples=200)
    monkeypatch.setattr(module, "MOST_UNITS", 80)
    assert interval_of_mean(SKEWED, resamples=200) == plain


def test_intervals_of_pools_are_as_wide_as_those_of_units(monkeypatch):
    """Of a mean, whose standard error is known; mutation seen to fail: pools of neighbours, in data with a trend."""
    values = np.random.default_rng(5).gamma(1.0, size=(20_000, 1)) + np.linspace(0, 4, 20_000)[:, None]
    width = 2 * 1.96 * values.std(ddof=1) / 20_000**0.5
    monkeypatch.setattr(module, "MOST_UNITS", 4_000)
    estimate, low, high = interval_of_mean(values, resamples=2000)
    assert estimate == pytest.approx(values.mean(), rel=1e-12)
    # the ends of 2000 resamples have a relative error of about 2.5 %, the variance of 4000 pools one of 2.2 %
    assert high - low == pytest.approx(width, rel=0.1)
    assert low < values.mean() < high


def test_it_is_the_interval_of_the_summary():
    rows, spec = random_rows(23, seed=4), class_spec(3)
    found = summarise(rows, spec, MetricsConfig(bootstrap=500))["per_class"]["road"]["per_case"]["iou"]
    counts = np.stack([row.counts for row in rows])
    tp = counts[:, 1, 1]
    with np.errstate(invalid="ignore"):
        values = tp / (counts[:, 1].sum(1) + counts[:, :, 1].sum(1) - tp)
    ours = mean_interval(values, resamples=500)
    assert [ours.low, ours.high] == found["ci95"]
    assert (ours.n_used, ours.n_undefined) == (found["n_used"], found["n_undefined"])
    assert ours.mean == pytest.approx(found["mean"], rel=1e-12)


def test_infinite_values_leave_no_finite_mean():
    found = mean_interval([1.0, 2.0, math.inf, 3.0, 4.0, math.nan])
    assert (found.mean, found.high, found.n_used, found.n_undefined) == (math.inf, math.inf, 5, 1)
