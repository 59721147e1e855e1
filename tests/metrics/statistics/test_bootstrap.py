"""Intervals: exact sums, the same bits for a seed, agreement with SciPy, and honest edges."""

import math

import numpy as np
import pytest

from segmeter.errors import InputError
from segmeter.metrics.arrays import divide
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.pixels.overlap import overlap_scores
from segmeter.metrics.statistics import columns as module
from segmeter.metrics.statistics.bootstrap import bootstrap, mean_interval
from segmeter.metrics.statistics.columns import draw_pools, mean_columns, mean_of_columns, to_grid
from segmeter.metrics.summary.summarise import summarise
from tests.metrics.build import class_spec, random_rows
from tests.metrics.statistics.test_columns import all_weights

SKEWED = np.random.default_rng(1).gamma(1.0, size=(80, 1))


def interval_of_mean(values, **options):
    result = bootstrap(mean_columns(values), mean_of_columns, **options)
    return result.estimate[0], result.low[0], result.high[0]


def test_replicates_equal_those_of_a_plain_loop():
    rng = np.random.default_rng(0)
    counts = rng.integers(0, 50, (12, 4, 4))
    columns = np.stack([np.trace(counts, axis1=1, axis2=2), counts.sum((1, 2))], axis=1)
    result = bootstrap(columns, lambda sums: sums[:, :1] / sums[:, 1:], resamples=50, seed=9)
    for weights, replicate in zip(all_weights(12, 50, 9), result.replicates[:, 0], strict=True):
        drawn = [i for i in range(12) for _ in range(int(weights[i]))]
        total = sum(counts[i] for i in drawn)
        assert replicate == np.trace(total) / total.sum()


def test_percentile_interval_is_made_of_order_statistics():
    result = bootstrap(SKEWED, lambda sums: sums / 80, resamples=999, interval="percentile")
    ranked = np.sort(result.replicates[:, 0])
    assert result.low[0] == ranked[24]  # floor(0.025 * 998)
    assert result.high[0] == ranked[974]  # ceil(0.975 * 998)


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
def test_fewer_than_five_cases_or_five_that_hold_a_class_have_no_interval(cases, given):
    estimate, low, high = interval_of_mean(np.linspace(0.2, 0.7, cases)[:, None], resamples=100)
    assert np.isfinite(estimate)
    assert np.isfinite([low, high]).all() == given
    columns = np.zeros((40, 2), np.int64)
    columns[:cases] = np.array([[3, 9], [5, 7], [2, 8], [6, 9], [4, 5]])[:cases]
    found = bootstrap(columns, lambda sums: divide(sums[:, 0], sums[:, 1]), resamples=200)
    assert np.isfinite(found.estimate)
    assert np.isfinite([found.low, found.high]).all() == given


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        (np.empty((0, 2)), {}, r"`columns` to be finite numbers \(N >= 1, \.\.\.\), got float64 \(0, 2\)"),
        (np.array([[np.nan]]), {}, "`columns` to be finite"),
        (np.ones(3), {}, "`columns` to be finite"),
        (np.array([["a"]]), {}, "`columns` to be finite numbers"),
        (np.ones((3, 1)), {"resamples": 0}, "`resamples` between 1 and 100000000, got 0"),
        (np.ones((3, 1)), {"level": 1.0}, r"`level` between 0 and 1, got 1\.0"),
        (np.ones((3, 1)), {"clusters": ["a"]}, "to be 3 labels, a text or an integer per case, got"),
    ],
)
def test_refusals(columns, options, message):
    with pytest.raises(InputError, match=message):
        bootstrap(columns, lambda sums: sums, **options)


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


@pytest.mark.parametrize(
    "values", [[], [[0.5]], "abc", ["a"], [None, 1.0], [1j], 5, [[1], [1, 2]], np.ma.masked_array([1.0])], ids=str
)
def test_what_is_no_number_per_case_is_refused(values):
    with pytest.raises(InputError, match="mean_interval: expected `values` to be one number per case"):
        mean_interval(values)
