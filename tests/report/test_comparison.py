"""Tables and lines of a comparison: the scores that are shown, their p-values, and what must stand beside them."""

import re

import numpy as np
import pytest

from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.summary.compare import compare_runs
from segmeter.report.comparison import markdown_summary, notes, order_lines, print_comparison, requirement_line
from segmeter.report.differences import adjusted, comparison_tables, shown_metrics
from tests.metrics.build import case_row, class_spec, random_rows
from tests.metrics.summary.test_compare import spoil

RESAMPLING = {"interval": "expanded", "resamples": 500, "cluster": None, "warning": None}


def compared(**metrics):
    """Metrics by name, with the p-values of their pairs."""
    pairs = {name.replace("__", "/"): [{"sign_flip_p_holm": p} for p in ps] for name, ps in metrics.items()}
    entries = {name: {"pairs": each} for name, each in pairs.items()}
    return {"rank_by": next(iter(entries)), "metrics": entries}


def test_the_first_test_that_has_a_value_is_shown():
    ps = {"sign_flip_p_holm": 0.25, "wilcoxon_p_holm": 0.5, "dataset_p_holm": 0.75}
    assert adjusted(ps) == 0.25
    assert adjusted(ps | {"sign_flip_p_holm": None}) == 0.5
    assert adjusted({"dataset_p_holm": 0.75}) == 0.75
    assert adjusted({"sign_flip_p": 0.01}) is None  # not adjusted


def test_the_scores_that_matter_most_are_shown():
    """A p-value may be 0, as Wilcoxon's is with thousands of cases."""
    result = compared(iou__a=[0.5], mean_iou=[0.9], iou__b=[0.0], iou__c=[0.9, 0.049], iou__d=[0.05], iou__e=[None])
    assert shown_metrics(result, 4) == (["iou/a", "mean_iou", "iou/b", "iou/c"], 2)
    assert shown_metrics(result, 9)[1] == 0
    binary = compared(pq__cell=[0.5], pq__mean=[0.5], hd95__cell=[0.5], hd95__mean=[0.5], mean_iou=[0.5])
    assert shown_metrics(binary, 9)[0] == ["pq/cell", "mean_iou", "hd95/cell"], "the mean of one class repeats it"


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


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"outcome": "pass"}, "met, margin +0.0100 [-0.0200, 0.0400]; {}"),
        ({"outcome": "regression", "margin_ci95": None}, "REGRESSION, margin +0.0100; {}"),
        (
            {"outcome": "unknown", "n_units_needed": 12345},
            "can't be told from 30 wards, margin +0.0100 [-0.0200, 0.0400]; {}; "
            "about 12,345 wards like these would tell",
        ),
        (
            {"outcome": "unknown"},
            "can't be told from 30 wards, margin +0.0100 [-0.0200, 0.0400]; {}; the interval holds the bound",
        ),
    ],
    ids=lambda value: value["outcome"] if isinstance(value, dict) else None,
)
def test_a_requirement_is_one_line(changes, line):
    entry = {
        "require": "mean_iou >= base", "margin": 0.01, "margin_ci95": [-0.02, 0.04],
        "reason": "the interval holds the bound", "n_units": 30, "n_units_needed": None,
        "difference": 0.01, "change": "better",
    }  # fmt: skip
    said = line.format("new minus base +0.0100 better")
    assert requirement_line(entry | changes, units="wards") == f"mean_iou >= base: {said}"


ROWS = random_rows(12)
REST = {
    "convention": "segmeter",
    "rank_by": "mean_iou",
    "order": ["base", "new"],
    "other_orders": {},
    "bootstrap": RESAMPLING,
}


def ran(*shares, names=("base", "new", "third"), spec=None, require=(), **options):
    runs = {name: spoil(ROWS, share) if share else ROWS for name, share in zip(names, shares, strict=False)}
    config = MetricsConfig(bootstrap=1000, **options)
    return compare_runs(runs, spec or class_spec(), config, require=require) | REST


