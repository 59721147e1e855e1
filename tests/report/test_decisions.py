"""The page and the terminal of a decision."""

from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.summary.plan import Aims, plan_published
from segmeter.report.decisions import Shown, decision_values, show_plan


def shown(**aims: float) -> Shown:
    return show_plan(plan_published(mean=0.78, sd=0.12, cases=40, config=MetricsConfig(), aims=Aims(**aims)))


def test_each_aim_has_its_table_and_its_chart() -> None:
    both = shown(width=0.05, detect=0.03)
    assert [table.title.partition(":")[0] for table in both.tables] == [
        "95 % interval of width 0.05",
        "difference of 0.03 told with power 0.8",
    ]
    assert len(both.charts) == 2
    (line,) = both.tables[0].rows
    assert line[3:5] == ["93", "[62, 149]"]


def test_the_page_links_only_to_sections_that_it_has() -> None:
    values = decision_values(shown(width=0.05))
    assert [name for name, _ in values["sections"]] == ["answer", "curves", "objections", "run"]
    assert "<svg" in values["charts"][0][1]


def test_a_spread_without_its_cases_is_noted() -> None:
    plan = plan_published(mean=0.78, sd=0.12, cases=None, config=MetricsConfig(), aims=Aims(width=0.05))
    assert "counts as exact" in show_plan(plan).notes[0]
