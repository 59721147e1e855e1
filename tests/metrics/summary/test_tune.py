"""The content of tune.json from scoreboards."""

import numpy as np
import pytest

from segmeter.metrics.cases.table import CaseRow
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.summary.scoreboard import Scoreboard, build_scoreboard
from segmeter.metrics.summary.tune import tune_boards
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
    found = tune_boards(
        [board(missed, config) for missed in (20, 5, 10)],
        [{"k": str(i)} for i in range(3)],
        by="iou/cell",
        usual=0,
        simplicity=[(i,) for i in range(3)],
        split="val",
    )
    assert (found["chosen"], found["kind"], found["n_units"]) == (1, "dataset", 6 if cluster else 12)
    assert found["gain"] == pytest.approx(0.15)
    assert found["settings"][0]["gain"] == 0
    assert found["gain_ci95"][0] > 0
    assert found["settings"][1]["share"] == 1
