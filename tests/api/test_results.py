"""Results in memory: comparisons, a flat dict of numbers for W&B and MLflow, grand-challenge.org's metrics.json."""

import json
import math

import numpy as np
import pytest

import segmeter
from segmeter.api.comparison import compare
from segmeter.api.results import flatten
from segmeter.errors import InputError
from segmeter.metrics.config.measures import SurfaceConfig
from segmeter.metrics.summary.compare import compare_runs
from tests.api.adapters.drawn import SPEC, evaluation


def test_every_score_is_there_under_its_path():
    found = evaluation(measures=["surface", "instances"])
    flat, summary = found.flat(), found.summary
    car = summary["per_class"]["car"]
    expected = {
        "n_cases": 7,
        "dataset/mean_iou": summary["dataset"]["mean_iou"],
        "dataset/mean_iou_low": summary["dataset_ci95"]["mean_iou"][0],
        "per_class/car/iou": car["iou"],
        "per_class/car/iou_high": car["ci95"]["iou"][1],
        "per_class/car/per_case/dice/mean": car["per_case"]["dice"]["mean"],
        "per_case/mean_iou/mean_low": summary["per_case"]["mean_iou"]["ci95"][0],
        "measures/pq/car/dataset_low": summary["measures"]["pq"]["car"]["dataset_ci95"][0],
        "measures/nsd_at_1/car/mean": summary["measures"]["nsd@1"]["car"]["mean"],
    }
    assert {name: flat[name] for name in expected} == expected
    assert all(type(value) is float for value in flat.values())


def test_undefined_is_left_out_and_infinity_stays():
    flat = flatten({"n_cases": 1, "measures": {"hd95": {"car": {"mean": "inf", "median": None, "n_used": 1}}}})
    assert flat == {"n_cases": 1.0, "measures/hd95/car/mean": math.inf, "measures/hd95/car/n_used": 1.0}


def test_names_are_those_that_mlflow_takes():
    from mlflow.utils.validation import _validate_metric_name

    names = list(flatten({"n_cases": 1, "per_class": {"<b>Auto</b>, groß": {"iou": 0.5}}}))
    for name in names:
        _validate_metric_name(name)
    assert len(names) == 2


def test_two_classes_of_one_name_are_refused():
    with pytest.raises(InputError, match=r"to differ in letters and digits, got .*per_class/a_/iou"):
        flatten({"n_cases": 1, "per_class": {"a<": {"iou": 0.5}, "a>": {"iou": 0.25}}})


def test_results_and_aggregates_for_grand_challenge_are_ours_in_strict_json(tmp_path):
    """A miss is infinite, which JSON has no number for; undefined is null."""

    def refuse(name):
        raise AssertionError(name)

    def written(found):
        found.write_grand_challenge(tmp_path / "metrics.json")
        return json.loads((tmp_path / "metrics.json").read_text(), parse_constant=refuse)

    found = evaluation(measures=["surface"])
    content = written(found)
    assert content["aggregates"]["dataset"]["mean_iou"] == found.summary["dataset"]["mean_iou"]
    assert content["aggregates"]["per_class"]["car"]["iou_low"] == found.summary["per_class"]["car"]["ci95"]["iou"][0]
    assert [one["case_id"] for one in content["results"]] == [f"case{i}" for i in range(7)]
    assert content["results"][2]["iou_car"] == found.cases["iou_car"][2].as_py()
    assert "confusion" not in content["results"][0]
    target = np.zeros((6, 6), np.uint8)
    target[1:3, 1:3] = 2
    content = written(segmeter.evaluate([("a", target, 0 * target)], classes=SPEC, measures=["surface"]))
    assert (content["results"][0]["extra_hd95/car"], content["results"][0]["iou_road"]) == ("inf", None)
    assert content["aggregates"]["measures"]["hd95"]["car"]["mean"] == "inf"


TWO = segmeter.ClassSpec(task="multiclass", names=("ground", "cell"), colours=((0, 0, 0), (1, 1, 1)))
CONFIG = segmeter.MetricsConfig(bootstrap=200)


def run(missed: int, count: int = 12) -> list[segmeter.CaseRow]:
    """Cases of 100 pixels, 40 of them cell, of which some are missed."""
    counts = [np.array([[60, 0], [missed + index % 3, 40 - missed - index % 3]]) for index in range(count)]
    return [segmeter.CaseRow(case_id=f"{index}", height=10, width=10, counts=each) for index, each in enumerate(counts)]


def test_the_figures_are_those_of_the_comparison_and_the_better_run_leads():
    runs = {"base": run(8), "new": run(4)}
    found = compare(runs, TWO, CONFIG)
    figures = compare_runs(runs, TWO, CONFIG)
    assert {key: found[key] for key in figures} == figures
    assert (found["rank_by"], found["order"]) == ("mean_iou", ["new", "base"])


def test_the_headline_orders_the_runs_as_on_the_command_line():
    target = np.pad(np.ones((4, 4), np.uint8), 2)
    config = CONFIG.replace(measures=(SurfaceConfig(),), headline="hd95")
    pairs = [[(f"{n}", target, np.roll(target, shift)) for n in range(3)] for shift in (2, 1)]
    base, new = (segmeter.evaluate(each, classes=TWO.names, metrics=config).rows for each in pairs)
    found = compare({"base": base, "new": new}, TWO, config)
    assert (found["rank_by"], found["order"]) == ("hd95/mean", ["new", "base"])
    runs = {"base": run(8), "new": run(4)}
    with pytest.raises(InputError, match=r"compare: expected `headline` to be a metric of all runs.*'nonsense'"):
        compare(runs, TWO, CONFIG.replace(headline="nonsense"))
