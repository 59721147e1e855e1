"""Rankings by plain loops and by SciPy's tau; ties share places, and undefined scores are last."""

import numpy as np
import pytest
from scipy.stats import kendalltau

from segmeter.metrics.statistics.bootstrap import bootstrap
from segmeter.metrics.statistics.paired_tests import rank_values


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
