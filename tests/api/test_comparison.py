"""`segmeter.compare`: the figures of the comparison of runs, with tables to print and to display."""

import numpy as np
import pytest

import segmeter
from segmeter.errors import InputError
from segmeter.metrics.summary.compare import compare_runs

SPEC = segmeter.ClassSpec(task="multiclass", names=("ground", "cell"), colours=((0, 0, 0), (1, 1, 1)))
CONFIG = segmeter.MetricsConfig(bootstrap=200)


def run(missed: int, count: int = 12) -> list[segmeter.CaseRow]:
    """Cases of 100 pixels, 40 of them cell, of which some are missed."""
    counts = [np.array([[60, 0], [missed + index % 3, 40 - missed - index % 3]]) for index in range(count)]
    return [segmeter.CaseRow(case_id=f"{index}", height=10, width=10, counts=each) for index, each in enumerate(counts)]


def test_the_figures_are_those_of_the_comparison_and_the_better_run_leads():
    runs = {"base": run(8), "new": run(4)}
    found = segmeter.compare(runs, SPEC, CONFIG)
    figures = compare_runs(runs, SPEC, CONFIG)
    assert {key: found[key] for key in figures} == figures
    assert (found["rank_by"], found["order"]) == ("mean_iou", ["new", "base"])
    assert repr(found).startswith("Comparison of base and new on 12 cases: ")
    assert "new minus base" in found.table()
    assert "<td" in found._repr_html_()


def test_runs_of_other_cases_are_refused():
    with pytest.raises(InputError, match="cases"):
        segmeter.compare({"base": run(8), "new": run(4, count=11)}, SPEC, CONFIG)
