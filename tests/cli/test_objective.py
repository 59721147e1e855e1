import math

import pytest

from segmeter.classes import ClassSpec
from segmeter.cli.objective import better, find_objective, results
from segmeter.cli.sweep import best_job
from segmeter.errors import ConfigError
from segmeter.metrics.config.measures import BoundaryConfig, SurfaceConfig
from segmeter.metrics.config.metrics import MetricsConfig
from tests.cli.test_sweep import job

SPEC = ClassSpec(task="multiclass", names=("sky", "car", "road"), colours=((0, 0, 0), (9, 9, 9), (1, 2, 3)))
METRICS = MetricsConfig(measures=(SurfaceConfig(), BoundaryConfig()))
SUMMARY = {
    "task": "multiclass",
    "dataset": {"mean_iou": 0.5, "mean_dice": 0.6, "pixel_accuracy": 0.7},
    "measures": {"hd95": {"car": {"mean": "inf"}, "mean": {"mean": 3.5}}, "pq": {"car": {"mean": 0.1, "dataset": 0.2}}},
}


def test_an_objective_is_named_in_full():
    assert find_objective(None, METRICS, SPEC) is None
    assert find_objective("mean_dice", MetricsConfig(), SPEC) == "mean_dice"
    assert find_objective("hd95", METRICS, SPEC) == "hd95/mean"
    assert find_objective("hd95/car", METRICS, SPEC) == "hd95/car"
    multilabel = SPEC.replace(task="multilabel")
    assert find_objective("boundary_iou", METRICS, multilabel) == "boundary_iou/mean"


def test_an_objective_that_is_not_measured_is_refused_before_anything_is():
    with pytest.raises(ConfigError, match=r"to be a metric that is measured, got 'hd59'\. Did you mean 'hd95"):
        find_objective("hd59", METRICS, SPEC)
    with pytest.raises(ConfigError, match=r"got 'hd95'\. Set metrics\.measures"):
        find_objective("hd95", MetricsConfig(), SPEC)
    with pytest.raises(ConfigError, match="'hd95/bus'"):
        find_objective("hd95/bus", METRICS, SPEC)


def test_the_objective_is_the_first_result():
    assert next(iter(results(SUMMARY, None).items())) == ("mean IoU", 0.5)
    assert list(results(SUMMARY, "hd95/mean").items())[:2] == [("hd95/mean", 3.5), ("mean IoU", 0.5)]
    assert results(SUMMARY, "hd95/car")["hd95/car"] == math.inf
    assert results(SUMMARY, "pq/car")["pq/car"] == 0.2, "of the whole data set where there is one"
    assert results(SUMMARY, "pixel_accuracy")["pixel_accuracy"] == 0.7


def test_the_direction_is_that_of_the_metric():
    assert [better(name) for name in (None, "hd95/mean", "own/car")] == ["higher", "lower", None]


def test_a_sweep_by_a_headline_that_is_better_when_lower_takes_the_smallest():
    """Mutation seen to fail: the result by its name in words, of which a sweep takes the highest."""
    jobs = []
    for number, value in enumerate((3.0, 1.5, 2.0)):
        measures = {"hd95": {"mean": {"mean": value}}}
        found = results(SUMMARY | {"headline_score": "hd95/mean", "measures": measures}, None)
        assert list(found.items())[:2] == [("hd95/mean", value), ("mean IoU", 0.5)]
        jobs.append(job(number, **found))
    assert best_job(jobs) is jobs[1]
