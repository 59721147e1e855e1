"""One flat dict of numbers, in names that W&B and MLflow take, and the metrics.json of grand-challenge.org."""

import json
import math

import numpy as np
import pytest

import segmeter
from segmeter.api.results import flatten
from segmeter.errors import InputError
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


def test_results_and_aggregates_are_ours(tmp_path):
    found = evaluation(measures=["surface"])
    found.write_grand_challenge(tmp_path / "metrics.json")
    content = json.loads((tmp_path / "metrics.json").read_text())
    assert content["aggregates"]["dataset"]["mean_iou"] == found.summary["dataset"]["mean_iou"]
    assert content["aggregates"]["per_class"]["car"]["iou_low"] == found.summary["per_class"]["car"]["ci95"]["iou"][0]
    assert [one["case_id"] for one in content["results"]] == [f"case{i}" for i in range(7)]
    assert content["results"][2]["iou_car"] == found.cases["iou_car"][2].as_py()
    assert "confusion" not in content["results"][0]


def test_it_is_strict_json(tmp_path):
    """A miss is infinite, which JSON has no number for; undefined is null."""
    target = np.zeros((6, 6), np.uint8)
    target[1:3, 1:3] = 2
    found = segmeter.evaluate([("a", target, np.zeros_like(target))], classes=SPEC, measures=["surface"])
    found.write_grand_challenge(tmp_path / "metrics.json")

    def refuse(name):
        raise AssertionError(name)

    content = json.loads((tmp_path / "metrics.json").read_text(), parse_constant=refuse)
    assert content["results"][0]["extra_hd95/car"] == "inf"
    assert content["results"][0]["iou_road"] is None
    assert content["aggregates"]["measures"]["hd95"]["car"]["mean"] == "inf"
