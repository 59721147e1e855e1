"""Plans from published figures; the best of several settings, and what the choice adds to its score."""

from pathlib import Path
from statistics import NormalDist

import numpy as np
import pytest
from numpy.typing import NDArray

from segmeter.files import write_json
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.statistics.columns import Columns, mean_columns, mean_of_columns
from segmeter.metrics.summary.needed_cases import Aims, plan_published
from segmeter.metrics.summary.scoreboard import Scoreboard, build_scoreboard
from segmeter.metrics.summary.tune import Choice, choose, fold_sums, tune_boards
from segmeter.report.decisions import show_tuned
from tests.data.crafted import BINARY
from tests.metrics.build import case_row


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


CONFIG = MetricsConfig(bootstrap=1000)


def board(missed: int, config: MetricsConfig = CONFIG) -> Scoreboard:
    """Twelve cases of 100 pixels, of which some are missed."""
    counts = [np.array([[400, 0], [missed + i % 3, 100 - missed - i % 3]]) for i in range(12)]
    rows = [case_row(f"p{i // 2}_{i:02}", each) for i, each in enumerate(counts)]
    return build_scoreboard(rows, BINARY, config)


@pytest.mark.parametrize("cluster", [None, "prefix:_"])
def test_the_best_board_is_chosen_and_compared_with_the_usual_one(cluster: str | None) -> None:
    config = CONFIG.replace(cluster=cluster)
    options = {"by": "iou/cell", "usual": 0, "simplicity": [(i,) for i in range(3)], "split": "val"}
    boards = [board(missed, config) for missed in (20, 5, 10)]
    found = tune_boards(boards, [{"k": str(i)} for i in range(3)], **options)
    assert (found["chosen"], found["kind"], found["n_units"]) == (1, "dataset", 6 if cluster else 12)
    assert found["gain"] == pytest.approx(0.15)
    assert found["settings"][0]["gain"] == 0
    assert found["gain_ci95"][0] > 0
    assert found["settings"][1]["share"] == 1


def test_a_class_in_few_cases_gives_numbers_that_json_can_hold(tmp_path: Path) -> None:
    """Resamples without the one case that has the class have no score; a setting that finds nothing has none at all."""
    boards = []
    for tp, fp in ((90, 0), (80, 0)):
        counts = [np.array([[400, 0], [0, 0]])] * 5 + [np.array([[400 - fp, fp], [100 - tp, tp]])]
        rows = [case_row(f"c{i}", each) for i, each in enumerate(counts)]
        boards.append(build_scoreboard(rows, BINARY, CONFIG))
    options = {"by": "iou/cell", "usual": 1, "simplicity": [(0,), (1,)], "split": "val"}
    found = tune_boards(boards, [{"k": "0"}, {"k": "1"}], **options)
    write_json(tmp_path / "tune.json", found)
    assert (found["chosen"], found["gain"], found["optimism"]) == (0, pytest.approx(0.1), pytest.approx(0))
    assert found["gain_ci95"] == found["score_ci95"] == [None, None]
    assert found["score"] == pytest.approx(0.9)
    assert "[" not in show_tuned(found).notes[0]


def test_published_figures_have_one_row_and_an_interval_only_with_their_number_of_cases() -> None:
    exact = plan_published(mean=0.78, sd=0.12, cases=None, config=MetricsConfig(), aims=Aims(width=0.04))["rows"][0]
    known = plan_published(mean=0.78, sd=0.12, cases=40, config=MetricsConfig(), aims=Aims(width=0.04))["rows"][0]
    assert exact["width"]["units_ci95"] is None
    assert known["width"]["units_ci95"][0] < exact["width"]["units"] < known["width"]["units_ci95"][1]


@pytest.mark.parametrize(
    ("sd", "cases", "width"),
    [(0.12, 40, 0.05), (0.05, 20, 0.02), (0.25, 100, 0.1), (0.08, 15, 0.03), (0.15, 400, 0.04)],
)
def test_a_planner_with_the_normal_distribution_agrees_within_a_tenth(sd: float, cases: int, width: float) -> None:
    aims = Aims(width=width, detect=width / 2)
    found = plan_published(mean=0.7, sd=sd, cases=cases, config=MetricsConfig(), aims=aims)["rows"][0]
    reach, power = (NormalDist().inv_cdf(p) for p in (0.975, 0.8))
    assert 1 <= found["width"]["units"] / (2 * reach * sd / width) ** 2 < 1.1
    assert 1 <= found["power"]["units"] / ((reach + power) * 2 * sd / width) ** 2 < 1.1
