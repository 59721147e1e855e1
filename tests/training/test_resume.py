"""Runs that stop and go on: train N is train k, stop, resume to N, to the last bit; what signals do; who follows."""

import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field

import pytest
import torch
from torch.amp import GradScaler

from segmeter.distributed.ranks import World
from segmeter.errors import SIGNAL_EXIT_CODES, Interrupted, StopSignals, let_finish
from segmeter.models.checkpoint import read_checkpoint
from segmeter.records import read_json_lines
from segmeter.training import learner
from segmeter.training.checkpointing import step_name
from segmeter.training.trainer import Trainer, follow, train
from tests.training.tiny import StoppingSource, TinyCases, assert_same, draw_red, tiny_job, tiny_segmenter, weights

TIMES = ("seconds", "images_per_second", "data_wait", "stages", "peak_memory_mb")


class StoppingCases(TinyCases):
    """Sends this process a signal when case `at` is read for the second time: within the second validation."""

    at: int = 0

    def __getitem__(self, index):
        if index == self.at and self.read.count(index) == 1:
            signal.raise_signal(signal.SIGTERM)
        return super().__getitem__(index)


def content(folder):
    """All that a run leaves, without what the clock decides."""
    checkpoint = read_checkpoint(folder / "checkpoints" / "last")
    state = checkpoint.load_state()
    for key in ("seconds", "reserve", "history"):
        state.pop(key)
    rows = [{k: v for k, v in row.items() if k not in TIMES} for row in read_json_lines(folder / "history.jsonl")]
    best = (folder / "checkpoints" / "best").resolve().name
    pictures = sorted(str(path.relative_to(folder)) for path in folder.glob("validation/**/*"))
    return {"state": state, "rows": rows, "sha256": checkpoint.sha256, "best": best, "pictures": pictures}


SETTINGS = {"epochs": 4, "ema": 0.9, "accumulate": 2, "keep": 2, "pictures": 2, "draw": draw_red}


@pytest.fixture(autouse=True, scope="module")
def _scaled():
    """The loss scale of float16 doubles twice in a run."""
    with pytest.MonkeyPatch.context() as patch:
        scaler = {"init_scale": 1024.0, "growth_interval": 5}
        patch.setattr(learner, "build_scaler", lambda device, precision: GradScaler("cpu", **scaler))
        yield


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    folder = tmp_path_factory.mktemp("straight")
    cases = TinyCases(count=26)
    train(tiny_job(folder, cases=cases, **SETTINGS))
    drawn = [f"validation/{step_name(step)}/case{case}.png" for step in (3, 6, 9, 12) for case in ("00", "02")]
    found = content(folder)
    assert [name for name in found["pictures"] if name.endswith("png")] == drawn
    assert found["state"]["scaler"]["scale"] == 4 * 1024
    return found


# 6 batches per epoch, 3 steps per epoch: batch 6 lies in step 4, the first of the second epoch
@pytest.mark.parametrize(
    ("stops", "workers"), [((0,), 0), ((4,), 2), ((5,), 0), ((8, 16), 0), ((9, 10, 21), 0), ((9, 10, 21), 2)], ids=str
)
def test_a_run_that_is_stopped_and_resumed_ends_with_the_same_bits(tmp_path, straight, stops, workers):
    cases = TinyCases(count=26)
    for number, at in enumerate(stops):
        source = StoppingSource(cases, at=at)
        job = tiny_job(tmp_path, cases=cases, source=source, workers=workers, resume=number > 0, **SETTINGS)
        with pytest.raises(Interrupted):
            train(job)
        with (tmp_path / "history.jsonl").open("a") as file:  # what a killed process logs after its last checkpoint
            file.write('{"step": 999}\n{"step":')
        (tmp_path / "validation" / "step-00000099").mkdir(parents=True, exist_ok=True)
    torch.manual_seed(99)  # a resumed process starts with other generators and other weights
    rest = tiny_job(tmp_path, cases=cases, segmenter=tiny_segmenter(7), workers=workers, resume=True, **SETTINGS)
    result = train(rest)
    assert result.steps == 12
    assert_same(content(tmp_path), straight)


def test_a_run_that_is_stopped_while_it_validates_ends_with_the_same_bits(tmp_path, straight):
    cases = TinyCases(count=26)
    val_cases = StoppingCases(count=3, salt=9)
    val_cases.at = 2
    with pytest.raises(Interrupted, match="stopped by SIGTERM after step 6; step-00000006-unvalidated was saved"):
        train(tiny_job(tmp_path, cases=cases, val_cases=val_cases, **SETTINGS))
    train(tiny_job(tmp_path, cases=cases, segmenter=tiny_segmenter(7), resume=True, **SETTINGS))
    assert_same(content(tmp_path), straight)


