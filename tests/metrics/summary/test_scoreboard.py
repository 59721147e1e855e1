"""Every score of a run as a function of sums: of all cases what the summary says, of one case that case's own."""

import numpy as np
import pytest

from segmeter.metrics.cases.typed import lay_out_run
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.statistics.columns import join_means, mean_columns
from segmeter.metrics.summary.scoreboard import build_scoreboards
from segmeter.metrics.summary.summarise import summarise
from tests.metrics.build import case_row, class_spec, random_rows

CONFIG = MetricsConfig(bootstrap=0, groups={"solid": ("road", "car")})


def boards_of(runs, config=CONFIG):
    laid_out = {name: lay_out_run(rows, class_spec(), config.groups) for name, rows in runs.items()}
    return build_scoreboards(laid_out, class_spec(), config)


def board_of(rows, config=CONFIG):
    return boards_of({"run": rows}, config)[0]["run"]


def test_the_sums_of_all_cases_give_the_scores_of_the_summary():
    rows = random_rows(20)
    board, summary = board_of(rows), summarise(rows, class_spec(), CONFIG)
    scores = dict(zip(board.whole, board.score(board.columns.sums()[None], board.whole)[0], strict=True))
    assert scores["mean_iou"] == pytest.approx(summary["dataset"]["mean_iou"], rel=1e-12)
    assert scores["iou/solid"] == pytest.approx(summary["per_group"]["solid"]["iou"], rel=1e-12)
    assert scores["recall/car"] == pytest.approx(summary["per_class"]["car"]["recall"], rel=1e-12)
    columns, parts = board.choose([("per_case", name) for name in board.per_case])
    means = dict(zip(board.per_case, join_means(parts(columns.sums()[None]))[0], strict=True))
    assert means["mean_iou"] == pytest.approx(summary["per_case"]["mean_iou"]["mean"], rel=1e-12)


def test_the_columns_of_one_case_give_its_own_values():
    rows = random_rows(6)
    board = board_of(rows)
    scores = board.score(np.stack([*board.columns], axis=1), board.whole)
    for name in ("mean_iou", "pixel_accuracy", "iou/sky", "dice/solid"):
        np.testing.assert_allclose(scores[:, board.whole.index(name)], board.values(name), rtol=1e-12)


def test_the_columns_of_means_are_those_of_the_array():
    """Mutation seen to fail: infinite before defined."""
    scores = [{"hd95/car": value} for value in (1.5, np.nan, np.inf, 2.0)]
    board = board_of([case_row(str(i), np.eye(3), scores=one) for i, one in enumerate(scores)])
    values = np.stack([board.values(name) for name in board.per_case], axis=1)
    columns, _ = board.choose([("per_case", name) for name in board.per_case])
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
