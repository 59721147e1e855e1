"""The root configurations of commands that help to decide."""

from segmeter.cli.config.groups import ROOTS
from segmeter.cli.config.schema import Seeded


def test_each_decision_can_be_drawn_again_from_its_seed():
    assert all(issubclass(ROOTS[name], Seeded) for name in ("plan", "tune", "agree", "suspects"))
