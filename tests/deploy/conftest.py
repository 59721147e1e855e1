"""Checkpoints of small networks, and the warnings of torch's exporters that say nothing of ours."""

from collections.abc import Callable

import numpy as np
import pytest

from segmeter.models.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from segmeter.models.config import ModelCard
from tests.models.parts import make_tiny


@pytest.fixture
def checkpoint_of(tmp_path) -> Callable[..., Checkpoint]:
    def write(card: ModelCard, name: str = "step", *, seed: int = 1) -> Checkpoint:
        state = make_tiny(seed, card).state_dict()
        write_checkpoint(tmp_path / name, segmenter_state=state, card=card, state=None, progress={})
        return read_checkpoint(tmp_path / name)

    return write


@pytest.fixture
def images_of() -> Callable[..., list[tuple[str, np.ndarray]]]:
    def draw(dtype: str, channels: int, *, count: int = 2) -> list[tuple[str, np.ndarray]]:
        rng = np.random.default_rng(5)
        full = {"uint8": 255, "uint16": 65535, "float32": 1}[dtype]
        shapes = [(70 + 5 * index, 50 + 3 * index, channels) for index in range(count)]
        return [(f"case{index}", (rng.random(shape) * full).astype(dtype)) for index, shape in enumerate(shapes)]

    return draw
