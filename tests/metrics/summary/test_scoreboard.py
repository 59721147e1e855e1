"""Every score of a run as a function of sums, and the one that leads it."""

import math

import numpy as np
import pytest

from segmeter.classes import ClassSpec
from segmeter.errors import ConfigError
from segmeter.metrics.cases.run_columns import lay_out_run
from segmeter.metrics.cases.table import MeasureColumn
from segmeter.metrics.config.metrics import MetricsConfig, headline_of
from segmeter.metrics.statistics.columns import mean_columns
from segmeter.metrics.summary.scoreboard import build_scoreboard, build_scoreboards, settle_headline
from tests.metrics.build import case_row, class_spec, random_rows

CONFIG = MetricsConfig(bootstrap=0, groups={"solid": ("road", "car")})


def boards_of(runs, config=CONFIG):
    laid_out = {name: lay_out_run(rows, class_spec(), config.groups) for name, rows in runs.items()}
    return build_scoreboards(laid_out, class_spec(), config)


def board_of(rows, config=CONFIG):
    return boards_of({"run": rows}, config)[0]["run"]


def test_the_columns_of_one_case_give_its_own_values():
    rows = random_rows(6)
    board = board_of(rows)
    scores = board.score(np.stack([*board.columns], axis=1), board.dataset_names)
    for name in ("mean_iou", "pixel_accuracy", "iou/sky", "dice/solid"):
        np.testing.assert_allclose(scores[:, board.dataset_names.index(name)], board.values(name), rtol=1e-12)


def test_the_columns_of_means_are_those_of_the_array():
    """Mutation seen to fail: infinite before defined."""
    scores = [{"hd95/car": value} for value in (1.5, np.nan, np.inf, 2.0)]
    board = board_of([case_row(str(i), np.eye(3), scores=one) for i, one in enumerate(scores)])
    values = np.stack([board.values(name) for name in board.names_per_case], axis=1)
    columns, _ = board.choose([("per_case", name) for name in board.names_per_case])
    np.testing.assert_array_equal(np.stack([*columns], axis=1), mean_columns(values))


def test_columns_that_only_some_runs_have_are_named_and_left_out():
    rows = random_rows(3)
    more = [case_row(row.case_id, row.counts, scores={"hd95/car": 1.0}) for row in rows]
    boards, left_out = boards_of({"a": rows, "b": more})
    assert left_out == ["hd95/car", "hd95/mean"]
    assert boards["a"].names == boards["b"].names


def test_chosen_scores_are_in_c_order_so_that_sums_over_resamples_keep_their_last_bits():
    """Mutation seen to fail: the order of the keys by an index, which makes NumPy lay them out by column."""
    board = boards_of({"a": random_rows(9)})[0]["a"]
    columns, parts = board.choose(board.keys)
    assert parts(np.tile(columns.sums().astype(float), (5, 1))).flags.c_contiguous


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
