"""`segmeter.compare`: the figures of the comparison of runs, with tables to print and to display."""

import numpy as np
import pytest

import segmeter
from segmeter.errors import InputError
from segmeter.metrics.config.measures import SurfaceConfig
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
    assert "<pre>" in found._repr_html_()


def test_the_headline_orders_the_runs_as_on_the_command_line():
    target = np.pad(np.ones((4, 4), np.uint8), 2)
    config = CONFIG.replace(measures=(SurfaceConfig(),), headline="hd95")
    pairs = [[(f"{n}", target, np.roll(target, shift)) for n in range(3)] for shift in (2, 1)]
    base, new = (segmeter.evaluate(each, classes=SPEC.names, metrics=config).rows for each in pairs)
    found = segmeter.compare({"base": base, "new": new}, SPEC, config)
    assert (found["rank_by"], found["order"]) == ("hd95/mean", ["new", "base"])
    runs = {"base": run(8), "new": run(4)}
    with pytest.raises(InputError, match=r"compare: expected `headline` to be a metric of all runs.*'nonsense'"):
        segmeter.compare(runs, SPEC, CONFIG.replace(headline="nonsense"))
