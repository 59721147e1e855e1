"""The components that docs/configuration.md shows are chosen by name, built, and run."""

import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
import torch

from segmeter.classes import ClassSpec
from segmeter.cli.config.groups import load_plugins
from segmeter.models.config import MODELS
from segmeter.postprocess.config import STEPS
from segmeter.postprocess.pipeline import run_steps

PAGE = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text(encoding="utf-8")
SPEC = ClassSpec(task="binary", names=("ground", "cell"), colours=((0, 0, 0), (255, 255, 255)))


def test_the_network_and_the_step_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    example = PAGE[PAGE.index("    import numpy") : PAGE.index("Name the module")]
    (tmp_path / "mine.py").write_text(textwrap.dedent(example))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    try:
        load_plugins(["mine"])
        network = MODELS.build(MODELS.schema("plain")(width=4), spec=SPEC, in_channels=3)
        assert network(torch.zeros(1, 3, 8, 8)).shape == (1, 1, 8, 8)
        labels = np.zeros((8, 8), np.uint8)
        labels[0, :3] = 1
        for least, kept in ((3, 3), (4, 0)):
            cleaned = run_steps(labels, [STEPS.schema("no_tiny_maps")(least=least)], SPEC)
            assert cleaned.labels.sum() == kept
    finally:
        MODELS._entries.pop("plain", None)
        STEPS._entries.pop("no_tiny_maps", None)
