"""Small networks of random weights, written once."""

from pathlib import Path

import pytest

from segmeter.models.checkpoint import write_checkpoint
from tests.models.parts import make_card, make_tiny


def write_network(folder: Path, seed: int = 0, in_channels: int = 1) -> Path:
    card = make_card(in_channels=in_channels)
    state = make_tiny(seed, card).state_dict()
    write_checkpoint(folder, segmenter_state=state, card=card, state=None, progress={})
    return folder


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two networks of different weights, for grey images."""
    return [write_network(tmp_path_factory.mktemp("checkpoints") / "step", seed) for seed in range(2)]
