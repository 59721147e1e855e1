"""One score leads a run: by default by what is measured, or as the configuration sets it."""

import math

import pytest

from segmeter.classes import ClassSpec
from segmeter.errors import ConfigError
from segmeter.metrics.cases.table import MeasureColumn
from segmeter.metrics.config.metrics import MetricsConfig, headline_of
from segmeter.metrics.summary.scoreboard import build_scoreboard, settle_headline
from segmeter.metrics.summary.summarise import summarise

from ..build import case_row, class_spec

PLANES = ClassSpec(task="multilabel", names=("a", "b"), colours=((1, 1, 1),) * 2)
TWO = ClassSpec(task="multiclass", names=("Background", "vessel"), colours=((0, 0, 0), (1, 1, 1)))
CELLS = ({"name": "instances", "classes": ("sky",)},)


@pytest.mark.parametrize(
    ("spec", "changes", "expected"),
    [
        (class_spec(2, "binary"), {}, "iou/road"),
        (class_spec(3), {}, "mean_iou"),
        (TWO, {}, "iou/vessel"),
        (class_spec(2), {}, "mean_iou"),
        (PLANES, {}, "mean_iou"),
        (class_spec(2, "binary"), {"measures": ("instances",)}, "pq/road"),
        (class_spec(3), {"measures": ("instances", "surface")}, "pq/mean"),
        (class_spec(2, "binary"), {"measures": CELLS}, "iou/road"),
        (class_spec(2, "binary"), {"measures": ("surface",), "headline": "hd95"}, "hd95/mean"),
        (class_spec(3), {"headline": "dice/road"}, "dice/road"),
    ],
)
def test_the_headline_is_decided_once(spec, changes, expected):
    settled = settle_headline(MetricsConfig(**changes), spec)
    assert settled.headline == headline_of(settled, spec) == expected
    assert settle_headline(settled, spec) == settled


@pytest.mark.parametrize("name", ["hd59", "hd95", "iou/rod", "area/road"])
def test_a_score_that_no_case_will_have_is_refused_before_any_is_measured(name):
    with pytest.raises(ConfigError, match=f"metrics: expected `headline` to be a score of each case, got '{name}'"):
        settle_headline(MetricsConfig(headline=name), class_spec(3))


def test_cases_are_ordered_by_it_the_worst_first():
    rows = [
        case_row(name, [[5, 0], [1, 3]], measured=(MeasureColumn("hd95", "road", value),))
        for name, value in [("a", 1.0), ("b", math.inf), ("c", math.nan), ("d", 4.0), ("e", 1.0)]
    ]
    board = build_scoreboard(rows, class_spec(2, "binary"), MetricsConfig(headline="hd95/road"))
    assert board.worst_first().tolist() == [1, 3, 0, 4]
    assert board.worst_first("iou/road").tolist() == [0, 1, 2, 3, 4]


def test_the_summary_names_it():
    rows = [case_row("a", [[5, 0], [1, 3]])]
    assert summarise(rows, class_spec(2, "binary"), MetricsConfig(bootstrap=0))["headline_score"] == "iou/road"
