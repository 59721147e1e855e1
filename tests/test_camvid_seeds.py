"""`benchmarks/camvid_seeds.py` with seconds instead of minutes, on a few drawn road scenes."""

import json
import sys
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tests.cli.sharded import run as segmeter
from tests.data.crafted import encoded, noise, put

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
TINY = [
    *("model.encoder=tu-test_resnet", "model.depth=3", "model.decoder_channels=[8,8,4]", "training.time_budget=null"),
    *("training.steps=2", "augment.crop=[32,32]", "device=cpu"),
]


def command_here(command, *, check):
    """Stands for `subprocess.run`: the command line, in this process."""
    assert check
    assert command[:3] == [sys.executable, "-m", "segmeter"]
    assert segmeter(*command[3:]) == 0


@pytest.fixture
def run(monkeypatch, capsys, tmp_path):
    """Call the script with some seeds; its record, and what it said."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    script = import_module("camvid_seeds")
    monkeypatch.setattr(script, "subprocess", SimpleNamespace(run=command_here))
    output = tmp_path / "all.json"
    places = ["--root", str(tmp_path / "set"), "--work", str(tmp_path / "work"), "--output", str(output)]

    def call(*seeds):
        monkeypatch.setattr(sys, "argv", ["camvid_seeds.py", *places, "--seeds", *seeds, "--", *TINY])
        script.main()
        return json.loads(output.read_text()), capsys.readouterr().out

    return call


@pytest.mark.slow
def test_seeds_are_run_once_and_their_mean_and_spread_are_written(run, tmp_path):
    for number, split in enumerate(("train", "train", "val", "test")):
        put(tmp_path / "set" / "images" / f"c{number}.jpg", encoded(noise(48, 48, 3, seed=number), "JPEG"))
        put(tmp_path / "set" / "masks" / f"c{number}.png", (noise(48, 48, None, seed=number) % 12).astype(np.uint8))
        with (tmp_path / "set" / f"{split}.txt").open("a") as names:
            names.write(f"c{number}\n")
    first, _ = run("3")
    assert first["summary"]["std"] is None
    found, said = run("3", "5")
    assert found["runs"][0] == first["runs"][0], "a seed that is done is not run again"
    scores = [each["mean_iou"] for each in found["runs"]]
    assert [each["seed"] for each in found["runs"]] == [3, 5]
    assert found["summary"]["mean_iou"] == round(np.mean(scores), 4)
    assert found["summary"]["std"] == round(np.std(scores, ddof=1), 4)
    assert scores[0] != scores[1], "the seed reaches the training"
    assert "seed 5:" in said
