"""The page and the terminal of a decision."""

from typing import Any

import pytest

from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.summary.plan import Aims, plan_published
from segmeter.report.decisions import Shown, print_shown, show_plan, show_tuned


def shown(**aims: float) -> Shown:
    return show_plan(plan_published(mean=0.78, sd=0.12, cases=40, config=MetricsConfig(), aims=Aims(**aims)))


def test_each_aim_has_its_table_and_its_chart() -> None:
    both = shown(width=0.05, detect=0.03)
    titles = [table.title.partition(":")[0] for table in both.tables]
    assert titles == ["95 % interval of width 0.05", "difference of 0.03 told with power 0.8"]
    assert [chart.svg()[:4] for _, chart in both.charts] == ["<svg"] * 2
    (line,) = both.tables[0].rows
    assert line[3:5] == ["93", "[62, 149]"]
    plan = plan_published(mean=0.78, sd=0.12, cases=None, config=MetricsConfig(), aims=Aims(width=0.05))
    assert "counts as exact" in show_plan(plan).notes[0]  # a spread without its cases


@pytest.mark.parametrize("cluster", [None, "prefix:_"], ids=["cases", "clusters"])
def test_a_plan_fits_80_columns(cluster: str | None, capsys: pytest.CaptureFixture[str]) -> None:
    aims = Aims(width=0.001, detect=0.001)
    plan = plan_published(mean=0.78, sd=0.12, cases=40, config=MetricsConfig(), aims=aims)
    (row,) = plan["rows"]
    result = {**plan, "rows": [row | {"score": "iou/nucleus"}], "cluster": cluster}
    for aim in ("width", "power"):
        row[aim] |= {"cases": 123_456}
    print_shown(show_plan(result), {})
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80


def tuned(**more: Any) -> dict[str, Any]:
    tried = []
    for t, s, score in (("0.4", "0", 0.6), ("0.5", "0", 0.5), ("0.4", "8", 0.55), ("0.5", "8", 0.45)):
        found = {"score": score, "ci95": [score - 0.1, score + 0.1], "gain": score - 0.5, "share": 0.25}
        tried.append({"values": {"threshold": t, "size": s}, **found})
    known = {"gain": 0.1, "optimism": 0.02, "corrected_gain": 0.08, "gain_ci95": [0.01, 0.2], "score": 0.58}
    known |= {"score_ci95": [0.5, 0.66], "chosen": 0, "usual": 1, "n_cases": 20, "split": "val", "kind": "dataset"}
    return {"by": "iou/cell", "better": "higher", "settings": tried, **known, **more}


def test_a_tuning_shows_the_chosen_setting_first_and_a_curve_of_those_alike() -> None:
    found = show_tuned(tuned())
    assert found.tables[0].rows[0][:3] == ["0.4", "0", "chosen"]
    ((caption, chart),) = found.charts
    assert [[*curve.points] for curve in chart.curves] == [[(0.4, 0.6), (0.5, 0.5)]]
    assert caption.startswith("IoU of cell by threshold, the other keys as chosen.")
    assert not any("can't tell" in note for note in found.notes)
    result = tuned()
    for one, value in zip(result["settings"], ("no", "yes", "no", "yes"), strict=True):
        one["values"] = {"largest_component": value}
    assert show_tuned(result).charts == []  # without numbers there is no curve


def test_a_gain_whose_interval_holds_0_is_called_undecided() -> None:
    assert any("can't tell" in note for note in show_tuned(tuned(gain_ci95=[-0.1, 0.2])).notes)
    assert "Too few cases" in show_tuned(tuned(gain_ci95=[None, None])).notes[-1]
    assert "usual setting is the best" in show_tuned(tuned(chosen=1, gain=0.0, gain_ci95=[0.0, 0.0])).notes[-1]
    few = show_tuned(tuned(chosen=1, gain=0.0, gain_ci95=[None, None])).notes[-1]
    assert few == "The usual setting is the best of them. Too few cases for an interval."


def test_a_gain_is_corrected_only_where_it_has_an_interval() -> None:
    few = show_tuned(tuned(corrected_gain=-0.00001, gain_ci95=[None, None], score_ci95=[None, None])).notes
    assert few[0] == "gain over the usual setting +0.1000"
    assert not any("corrected" in note for note in few)
    assert show_tuned(tuned(corrected_gain=-0.00001)).notes[0].endswith("corrected +0.0000 [0.0100, 0.2000]")
