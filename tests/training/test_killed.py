"""kill -9 at random moments of a real U-Net's training: resumed, it ends with the bits of a run that nothing stopped.

One process forks the trainings before it has any thread, so that each starts without importing torch again.
"""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from torch.amp import GradScaler

from segmeter.models.segmenter import build_segmenter
from segmeter.training import learner
from segmeter.training.trainer import train
from tests.fuzzing import rounds
from tests.training.test_resume import content
from tests.training.tiny import TinyCases, assert_same, tiny_card, tiny_job

MODEL = {"name": "unet", "encoder": "mobilenet_v2", "decoder_channels": (16, 16, 8, 8, 8)}
SETTINGS = {"epochs": 4, "ema": 0.9, "accumulate": 2, "keep": 2, "workers": 2, "log_every": 1}


def run(folder):
    """Train to the end, from the newest checkpoint if there is one."""
    torch.set_num_threads(1)
    learner.build_scaler = lambda device, precision: GradScaler("cpu", init_scale=2.0**10)
    resume = next((folder / "checkpoints").glob("step-*"), None) is not None
    torch.manual_seed(7 if resume else 1)  # a resumed process begins with other weights and generators
    segmenter = build_segmenter(tiny_card(**MODEL), initialise=False)
    cases = TinyCases(count=26, size=32)
    train(tiny_job(folder, cases=cases, segmenter=segmenter, resume=resume, **SETTINGS))


def forked(folder, *, killed_after=None):
    """Train in a process of its own; tell whether it came to its end."""
    process = os.fork()
    if not process:
        run(folder)
        os._exit(0)
    if killed_after is not None:
        time.sleep(killed_after)
        os.kill(process, signal.SIGKILL)
    _, status = os.waitpid(process, 0)
    assert status in (0, signal.SIGKILL), status
    return status == 0


def kill_at_random(root, kills, seed):
    """Leave root/straight, and folders whose runs were killed and went on, `kills` times in all."""
    moments = random.Random(seed)
    straight = root / "straight"
    straight.mkdir()
    start = time.monotonic()
    forked(straight)
    whole = time.monotonic() - start
    done = number = 0
    while done < kills:
        number += 1
        folder = root / f"killed-{number}"
        folder.mkdir()
        while done < kills and not forked(folder, killed_after=moments.uniform(0, whole)):
            done += 1
        forked(folder)


@pytest.mark.fuzz
def test_a_run_that_is_killed_anywhere_and_resumed_ends_with_the_same_bits(tmp_path):
    kills = rounds(2, 20)
    code = (
        f"from pathlib import Path; from {__name__} import *; kill_at_random(Path({str(tmp_path)!r}), {kills}, {kills})"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    here = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code], env=environment, cwd=here, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    straight = content(tmp_path / "straight")
    killed = sorted(tmp_path.glob("killed-*"))
    assert killed
    for folder in killed:
        assert_same(content(folder), straight, folder.name)
