"""Tables and lines of a comparison: the scores that are shown, their p-values, and what must stand beside them."""

import pytest

from segmeter.report.differences import comparison_tables
from segmeter.report.page.comparison import markdown_summary, notes, order_lines, print_comparison, requirement_line
from tests.metrics.build import class_spec
from tests.report.test_differences import RESAMPLING, compared, ran


def test_runs_are_ranked_only_where_a_difference_can_be_told():
    told = compared(mean_iou=[0.01]) | {"n_cases": 12, "order": ["a", "b\n"], "other_orders": {"pq/mean": ["b\n", "a"]}}
    first, second = order_lines(told)
    assert first.startswith("ranked by mean IoU: a, b")
    assert second.startswith("otherwise by mean PQ: b")
    assert "\n" not in first + second
    assert len(order_lines(told | {"other_orders": {}})) == 1
    (line,) = order_lines(told | compared(mean_iou=[0.2]))
    assert line == "no difference in mean IoU can be told from 12 cases, so that the runs are not ranked"


def test_notes_say_what_was_resampled_and_what_was_left_out():
    result = {"convention": "monai", "n_cases": 12, "bootstrap": RESAMPLING, "not_shared": []}
    lines = notes(result)
    assert lines[:3] == ["convention monai", "12 cases", "95 % intervals: expanded bootstrap, 500 draws of cases"]
    assert len(lines) == 4
    grouped = RESAMPLING | {"cluster": "prefix:_", "warning": "Only 3 independent units."}
    lines = notes(result | {"bootstrap": grouped, "not_shared": ["hd95", "pq"]})
    assert lines[2].endswith("500 draws of clusters")
    assert "sign-flip test on the clusters" in lines[3]
    assert lines[4:] == ["Only 3 independent units.", "not measured in all runs: hd95, pq"]


UNKNOWN = "can't be told from 30 wards, margin +0.0100 [-0.0200, 0.0400]; {}"


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"outcome": "pass"}, "met, margin +0.0100 [-0.0200, 0.0400]; {}"),
        ({"outcome": "regression", "margin_ci95": None}, "REGRESSION, margin +0.0100; {}"),
        ({"outcome": "unknown", "n_units_needed": 12345}, f"{UNKNOWN}; about 12,345 wards like these would tell"),
        ({"outcome": "unknown"}, f"{UNKNOWN}; the interval contains the bound"),
    ],
    ids=lambda value: value["outcome"] if isinstance(value, dict) else None,
)
def test_a_requirement_is_one_line(changes, line):
    entry = {
        "require": "mean_iou >= base", "margin": 0.01, "margin_ci95": [-0.02, 0.04],
        "reason": "the interval contains the bound", "n_units": 30, "n_units_needed": None,
        "difference": 0.01, "change": "better",
    }  # fmt: skip
    said = line.format("new minus base +0.0100 better")
    assert requirement_line(entry | changes, units="wards") == f"mean_iou >= base: {said}"


def test_requirements_stand_in_80_columns_in_every_text_with_the_same_change(capsys):
    """The table was 90 columns wide, and then lacked the base. Mutation seen to fail: no column gives way."""
    result = ran(0, 0.6, require=("mean_iou >= base - 0.005", "mean_dice >= base - 0.9"))
    print_comparison(result)
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 80
    first = result["gate"]["requirements"][0]
    (table, *_) = comparison_tables(result).values()
    assert {"base", "new", "margin", "outcome"} <= {*table.heads}
    for shown in (text.splitlines(), markdown_summary(result).splitlines(), [" ".join(table.rows[0])]):
        (line,) = (line for line in shown if "0.005" in line and "iou" in line)
        assert f"{first['difference']:+.4f} worse" in line
        assert "REGRESSION" in line


def test_names_are_printed_as_they_are_in_80_columns_and_escaped_in_markdown(capsys):
    spec = class_spec().replace(names=("sky", "[bold]x", "car"))
    result = ran(0, 0.4, names=("[red]base[/red]", "new\x1b[2J"), spec=spec)
    print_comparison(result)
    text = capsys.readouterr().out
    assert "(new) minus [red]base[/red] (base)" in text
    assert "IoU of [bold]x" in text
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) <= 80
    assert r"IoU of \[bold\]x" in markdown_summary(result)
