"""Times and budgets of a training: what is promised, what is measured, and what is said of it."""

import time
from contextlib import nullcontext
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import segmeter.training.step as step_module
import segmeter.training.trainer as loop
from segmeter.training.trainer import train
from tests.training.test_trainer import rows
from tests.training.tiny import assert_same, tiny_job, weights


def test_a_time_budget_ends_the_run_and_drives_the_schedule(tmp_path):
    start = time.monotonic()
    result = train(tiny_job(tmp_path, epochs=None, time_budget=1, log_every=1))
    assert result.reason == "time_budget=1"
    assert 0.5 < time.monotonic() - start < 10.0  # a busy machine ends its last step late
    rates = [row["lr"] for row in rows(tmp_path, validated=False)]
    assert max(rates) > 0.005
    assert rates[-1] < max(rates)  # how far it has fallen when the last step begins depends on how long steps take
    assert rows(tmp_path, validated=True)[-1]["step"] == result.steps


def test_a_promise_that_a_busy_machine_breaks_is_taken_back_at_once_and_again_when_it_gets_worse(caplog):
    """30 steps in a fifth of the time are 150 in all; 270 are near enough to 300."""
    part, config = [0.0], SimpleNamespace(time_budget="4m")
    run = SimpleNamespace(step=0, told=300.0, config=config, progress=lambda step: part[0])
    for run.step, part[0] in ((3, 0.09), (27, 0.1), (30, 0.2), (32, 0.22), (40, 0.5)):
        loop.Trainer._forecast(run)
    said = "training: steps take longer than planned, so time_budget=4m will hold about {} of them, not {}".format
    assert caplog.messages == [said(150, 300), said(80, 150)]


def test_a_run_says_during_the_run_that_it_will_not_take_the_planned_steps(tmp_path, caplog):
    for planned in (0, 10**9):
        budget = {"epochs": None, "time_budget": "0.5", "validate_every": None}
        train(tiny_job(tmp_path / str(planned), **budget, planned_steps=planned))
        assert any("longer than planned" in each for each in caplog.messages) is bool(planned)


def test_timing_a_step_changes_nothing_of_the_job_and_gives_the_first_loss(tmp_path):
    """Mutations seen to fail: the model itself trained; the generators left as they are."""
    job = tiny_job(tmp_path)
    before = weights(job.model.segmenter)
    state = torch.get_rng_state()
    seconds, first_loss = step_module.time_step(job, limit_s=0.0)
    assert seconds > 0
    assert torch.equal(torch.get_rng_state(), state)
    assert_same(weights(job.model.segmenter), before)
    assert not list(tmp_path.iterdir())
    train(tiny_job(tmp_path, epochs=None, steps=1, log_every=1, validate_every=None))
    assert first_loss == pytest.approx(rows(tmp_path, validated=False)[0]["loss"], rel=0.2)  # dropout differs


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
