"""What signals do to a training process: the first one saves and leaves, the second one leaves."""

import os
import signal
import subprocess
import sys

import pytest
import torch

from segmeter.errors import EXIT_CODES, Interrupted, StopSignals, let_finish
from segmeter.models.checkpoint import read_checkpoint
from segmeter.training.trainer import train
from tests.training.tiny import StoppingSource, TinyCases, tiny_job

WAITING = """
import time
from segmeter.errors import StopSignals
with StopSignals() as stop:
    print("ready", flush=True)
    while not stop:
        time.sleep(0.01)
    print("stopping", flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize(("name", "code"), [("SIGTERM", 143), ("SIGINT", 130), ("SIGUSR1", 3)])
def test_a_signal_saves_and_raises_with_its_exit_code(tmp_path, name, code):
    handlers = [signal.getsignal(each) for each in EXIT_CODES]

    job = tiny_job(tmp_path, source=StoppingSource(TinyCases(), at=2, name=name))
    with pytest.raises(Interrupted, match=f"stopped by {name} after step 3; step-00000003 was saved") as caught:
        train(job)
    assert caught.value.exit_code == code
    assert handlers == [signal.getsignal(each) for each in EXIT_CODES]
    assert read_checkpoint(tmp_path / "checkpoints" / "last").progress["step"] == 3


def test_a_signal_after_the_work_is_only_noted():
    with StopSignals(raises=True) as stop:
        let_finish()
        signal.raise_signal(signal.SIGTERM)
        assert stop.received == signal.SIGTERM
    before = signal.getsignal(signal.SIGTERM)
    let_finish()  # nobody listens
    assert signal.getsignal(signal.SIGTERM) == before
    # As where a training has failed, which the command is to say. Mutation seen to fail: the inner one alone
    with StopSignals(raises=True) as outer:
        with StopSignals() as inner:
            let_finish()
        signal.raise_signal(signal.SIGTERM)
        assert (outer.received, inner.received) == (signal.SIGTERM, None)


def test_a_signal_within_a_save_waits_until_it_is_complete(tmp_path, monkeypatch):
    real, saves = torch.save, []

    def save(*args):
        saves.append(1)
        if len(saves) == 2:
            signal.raise_signal(signal.SIGTERM)
        real(*args)

    monkeypatch.setattr(torch, "save", save)
    with pytest.raises(Interrupted, match="stopped by SIGTERM") as stopped:
        train(tiny_job(tmp_path, epochs=100))
    step = read_checkpoint(tmp_path / "checkpoints" / "last").load_state()["step"]
    assert f"after step {step}; step-{step:08d}" in str(stopped.value)
    read_checkpoint(tmp_path / "checkpoints" / "step-00000004").load_state()
    assert 4 <= step < 200


@pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="no process can send another a signal on Windows")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_second_signal_ends_the_process_at_once(number, code):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", WAITING]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)
    assert process.stdout.readline() == "stopping\n"
    process.send_signal(number)
    process.communicate(timeout=30)
    assert process.returncode == code
