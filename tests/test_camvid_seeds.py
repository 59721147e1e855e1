"""`benchmarks/camvid_seeds.py` with seconds instead of minutes, on a few drawn road scenes."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np

from tests.data.crafted import encoded, noise, put

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "camvid_seeds.py"
TINY = [
    *("model.encoder=tu-test_resnet", "model.depth=3", "model.decoder_channels=[8,8,4]", "training.time_budget=null"),
    *("training.steps=2", "augment.crop=[32,32]", "device=cpu"),
]


def run(root, work, *seeds):
    command = [
        sys.executable,
        str(SCRIPT),
        "--root",
        str(root),
        "--work",
        str(work),
        "--output",
        str(work / "all.json"),
    ]
    done = subprocess.run([*command, "--seeds", *seeds, "--", *TINY], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads((work / "all.json").read_text()), done.stdout


def test_seeds_are_run_once_and_their_mean_and_spread_are_written(tmp_path):
    for number, split in enumerate(("train", "train", "val", "test")):
        put(tmp_path / "set" / "images" / f"c{number}.jpg", encoded(noise(48, 48, 3, seed=number), "JPEG"))
        put(tmp_path / "set" / "masks" / f"c{number}.png", (noise(48, 48, None, seed=number) % 12).astype(np.uint8))
        with (tmp_path / "set" / f"{split}.txt").open("a") as names:
            names.write(f"c{number}\n")
    first, _ = run(tmp_path / "set", tmp_path / "work", "3")
    assert first["summary"]["std"] is None
    found, said = run(tmp_path / "set", tmp_path / "work", "3", "5")
    assert found["runs"][0] == first["runs"][0], "a seed that is done is not run again"
    scores = [each["mean_iou"] for each in found["runs"]]
    assert [each["seed"] for each in found["runs"]] == [3, 5]
    assert found["summary"]["mean_iou"] == round(np.mean(scores), 4)
    assert found["summary"]["std"] == round(np.std(scores, ddof=1), 4)
    assert scores[0] != scores[1], "the seed reaches the training"
    assert "seed 5:" in said