def test_a_pair_has_a_ranking_and_ten_scores():
    result = ran(0, 0.4)
    bars = comparison_tables(result)["ranking"].rows[0][4]
    assert sum(map(float, re.findall(r' width="([\d.]+)"', bars))) == pytest.approx(100, abs=0.02)
    ranking, differences = (table.narrow() for table in comparison_tables(result).values())
    assert [row[:2] for row in ranking.rows] == [["base", "1"], ["new", "2"]]
    assert ranking.rows[0][-1] == f"{100 * result['metrics']['mean_iou']['ranking']['rank_shares']['base'][0]:.1f} %"
    assert differences.title == "new (new) minus base (base)"
    assert [row[0] for row in differences.rows[:3]] == ["mean IoU", "mean Dice", "pixel accuracy"]
    pair = result["metrics"]["mean_iou"]["pairs"][0]
    low, high = pair["dataset_ci95"]
    assert differences.rows[0][3:5] == [f"{pair['dataset_difference']:+.4f} worse", f"[{low:.3f}, {high:.3f}]"]
    assert len(differences.rows) == 10
    assert differences.note == f"{len(result['metrics']) - 10} more in compare.json and compare.html."


def test_runs_that_are_alike_have_no_ranking():
    assert [table.title for table in comparison_tables(ran(0, 0)).values()] == ["new (new) minus base (base)"]


def test_three_runs_have_a_row_per_pair():
    pairs = comparison_tables(ran(0, 0.2, 0.5))["differences"]
    assert pairs.title == "mean IoU, new minus base"
    assert [row[:2] for row in pairs.rows] == [
        ["mean IoU", f"{one}"] for one in ("base, new", "base, third", "new, third")
    ]


def test_infinite_changes_have_their_sign_and_counts_are_whole_numbers():
    scores = {"hd95/car": (2.0, np.inf), "fn/car": (7.0, 3.0)}
    near, lost = (
        [case_row(row.case_id, row.counts, scores={name: pair[side] for name, pair in scores.items()}) for row in ROWS]
        for side in range(2)
    )
    result = compare_runs({"base": near, "new": lost}, class_spec(), MetricsConfig(bootstrap=200)) | REST
    rows = {row[0]: row[1:] for row in comparison_tables(result | {"rank_by": "hd95/car"})["differences"].rows}
    assert [*rows["HD95 of car"][:3], rows["HD95 of car"][4]] == ["2.0000", "inf in 12", "+inf worse", "[inf, inf]"]
    rows = {row[0]: row[1:] for row in comparison_tables(result | {"rank_by": "fn/car"})["differences"].rows}
    assert [*rows["fn of car"][:3], rows["fn of car"][4]] == ["7", "3", "-4 better", "[-4, -4]"]


def test_slices_and_requirements_have_tables_of_their_own():
    result = ran(0, 0.6, slice_by=(r"(\d)$",), require=("mean_iou >= base - 0.5", "mean_iou >= base"))
    required, *_, slices = (table.narrow() for table in comparison_tables(result).values())
    assert slices.title == "mean IoU by slice: new (new) minus base (base)"
    entries = result["slices"][0]["by"][r"(\d)$"]
    assert [row[:3] for row in slices.rows] == [[r"(\d)$", label, str(entry["n"])] for label, entry in entries.items()]
    assert sum(entry["n"] for entry in entries.values()) == 12
    assert [row[0] for row in required.rows] == ["mean_iou >= base - 0.5", "mean_iou >= base"]
    assert [row[-1] for row in required.rows] == ["met", "REGRESSION"]


def test_requirements_stand_in_80_columns_in_every_text_with_the_same_change(capsys):
    """The table was 90 columns wide. Mutation seen to fail: no column gives way."""
    result = ran(0, 0.6, require=("mean_iou >= base - 0.005", "mean_dice >= base - 0.9"))
    print_comparison(result)
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 80
    first = result["gate"]["requirements"][0]
    change, (table, *_) = f"{first['difference']:+.4f} worse", comparison_tables(result).values()
    assert [head for head in ("base", "new", "margin", "outcome") if head in table.heads] == [
        "base",
        "new",
        "margin",
        "outcome",
    ]
    for shown in (text.splitlines(), markdown_summary(result).splitlines(), [" ".join(table.rows[0])]):
        (line,) = (line for line in shown if "0.005" in line and "iou" in line)
        assert change in line
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
