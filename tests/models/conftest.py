"""One checkpoint on the disk, made once and copied for each test that spoils it."""

import shutil

import pytest
import torch

from segmeter.models.checkpoint import write_checkpoint
from segmeter.models.segmenter import Segmenter
from tests.models.parts import make_card, make_tiny


@pytest.fixture(scope="session")
def tiny() -> Segmenter:
    return make_tiny()


@pytest.fixture(scope="session")
def written(tmp_path_factory, tiny):
    folder = tmp_path_factory.mktemp("written") / "step-00000010"
    write_checkpoint(
        folder,
        segmenter_state=tiny.state_dict(),
        card=make_card(),
        state={"step": 10, "moments": [torch.arange(3.0), (1, None, "adamw")]},
        progress={"epoch": 1, "step": 10, "metric": 0.5},
    )
    return folder


@pytest.fixture
def checkpoint(tmp_path, written):
    """A copy of the checkpoint that a test may spoil."""
    return shutil.copytree(written, tmp_path / "step-00000010")
