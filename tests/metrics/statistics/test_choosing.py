"""Choosing the best of several settings, and what the choice adds to its score."""

import numpy as np
import pytest
from numpy.typing import NDArray

from segmeter.metrics.statistics.columns import Columns, mean_columns, mean_of_columns
from segmeter.metrics.summary.tune import Choice, choose, fold_sums


def held_sums(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.stack([fold_sums(Columns.of(mean_columns(column[:, None])), 0) for column in values.T])


def chosen(values: NDArray[np.float64], *, higher: bool = True, usual: int = 0, resamples: int = 800) -> Choice:
    """Choose by the means of cases (N, S), with multinomial resamples."""
    rng, count = np.random.default_rng(1), len(values)
    weights = rng.multinomial(count, np.full(count, 1 / count), size=resamples) / count
    options = {"usual": usual, "simplicity": range(values.shape[1]), "higher_is_better": higher, "n_units": count}
    return choose(values.mean(axis=0), weights @ values, held_sums(values), mean_of_columns, **options)


def test_the_best_is_chosen_in_the_better_direction() -> None:
    values = np.array([0.5, 0.7, 0.6]) + np.random.default_rng(0).normal(0, 0.01, (30, 1))
    assert chosen(values).chosen == 1
    assert chosen(values, higher=False).chosen == 0
    assert chosen(values, usual=2).gain == pytest.approx(0.1)
    assert chosen(values, higher=False, usual=2).gain == pytest.approx(0.1)


def test_of_equal_settings_the_simplest_is_chosen_and_nothing_is_gained() -> None:
    values = np.repeat(np.random.default_rng(0).random((30, 1)), 4, axis=1)
    found = chosen(values + np.array([0, 0, 1e-15, 0]))
    assert (found.chosen, found.gain, found.optimism) == (0, 0, pytest.approx(0, abs=1e-12))
    assert found.shares.tolist() == [1, 0, 0, 0]
    assert found.gain_ci95 == (0, 0)


def test_choosing_among_equal_settings_is_corrected() -> None:
    """All settings are equal but for chance: the gain is all optimism, which is told without bias."""
    drawn = (np.random.default_rng(seed).normal(0.8, 0.05, (30, 12)) for seed in range(60))
    found = [chosen(values, resamples=300) for values in drawn]
    assert sum(one.gain_ci95[0] <= 0 <= one.gain_ci95[1] for one in found) >= 0.93 * 60
    assert abs(np.mean([one.corrected_gain for one in found])) < 0.15 * np.mean([one.gain for one in found])


def test_a_setting_that_leads_keeps_its_gain() -> None:
    values = np.random.default_rng(3).normal(0.8, 0.02, (40, 5))
    values[:, 3] += 0.1
    found = chosen(values)
    assert found.chosen == 3
    assert found.optimism < 0.005
    assert 0 < found.gain_ci95[0] < 0.1 < found.gain_ci95[1]
    assert found.score_ci95[0] < found.score < found.score_ci95[1]


def test_undefined_settings_are_never_chosen_and_few_cases_have_no_interval() -> None:
    values = np.random.default_rng(0).random((4, 3))
    values[:, 2] = np.nan
    found = chosen(values)
    assert found.chosen != 2
    assert np.isnan(found.gain_ci95).all()


def test_resamples_without_the_score_tell_no_error() -> None:
    values = np.array([0.5, 0.7, 0.6]) + np.random.default_rng(0).normal(0, 0.1, (30, 3))
    drawn = np.repeat(values, 20, axis=0)
    options = {"usual": 0, "simplicity": range(3), "higher_is_better": True, "n_units": 30}
    without, found = (
        choose(values.mean(axis=0), replicates, held_sums(values), mean_of_columns, **options)
        for replicates in (drawn, np.concatenate([drawn, np.full((5, 3), np.nan)]))
    )
    for name in ("gain", "optimism", "gain_ci95", "score", "score_ci95"):
        assert getattr(found, name) == getattr(without, name)


@pytest.mark.parametrize("lost", [np.nan, np.inf])
def test_a_usual_setting_without_a_finite_score_leaves_no_gain(lost: float) -> None:
    values = np.array([5.0, 3.0, 4.0]) + np.random.default_rng(0).normal(0, 0.1, (30, 3))
    estimates, replicates = values.mean(axis=0), values.copy()
    estimates[0] = replicates[:, 0] = lost
    values[:, 0] = lost
    options = {"usual": 0, "simplicity": range(3), "higher_is_better": False, "n_units": 30}
    found = choose(estimates, replicates, held_sums(values), mean_of_columns, **options)
    assert found.chosen == 1
    assert np.isnan([found.gain, found.corrected_gain, found.optimism, *found.gain_ci95]).all()
    assert found.score_ci95[0] < found.score < found.score_ci95[1]
    assert found.score == pytest.approx(3, abs=0.1)
