"""The root configurations of commands that train, run or try a model."""

from pathlib import Path

from segmeter.cli.config.groups import ROOTS
from segmeter.cli.config.model_schema import PredictConfig
from segmeter.cli.config.schema import Seeded
from tests.cli.config.test_schema import made


def test_one_or_several_checkpoints():
    values = {"checkpoint": "net", "input": "images"}
    assert made(PredictConfig, values).checkpoints == (Path("net"),)
    assert made(PredictConfig, values | {"checkpoint": ["a", "b"]}).checkpoints == (Path("a"), Path("b"))


def test_each_decision_can_be_drawn_again_from_its_seed():
    assert all(issubclass(ROOTS[name], Seeded) for name in ("plan", "tune", "agree", "suspects"))
