import math

import pytest

from segmeter.training.clock import Limits
from segmeter.training.config import TrainingConfig


def limits(batches_per_epoch=7, **values):
    return Limits(config=TrainingConfig(**values), batches_per_epoch=batches_per_epoch)


def test_epochs_are_counted_in_whole_steps():
    assert limits(epochs=3).last_step == 21
    assert limits(epochs=3, accumulate=4).last_step == 6  # 21 batches are five steps and one batch
    assert limits(epochs=3, steps=5).last_step == 5
    assert limits(epochs=None, time_budget="1m").last_step == math.inf


@pytest.mark.parametrize(
    ("given", "last_step"),
    [({}, 60 * 7), ({"epochs": 2}, 14), ({"steps": 900}, 900), ({"time_budget": "220s"}, math.inf)],
)
def test_a_limit_that_is_given_replaces_the_default_of_60_epochs(given, last_step):
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
    assert both.progress(10, 10.0) == 0.1
    assert both.progress(10, 50.0) == 0.25
    assert both.progress(10, 500.0) == 1.0
    assert limits(epochs=None, time_budget=200).progress(10**9, 50.0) == 0.25


def test_validation_is_due_once_per_interval_of_epochs_even_where_steps_straddle_them():
    straddling = limits(epochs=9, accumulate=2, validate_every=1)  # epochs end at batches 7, 14, 21, 28
    assert [step for step in range(15) if straddling.validation_due(step)] == [4, 7, 11, 14]
    every_other = limits(epochs=9, validate_every=2)
    assert [step for step in range(30) if every_other.validation_due(step)] == [14, 28]


def test_validation_in_steps_or_never():
    in_steps = limits(validate_every=4, validate_unit="steps")
    assert [step for step in range(13) if in_steps.validation_due(step)] == [4, 8, 12]
    assert not any(limits(validate_every=None).validation_due(step) for step in range(30))


@pytest.mark.parametrize(("step", "epochs"), [(0, 0.0), (7, 2.0), (3, 6 / 7)])
def test_epochs_of_a_step(step, epochs):
    assert limits(accumulate=2).epochs(step) == pytest.approx(epochs)
