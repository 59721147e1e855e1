"""Paired tests against SciPy, enumeration and hand-worked cases; rankings by plain loops and by SciPy's tau."""

from itertools import product

import numpy as np
import pytest
from scipy import stats
from scipy.stats import kendalltau

from segmeter.metrics.statistics import columns
from segmeter.metrics.statistics import paired_tests as module
from segmeter.metrics.statistics.bootstrap import bootstrap
from segmeter.metrics.statistics.columns import to_grid
from segmeter.metrics.statistics.paired_tests import exchanged, holm, rank_values, sign_flip, wilcoxon

NAN = np.nan


def pair(n, shift=0.0, seed=0):
    rng = np.random.default_rng(seed)
    second = rng.normal(size=n)
    return second + shift + rng.normal(size=n), second


def test_wilcoxon_by_hand_and_with_equal_pairs_and_ties():
    # of the 2^3 sign patterns only +++ and --- are as extreme: 2 / 8
    result = wilcoxon([0.9, 0.8, 0.7], [0.8, 0.6, 0.2])
    assert (result.p_value, result.exact) == (pytest.approx(0.25, rel=1e-12), True)
    result = wilcoxon([1.0, 2, 3, 4, 5, 6, 7], [1.0, 1, 2, 3, 4, 8, 7])  # differences 0 1 1 1 1 -2 0
    expected = stats.wilcoxon([1, 1, 1, 1, -2], method="approx").pvalue
    assert (result.p_value, result.n_used, result.exact) == (pytest.approx(expected, rel=1e-12), 7, False)


def test_wilcoxon_ranks_infinite_differences_above_all_others():
    # 1 and -1 infinite: the same ranks as with any size above 9, and they tie
    first = np.array([1.0, 2.5, 9.0, np.inf, 4.0, np.inf, 3.0])
    second = np.array([0.0, 0.0, 0.0, 0.0, np.inf, np.inf, 3.5])
    found = wilcoxon(first, second)
    finite = wilcoxon(np.array([1.0, 2.5, 9.0, 100.0, 0.0, 0.0, 3.0]), np.array([0, 0, 0, 0, 100, 0, 3.5]))
    assert (found.p_value, found.n_used) == (finite.p_value, 7)
    assert wilcoxon(np.full(5, np.inf), np.zeros(5)).p_value < 0.1


@pytest.mark.parametrize("test", [wilcoxon, sign_flip])
def test_equal_models_and_no_pair_give_a_p_value_of_1_and_tests_are_two_sided(test):
    values, (first, second) = np.array([0.5, 0.6, NAN, np.inf]), pair(30, 0.5)
    for given, used in ((test(values, values), 3), (test(np.array([NAN]), np.array([0.5])), 0)):
        assert (given.p_value, given.n_used, given.n_undefined) == (1.0, used, 1)
    assert test(first, second) == test(second, first)


@pytest.mark.parametrize("n", [1023, 1024, 5000])
def test_sign_flip_of_more_pairs_than_a_float_has_powers_of_two(n):
    first = np.random.default_rng(n).normal(0.5, 1, n)
    found = sign_flip(first, np.zeros(n), resamples=50)
    assert (found.p_value, found.n_used, found.exact) == (1 / 51, n, False)


@pytest.mark.parametrize(("resamples", "exact"), [(31, False), (32, True), (33, True)])
def test_sign_flip_is_exact_where_all_signs_are_no_more_than_the_resamples(resamples, exact):
    assert sign_flip(np.arange(1.0, 6), np.zeros(5), resamples=resamples).exact == exact


def test_sign_flip_counts_equal_sums_as_equal():
    # 0.1 + 0.2 - 0.3 is not 0 in floating point: sums must tie as the true ones do. Differences .1 .2 .3:
    # |sum| >= .6 only for +++ and ---
    assert sign_flip([0.1, 0.2, 0.3], np.zeros(3)).p_value == 2 / 8
    # differences .1 .1 .1 -.1: |sum| >= .2 for all but the 6 balanced patterns of 16
    assert sign_flip([0.1, 0.1, 0.1, -0.1], np.zeros(4)).p_value == 10 / 16
    first, second = np.array([0.42, 0.25, 0.80, 0.09]), np.array([0.19, 0.18, 0.87, 0.25])
    # 0.23, 0.07, -0.07 and -0.16, but for their last bits: no sum is smaller than 0.07
    assert abs(first - second)[1] != abs(first - second)[2]
    assert sign_flip(first, second).p_value == 1


def test_sign_flip_of_pools_agrees_with_that_of_pairs(monkeypatch):
    """In data with a trend; mutation seen to fail: pools of neighbours, of which p is 0.33."""
    first, second = pair(4000, 0.03)
    first += 2 * np.sin(np.linspace(0, 6.283, 4000))
    one = sign_flip(first, second).p_value
    monkeypatch.setattr(columns, "MOST_UNITS", 1000)
    # both have a standard error of 0.003 at most; the variance of 1000 pools has a relative error of 4.5 %
    assert sign_flip(first, second).p_value == pytest.approx(one, abs=0.02)
    assert 0.05 < one < 0.15


def test_sign_flip_never_gives_0_and_repeats_for_a_seed():
    first = np.arange(1.0, 101)
    assert sign_flip(first, np.zeros(100), resamples=99).p_value == 1 / 100
    noisy = pair(70, 0.1)
    assert sign_flip(*noisy, resamples=500, seed=4) == sign_flip(*noisy, resamples=500, seed=4)
    assert sign_flip(*noisy, resamples=500, seed=4) != sign_flip(*noisy, resamples=500, seed=5)


