"""Limits of a run, rates of its steps, and its profile."""

import json
import math

import pytest

from segmeter.records import read_json_lines
from segmeter.training import clock
from segmeter.training.clock import SKIPPED, Limits, Throughput
from segmeter.training.config import TrainingConfig
from segmeter.training.trainer import train
from tests.training.tiny import TinyCases, tiny_job


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


@pytest.mark.parametrize(("step", "epochs"), [(0, 0.0), (7, 2.0), (3, 6 / 7)])
def test_epochs_of_a_step(step, epochs):
    assert limits(accumulate=2).epochs(step) == pytest.approx(epochs)


def test_rates_by_hand_with_validations_left_out(monkeypatch):
    now, watch = [100.0], Throughput()
    monkeypatch.setattr(clock.time, "perf_counter", lambda: now[0])
    assert (watch.read()[0].images_per_second, watch.whole.data_wait) == (0.0, 0.0), "no division by no time"
    watch.run()
    now[0] += 2.0
    watch.run()
    watch.add(8, 0.5)
    watch.hold()
    now[0] += 100.0  # a validation
    watch.hold()
    watch.run()
    now[0] += 2.0
    watch.add(12, 0.5)
    rates, stages = watch.read()
    assert (rates.images_per_second, rates.data_wait, stages) == (5.0, 0.25, {"data": 1.0, "step": 3.0})
    watch.run()
    now[0] += 1.0
    watch.add(5, 0.0)
    assert watch.read()[0].images_per_second == 5.0
    assert (watch.whole.images_per_second, watch.whole.data_wait) == (5.0, 0.2)


def test_times_of_stages_are_those_since_the_last_reading(monkeypatch):
    now, watch = [100.0], Throughput()
    monkeypatch.setattr(clock.time, "perf_counter", lambda: now[0])
    for seconds in (3.0, 4.0):
        with watch.stage("validation"):
            now[0] += seconds
        assert watch.read()[1] == {"data": 0.0, "step": 0.0, "validation": seconds}


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
