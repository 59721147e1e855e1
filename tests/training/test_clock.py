"""Limits of a run, its times and budgets, rates of its steps, and its profile."""

import json
import math
import time
from contextlib import nullcontext
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import segmeter.training.step as step_module
import segmeter.training.trainer as loop
from segmeter.errors import RunError
from segmeter.models.checkpoint import read_checkpoint
from segmeter.records import read_json_lines
from segmeter.training import clock
from segmeter.training.clock import SKIPPED, Limits, Throughput
from segmeter.training.config import TrainingConfig
from segmeter.training.data.batches import Samples
from segmeter.training.trainer import train
from tests.training.test_trainer import rows
from tests.training.tiny import TinyCases, TinySource, assert_same, tiny_job, weights


def limits(batches_per_epoch=7, **values):
    return Limits(config=TrainingConfig(**values), batches_per_epoch=batches_per_epoch)


@pytest.mark.parametrize(
    ("given", "last_step"),
    [
        ({}, 60 * 7),  # epochs, unless a limit is given
        ({"epochs": 3}, 21),
        ({"epochs": 3, "accumulate": 4}, 6),  # 21 batches are five steps and one batch
        ({"epochs": 3, "steps": 5}, 5),
        ({"steps": 900}, 900),
        ({"time_budget": "220s"}, math.inf),
        ({"epochs": None, "time_budget": "1m"}, math.inf),
    ],
    ids=str,
)
def test_a_limit_that_is_given_replaces_the_default_and_epochs_are_whole_steps(given, last_step):
    assert limits(**given).last_step == last_step


def test_the_limit_that_ends_the_run_is_named():
    both = limits(epochs=3, steps=30, time_budget="1h30")
    assert both.reached(20, 0.0) == ""
    assert both.reached(21, 0.0) == "epochs=3"
    assert both.reached(2, 5400.0) == "time_budget=1h30"
    assert both.reached(0, 9999.0) == "", "one step is always done"
    assert limits().reached(420, 0.0) == "epochs=60"
    assert limits(steps=5).reached(5, 0.0) == "steps=5"


def test_progress_follows_the_limit_that_is_nearest_to_its_end():
    both = limits(epochs=None, steps=100, time_budget="200s")
    assert [both.progress(10, seconds) for seconds in (10.0, 50.0, 500.0)] == [0.1, 0.25, 1.0]
    assert limits(epochs=None, time_budget=200).progress(10**9, 50.0) == 0.25
    assert limits(accumulate=2).epochs(3) == pytest.approx(6 / 7)


@pytest.mark.parametrize(
    ("values", "due"),
    [
        ({"accumulate": 2, "validate_every": 1}, [4, 7, 11, 14]),  # epochs end at batches 7, 14, 21, 28
        ({"validate_every": 2}, [14]),
        ({"validate_every": 4, "validate_unit": "steps"}, [4, 8, 12]),
        ({"validate_every": None}, []),
    ],
    ids=str,
)
def test_validation_is_due_once_per_interval_even_where_steps_straddle_epochs(values, due):
    assert [step for step in range(15) if limits(epochs=9, **values).validation_due(step)] == due


def test_rates_by_hand_with_validations_left_out(monkeypatch):
    now, watch = [100.0], Throughput()
    monkeypatch.setattr(clock.time, "perf_counter", lambda: now[0])
    assert watch.whole.rates() == {"images_per_second": 0.0, "data_wait": 0.0}, "no division by no time"
    watch.run()
    now[0] += 2.0
    watch.run()
    watch.add(images=8, waited=0.5)
    with watch.stage("validation"):
        now[0] += 100.0
    watch.run()
    now[0] += 2.0
    watch.add(images=12, waited=0.5)
    found = {"images_per_second": 5.0, "data_wait": 0.25, "stages": {"data": 1.0, "step": 3.0, "validation": 100.0}}
    assert watch.read() == found
    watch.run()
    now[0] += 1.0
    watch.add(images=5)
    assert watch.read() == {"images_per_second": 5.0, "data_wait": 0.0, "stages": {"data": 0.0, "step": 1.0}}
    assert watch.whole.rates() == {"images_per_second": 5.0, "data_wait": 0.2}


def test_the_speed_is_that_of_whole_batches_of_which_a_process_takes_a_part(tmp_path, monkeypatch):
    class PartSource(TinySource):
        def batch(self, epoch, index, progress):
            return Samples(*(values[::2] for values in super().batch(epoch, index, progress)[:3]))

    counted = []
    monkeypatch.setattr(Throughput, "add", lambda self, images=0, **given: counted.append(images))
    train(tiny_job(tmp_path, epochs=1, accumulate=2, source=PartSource(TinyCases(), batch_size=5)))
    assert sum(counted) == 10


