"""Plans from published figures."""

from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.summary.plan import Aims, plan_published

CONFIG, WIDTH = MetricsConfig(), Aims(width=0.04)


def test_published_figures_have_one_row_and_an_interval_only_with_their_number_of_cases() -> None:
    exact = plan_published(mean=0.78, sd=0.12, cases=None, config=CONFIG, aims=WIDTH)["rows"][0]
    known = plan_published(mean=0.78, sd=0.12, cases=40, config=CONFIG, aims=WIDTH)["rows"][0]
    assert exact["width"]["units_ci95"] is None
    assert known["width"]["units_ci95"][0] < exact["width"]["units"] < known["width"]["units_ci95"][1]