def test_holm_by_hand():
    # sorted .01 .02 .04 .5: x4 .04, x3 .06, x2 .08, x1 .5
    np.testing.assert_allclose(holm([0.04, 0.01, 0.5, 0.02]), [0.08, 0.04, 0.5, 0.06], rtol=1e-12)
    np.testing.assert_array_equal(holm([0.6, 0.7]), [1, 1])
    np.testing.assert_allclose(holm([0.01, 0.011]), [0.02, 0.02], rtol=1e-12)  # never below a smaller one
    assert holm([]).shape == (0,)


@pytest.mark.parametrize("compiled", [False, True])
def test_sign_flips_are_one_product_with_all_signs(compiled, monkeypatch):
    """Mutation seen to fail: signs of a byte in the order of its bits' values."""
    rng = np.random.default_rng(0)
    first, second = rng.random((101, 2)), rng.random((101, 2)) + np.array([0, 0.05])
    second[5, 1] = np.nan
    monkeypatch.setattr(module, "_WORDS", 16)
    monkeypatch.setattr(module, "_MANY_BYTES", 0 if compiled else 1 << 60)
    for column in range(2):
        found = sign_flip(first[:, column], second[:, column], resamples=500, seed=3)
        used = ~np.isnan(second[:, column])
        difference = to_grid((first - second)[used, column])
        words = np.random.PCG64(3).random_raw(500 * 2).astype("<u8").view(np.uint8).reshape(500, -1)
        signs = 2.0 * np.unpackbits(words, axis=1)[:, : len(difference)] - 1
        hits = (np.abs(signs @ difference) >= abs(difference.sum()) * (1 - 1e-12)).sum()
        assert found.p_value == (hits + 1) / 501


def test_exchanging_readers_gives_the_share_of_all_assignments_and_ranks_stand_in_for_infinity() -> None:
    values = np.array([[-0.3, 0.1, 0.2], [-0.1, 0.2, -0.1], [-0.2, 0.1, 0.1], [0.1, -0.3, 0.2]])
    sums = np.array([values[np.arange(4), list(places)].sum() for places in product(range(3), repeat=4)])
    exact = [(sums <= total + 1e-9).mean() for total in values.sum(axis=0)]
    assert exchanged(values, resamples=100_000) == pytest.approx(exact, abs=0.006)
    endless = np.where(values == -0.3, -np.inf, values)
    assert exchanged(endless)[0] == exchanged(stats.rankdata(endless, axis=1))[0]
    assert exchanged(np.full((3, 2), np.nan)).tolist() == [1, 1]


def mean(sums):
    return sums[:, :1] / sums[:, 1:]


def rank_models(columns, statistic=mean, **options):
    """Rank models by a statistic of their columns (N, C), resampled by the same cases; with the resamples' scores."""
    drawn = [bootstrap(part, statistic, **options) for part in columns]
    replicates = np.stack([each.replicates for each in drawn], 1)
    return rank_values(np.stack([each.estimate for each in drawn]), replicates), replicates[..., 0]


def columns_of(scores):
    return [np.stack([values, np.ones(len(values))], axis=1) for values in scores.T]


def test_shares_are_those_of_a_plain_loop_and_stability_is_the_mean_kendall_tau():
    scores = np.random.default_rng(7).normal([0.0, 0.3, 0.2, 0.1], 1, (25, 4))
    ranking, drawn = rank_models(columns_of(scores), resamples=200, seed=3)
    shares = np.zeros((4, 4))
    for row in drawn:
        for place, model in enumerate(np.argsort(-row)):
            shares[model, place] += 1 / 200
    np.testing.assert_allclose(ranking.rank_shares, shares, rtol=1e-12)
    np.testing.assert_array_equal(ranking.order, np.argsort(-scores.mean(axis=0)))
    taus = [kendalltau(-row, ranking.ranks).statistic for row in drawn]
    assert ranking.stability == pytest.approx(np.mean(taus), rel=1e-12)
    assert ranking.stability < 0.9


def test_models_that_tie_share_the_places_that_they_cover():
    # values 9 5 5 5 1 in every case: the three in the middle share the places 2 to 4
    columns = [np.array([[value, 1.0]] * 4) for value in (9, 5, 5, 5, 1)]
    ranking, _ = rank_models(columns, resamples=10)
    np.testing.assert_array_equal(ranking.ranks, [1, 3, 3, 3, 5])
    third = [0, 1 / 3, 1 / 3, 1 / 3, 0]
    expected = [[1, 0, 0, 0, 0], third, third, third, [0, 0, 0, 0, 1]]
    np.testing.assert_allclose(ranking.rank_shares, expected, rtol=1e-12)
    assert ranking.stability == pytest.approx(1, rel=1e-12)


def test_stability_allows_for_ties_in_the_resamples():
    hits = np.array([[1, 1, 1, 1, 0, 0], [1, 1, 0, 0, 1, 0], [0, 1, 0, 0, 0, 1.0], [1, 0, 0, 0, 0, 0]])
    ranking, drawn = rank_models(columns_of(hits.T), resamples=80, seed=1)
    taus = [kendalltau(-row, ranking.ranks).statistic for row in drawn if np.ptp(row)]
    assert any(len(set(row)) < 4 for row in drawn)
    assert ranking.stability == pytest.approx(np.mean(taus), rel=1e-12)


def test_an_undefined_score_ranks_last():
    columns = [np.array([[0.0, 0.0]] * 3), np.array([[-5.0, 1.0]] * 3)]

    def statistic(sums):
        return np.where(sums[:, 1:] == 0, np.nan, sums[:, :1])

    np.testing.assert_array_equal(rank_models(columns, statistic, resamples=20)[0].order, [1, 0])