@pytest.mark.parametrize(("steps", "recorded"), [(2, 2), (9, 3)], ids=["whole", "the run ends before"])
def test_a_profile_has_the_steps_that_were_asked_for_and_leaves_the_losses_as_they_are(tmp_path, steps, recorded):
    losses = []
    for name, profiled in (("plain", 0), ("profiled", steps)):
        run = {"steps": SKIPPED + 3, "epochs": None, "log_every": 1, "cases": TinyCases(count=26)}
        train(tiny_job(tmp_path / name, profile_steps=profiled, **run))
        losses.append([row.get("loss") for row in read_json_lines(tmp_path / name / "history.jsonl")])
    assert losses[0] == losses[1]
    folder = tmp_path / "profiled" / "profile"
    assert sorted(path.name for path in folder.iterdir()) == ["table.txt", "trace.json"]
    events = json.loads((folder / "trace.json").read_text())["traceEvents"]
    updates = [event for event in events if event.get("name") == "segmeter.update" and event["ph"] == "X"]
    assert len(updates) == recorded
    table = (folder / "table.txt").read_text()
    assert "aten::" in table
    assert "segmeter.forward" in table


@pytest.mark.parametrize(("steps", "warns"), [(SKIPPED, True), (SKIPPED + 1, False)])
def test_a_profile_without_a_step_is_warned_of(tmp_path, caplog, steps, warns):
    with clock.profiled(tmp_path, 2) as done:
        for _ in range(steps):
            done()
    assert ("the profile has no step" in caplog.text) == warns


def test_a_time_budget_ends_the_run_and_drives_the_schedule(tmp_path):
    start = time.monotonic()
    result = train(tiny_job(tmp_path, epochs=None, time_budget=1, log_every=1))
    assert result.reason == "time_budget=1"
    assert 0.5 < time.monotonic() - start < 10.0  # a busy machine ends its last step late
    rates = [row["lr"] for row in rows(tmp_path, validated=False)]
    assert max(rates) > 0.005
    assert rates[-1] < max(rates)  # how far it has fallen when the last step begins depends on how long steps take
    assert rows(tmp_path, validated=True)[-1]["step"] == result.steps


def test_a_checkpoint_knows_how_long_the_validation_before_it_took(tmp_path):
    """A resumed run with a time budget keeps as much time free for its last validation."""
    slow = TinyCases(count=2, delay=0.2)
    train(tiny_job(tmp_path, epochs=None, steps=1, time_budget="1h", val_cases=slow))
    assert read_checkpoint(tmp_path / "checkpoints" / "last").load_state()["reserve"] >= 0.2


def test_timing_a_step_changes_nothing_of_the_job_and_gives_the_first_loss(tmp_path):
    job = tiny_job(tmp_path)
    before = weights(job.segmenter)
    state = torch.get_rng_state()
    seconds, first_loss = step_module.time_step(job, limit_s=0.0)
    assert seconds > 0
    assert torch.equal(torch.get_rng_state(), state)
    assert_same(weights(job.segmenter), before)
    assert not list(tmp_path.iterdir())
    train(tiny_job(tmp_path, epochs=None, steps=1, log_every=1, validate_every=None))
    assert first_loss == pytest.approx(rows(tmp_path, validated=False)[0]["loss"], rel=0.2)  # dropout differs


def test_timing_a_step_that_fails_changes_no_generator_either(tmp_path, monkeypatch):
    def fail(*given):
        torch.rand(1)  # as dropout draws
        raise RunError("no memory.")

    job = tiny_job(tmp_path)
    state = torch.get_rng_state()
    monkeypatch.setattr(step_module, "run_step", fail)
    with pytest.raises(RunError, match="no memory"):
        step_module.time_step(job, limit_s=0.0)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(("limit_s", "expected"), [(60.0, 0.6), (0.0, 0.5)])
def test_the_first_step_and_a_step_that_was_held_up_are_not_timed(tmp_path, monkeypatch, limit_s, expected):
    """After a step of 9 s to warm up, the lower median counts: of all five, or of two where no time is left."""
    ticks = [tick for start, end in pairwise(np.cumsum([0, 9, 5, 0.5, 0.6, 0.7, 0.4])) for tick in (start, end)]
    monkeypatch.setattr(step_module, "time", SimpleNamespace(monotonic=iter(ticks).__next__))
    assert step_module.time_step(tiny_job(tmp_path), limit_s=limit_s)[0] == pytest.approx(expected)


def test_a_slow_run_shows_its_loss_before_its_first_line(tmp_path, monkeypatch):
    shown = []
    monkeypatch.setattr(loop, "gauge", lambda what: nullcontext(lambda fraction, text: shown.append(text)))
    monkeypatch.setattr(loop, "FIRST_LOSS_S", 0.0)
    train(tiny_job(tmp_path, epochs=None, steps=3, log_every=50, validate_every=None))
    assert "step 1, epoch 0.5, loss" in shown[0]