def test_resuming_a_finished_run_changes_nothing(tmp_path):
    first = train(tiny_job(tmp_path))
    before = content(tmp_path)
    again = train(tiny_job(tmp_path, segmenter=tiny_segmenter(7), resume=True))
    assert (again.steps, again.score, again.best) == (first.steps, first.score, first.best)
    assert_same(content(tmp_path), before)


@pytest.mark.parametrize("at", [0, 2])
def test_a_run_whose_time_is_over_when_it_is_resumed_validates_its_last_weights_once(tmp_path, monkeypatch, at):
    timed = {"epochs": None, "time_budget": 1000}
    with pytest.raises(Interrupted, match=f"step-0000000{at + 1} was saved"):
        train(tiny_job(tmp_path, source=StoppingSource(TinyCases(), at=at), **timed))
    monkeypatch.setattr(Trainer, "seconds", 2000.0)
    result = train(tiny_job(tmp_path, resume=True, **timed))
    before = content(tmp_path)
    assert (result.steps, result.reason) == (at + 1, "time_budget=1000")
    assert [row["step"] for row in before["rows"] if "val" in row][-1] == at + 1
    assert all(row["lr"] > 0 for row in before["rows"] if "lr" in row)
    assert read_checkpoint(tmp_path / "checkpoints" / "last").progress["metric"] is not None
    assert train(tiny_job(tmp_path, resume=True, **timed)).score == result.score
    assert_same(content(tmp_path), before)


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
    handlers = [signal.getsignal(each) for each in SIGNAL_EXIT_CODES]

    job = tiny_job(tmp_path, source=StoppingSource(TinyCases(), at=2, name=name))
    with pytest.raises(Interrupted, match=f"stopped by {name} after step 3; step-00000003 was saved") as caught:
        train(job)
    assert caught.value.exit_code == code
    assert handlers == [signal.getsignal(each) for each in SIGNAL_EXIT_CODES]
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


LED = {"epochs": 3, "accumulate": 2, "val_cases": None}


@dataclass(frozen=True)
class Announced(World):
    orders: list = field(default_factory=list)

    def tell(self, order, signal):
        self.orders.append(order)
        return signal


@dataclass(frozen=True)
class Told(World):
    """Gives orders out, and keeps the signals that come with each question; `action` runs during the second one."""

    orders: tuple = ()
    action: object = None
    heard: list = field(default_factory=list)

    def next_order(self, signal):
        if len(self.heard) == 1 and self.action:
            self.action()
        self.heard.append(signal)
        return self.orders[len(self.heard) - 1] if len(self.heard) <= len(self.orders) else None


@pytest.fixture(scope="module")
def led(tmp_path_factory):
    """The orders and the weights of a training that leads."""
    job = tiny_job(tmp_path_factory.mktemp("led"), world=Announced(), **LED)
    train(job)
    return tuple(job.world.orders), weights(job.segmenter)


def test_the_same_orders_lead_to_the_same_weights(led, tmp_path):
    orders, expected = led
    assert [order.step for order in orders] == list(range(3))
    assert [order.progress for order in orders] == pytest.approx([0, 1 / 3, 2 / 3])
    job = tiny_job(tmp_path, world=Told(orders=orders), **LED)
    follow(job)
    assert_same(weights(job.segmenter), expected)
    assert job.world.heard == [0] * 4
    assert list(tmp_path.iterdir()) == []


def test_a_resumed_run_is_joined_at_its_step(led, tmp_path):
    """The batches are those of the step that is announced first."""
    whole, cases = TinyCases(), TinyCases()
    for read, orders in ((whole, led[0]), (cases, led[0][2:])):
        follow(tiny_job(tmp_path, cases=read, world=Told(orders=orders), **LED))
    assert len(cases.read) >= 8
    assert cases.read == whole.read[16:]  # without the four cases of each of four batches


def test_a_signal_is_passed_on_and_the_step_taken(led, tmp_path):
    before = signal.getsignal(signal.SIGUSR1)
    world = Told(orders=led[0], action=lambda: signal.raise_signal(signal.SIGUSR1))
    job = tiny_job(tmp_path, world=world, **LED)
    follow(job)
    assert world.heard == [0, 0, signal.SIGUSR1, signal.SIGUSR1]
    assert_same(weights(job.segmenter), led[1])
    assert signal.getsignal(signal.SIGUSR1) == before
