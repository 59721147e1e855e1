"""Engines that others wrote, started as a user starts them: torchrun, and Dask with workers of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.cli.sharded import EVAL, TRAIN, contents, newest, run, whole
from tests.cli.test_launch import weights

PROGRAMS = Path(sys.executable).parent
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("in_here")]


def start(*command: str | Path) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr


def test_torchrun_starts_a_training_that_one_process_writes() -> None:
    """The same as one process, but for rounding; the validation cases are shared out too."""
    if not (PROGRAMS / "torchrun").is_file() or not (PROGRAMS / "segmeter").is_file():
        pytest.skip(f"no torchrun or segmeter in {PROGRAMS}")
    assert run("train", *TRAIN, "run.name=one") == 0
    one = newest("runs/train")
    torchrun = [PROGRAMS / "torchrun", "--standalone", "--nproc-per-node", "2", "--no-python"]
    start(*torchrun, PROGRAMS / "segmeter", "train", *TRAIN, "run.name=torchrun")
    (folder,) = Path("runs/train").glob("*_torchrun")
    expected = weights(one)
    for name, value in weights(folder).items():
        torch.testing.assert_close(value, expected[name], rtol=1e-3, atol=1e-5)
    rows = [[json.loads(line) for line in (each / "history.jsonl").read_text().splitlines()] for each in (one, folder)]
    found = [[row["val"]["mean_iou"] for row in each if "val" in row] for each in rows]
    assert len(found[0]) == len(found[1]) > 0
    assert found[1] == pytest.approx(found[0], abs=0.02)
    assert json.loads((folder / "run.json").read_text())["state"] == "done"


def test_dask_on_its_own_leaves_the_bytes_of_one_process() -> None:
    """Two worker processes that the command starts and ends; an evaluation in batches of two images."""
    pytest.importorskip("distributed")
    expected = whole("eval", EVAL)
    launch = ["launch=dask", "launch.workers=2", "launch.shards=3", "run.name=dask"]
    start(sys.executable, "-m", "segmeter", "eval", *EVAL, *launch)
    (folder,) = Path("runs/eval").glob("*_dask")
    assert contents(folder) == expected
    assert not (folder / "shards").exists()
