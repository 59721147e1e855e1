"""Plans from published figures."""

from statistics import NormalDist

import pytest

from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.summary.plan import Aims, plan_published

CONFIG, WIDTH = MetricsConfig(), Aims(width=0.04)


def test_published_figures_have_one_row_and_an_interval_only_with_their_number_of_cases() -> None:
    exact = plan_published(mean=0.78, sd=0.12, cases=None, config=CONFIG, aims=WIDTH)["rows"][0]
    known = plan_published(mean=0.78, sd=0.12, cases=40, config=CONFIG, aims=WIDTH)["rows"][0]
    assert exact["width"]["units_ci95"] is None
    assert known["width"]["units_ci95"][0] < exact["width"]["units"] < known["width"]["units_ci95"][1]


@pytest.mark.parametrize(
    ("sd", "cases", "width"),
    [(0.12, 40, 0.05), (0.05, 20, 0.02), (0.25, 100, 0.1), (0.08, 15, 0.03), (0.15, 400, 0.04)],
)
def test_a_planner_with_the_normal_distribution_agrees_within_a_tenth(sd: float, cases: int, width: float) -> None:
    aims = Aims(width=width, detect=width / 2)
    found = plan_published(mean=0.7, sd=sd, cases=cases, config=CONFIG, aims=aims)["rows"][0]
    reach, power = (NormalDist().inv_cdf(p) for p in (0.975, 0.8))
    assert 1 <= found["width"]["units"] / (2 * reach * sd / width) ** 2 < 1.1
    assert 1 <= found["power"]["units"] / ((reach + power) * 2 * sd / width) ** 2 < 1.1
