"""One flat dict of numbers: complete, and in names that W&B and MLflow take."""

import math

import pytest

from segmeter.api.adapters.flat import flatten
from segmeter.errors import InputError
from tests.api.adapters.drawn import SPEC, evaluation


def test_every_score_is_there_under_its_path():
    found = evaluation(measures=["surface", "instances"])
    flat, summary = found.flat(), found.summary
    assert flat["n_cases"] == 7
    assert flat["dataset/mean_iou"] == summary["dataset"]["mean_iou"]
    assert [flat["dataset/mean_iou_low"], flat["dataset/mean_iou_high"]] == summary["dataset_ci95"]["mean_iou"]
    assert flat["per_class/car/iou"] == summary["per_class"]["car"]["iou"]
    assert flat["per_class/car/iou_high"] == summary["per_class"]["car"]["ci95"]["iou"][1]
    assert flat["per_class/car/per_case/dice/mean"] == summary["per_class"]["car"]["per_case"]["dice"]["mean"]
    assert flat["per_case/mean_iou/mean_low"] == summary["per_case"]["mean_iou"]["ci95"][0]
    assert flat["measures/pq/car/dataset_low"] == summary["measures"]["pq"]["car"]["dataset_ci95"][0]
    assert "measures/nsd_at_1/car/mean" in flat
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


def test_a_summary_of_multilabel_is_flat_too():
    spec = SPEC.replace(task="multilabel", ignore_index=None)
    target = [[[0, 1]], [[1, 1]], [[0, 0]]]
    import numpy as np

    import segmeter

    found = segmeter.evaluate([("a", np.array(target), np.array(target))], classes=spec)
    assert found.flat()["dataset/mean_iou"] == 1.0


@pytest.mark.parametrize("summary", [3, {}, {"n_cases": "x"}, [1]])
def test_what_is_no_summary_is_refused(summary):
    with pytest.raises(InputError, match=r"`summary` to be the content of metrics\.json"):
        flatten(summary)
