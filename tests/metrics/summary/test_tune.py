"""The content of tune.json from scoreboards."""

from pathlib import Path

import numpy as np
import pytest

from segmeter.files import write_json
from segmeter.metrics.cases.table import CaseRow
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.summary.scoreboard import Scoreboard, build_scoreboard
from segmeter.metrics.summary.tune import tune_boards
from segmeter.report.decisions import show_tuned
from tests.data.crafted import BINARY

CONFIG = MetricsConfig(bootstrap=1000)


def board(missed: int, config: MetricsConfig = CONFIG) -> Scoreboard:
    """Twelve cases of 100 pixels, of which some are missed."""
    counts = [np.array([[400, 0], [missed + i % 3, 100 - missed - i % 3]]) for i in range(12)]
    rows = [CaseRow(case_id=f"p{i // 2}_{i:02}", height=20, width=25, counts=each) for i, each in enumerate(counts)]
    return build_scoreboard(rows, BINARY, config)


@pytest.mark.parametrize("cluster", [None, "prefix:_"])
def test_the_best_board_is_chosen_and_compared_with_the_usual_one(cluster: str | None) -> None:
    config = CONFIG.replace(cluster=cluster)
    options = {"by": "iou/cell", "usual": 0, "simplicity": [(i,) for i in range(3)], "split": "val"}
    boards = [board(missed, config) for missed in (20, 5, 10)]
    found = tune_boards(boards, [{"k": str(i)} for i in range(3)], **options)
    assert (found["chosen"], found["kind"], found["n_units"]) == (1, "dataset", 6 if cluster else 12)
    assert found["gain"] == pytest.approx(0.15)
    assert found["settings"][0]["gain"] == 0
    assert found["gain_ci95"][0] > 0
    assert found["settings"][1]["share"] == 1


def test_a_class_in_few_cases_gives_numbers_that_json_can_hold(tmp_path: Path) -> None:
    """Resamples without the one case that has the class have no score; a setting that finds nothing has none at all."""
    boards = []
    for tp, fp in ((90, 0), (80, 0)):
        counts = [np.array([[400, 0], [0, 0]])] * 5 + [np.array([[400 - fp, fp], [100 - tp, tp]])]
        rows = [CaseRow(case_id=f"c{i}", height=20, width=25, counts=each) for i, each in enumerate(counts)]
        boards.append(build_scoreboard(rows, BINARY, CONFIG))
    options = {"by": "iou/cell", "usual": 1, "simplicity": [(0,), (1,)], "split": "val"}
    found = tune_boards(boards, [{"k": "0"}, {"k": "1"}], **options)
    write_json(tmp_path / "tune.json", found)
    assert (found["chosen"], found["gain"], found["optimism"]) == (0, pytest.approx(0.1), pytest.approx(0))
    assert found["gain_ci95"] == found["score_ci95"] == [None, None]
    assert found["score"] == pytest.approx(0.9)
    assert "[" not in show_tuned(found).notes[0]
