"""The processes of a training: one who decides, signals that all hear, and a validation that all have a part in."""

import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from segmeter.distributed.ranks import ALONE
from tests.distributed.spawned import run_world
from tests.distributed.validated import validate_each_way


def test_rank_0_decides_and_hears_the_signals_of_all(answers: list[dict[str, Any]]) -> None:
    assert answers[0]["heard"] == [0, int(signal.SIGUSR1)]
    assert answers[1]["heard"] == [(0, 0.25, False), (1, 0.5, True), None]
    assert all(torch.equal(answer["shared"]["x"], torch.arange(3)) for answer in answers)


def check_validations(found: list[Any], folder: Path) -> None:
    """Mutations seen to fail: statistics of each process, passes that are not split."""
    ((scores, pictures), none), error, *given_up = found
    (expected, drawn), _ = validate_each_way(ALONE, folder)[0]
    assert scores == expected
    assert {name: path.name for name, path in pictures.items()} == {name: path.name for name, path in drawn.items()}
    assert len(drawn) == 4
    assert none == 0
    assert "NaN or infinite at step 7 (lr 0.1; validation case 'case02')" in error
    assert given_up == [(None, int(signal.SIGUSR1))] * 2


def test_a_validation_is_the_same_whoever_takes_part(answers: list[dict[str, Any]], tmp_path: Path) -> None:
    check_validations(answers[0]["validations"], tmp_path)


@pytest.mark.slow
def test_a_validation_is_the_same_for_seven_processes(tmp_path: Path) -> None:
    check_validations(run_world(validate_each_way, 7, tmp_path)[0], tmp_path)
