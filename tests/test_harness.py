"""`benchmarks/harness.py`: who is timed how often, and what a row says."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
from harness import Spent, Time, compare, demand, race


def times(**milliseconds):
    return {name: Time(**dict.fromkeys(Time.__dataclass_fields__, value)) for name, value in milliseconds.items()}


def test_contenders_take_turns_after_a_cold_call_of_each():
    calls = []
    race({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, rounds=2)
    assert calls == ["a", "b", "a", "b", "a", "b"]


def test_work_of_another_process_reports_its_own_seconds():
    answers = iter([Spent(9.0, 8.0), Spent(1.0, 2.0), Spent(3.0, 4.0), Spent(5.0, 6.0)])
    found = race({"a": lambda: next(answers)}, rounds=3)["a"]
    assert found.cold_cpu_ms == 9000
    assert found.cold_wall_ms == 8000
    assert (found.cpu_ms, found.cpu_best_ms) == (3000, 1000)  # of 1, 3 and 5
    assert (found.wall_ms, found.wall_best_ms) == (4000, 2000)


def test_a_long_call_has_every_third_turn():
    calls = []

    def slow():
        calls.append(1)
        return Spent(1.0, 1.0)

    race({"slow": slow}, rounds=6, seldom_s=0.5)
    assert len(calls) == 1 + 2  # cold, then turns 0 and 3


def test_a_row_has_the_ratio_of_the_chosen_clock():
    found = times(segmeter=2.0, theirs=7.0)
    (row,) = compare("work", found, {"theirs": 3.0})
    assert row.ratio == 3.5
    assert row.met
    assert row.needs == "at least 3x"


def test_a_tool_that_is_missing_has_a_row_that_says_so():
    (row,) = compare("work", times(segmeter=2.0), {"theirs": 3.0})
    assert row.ratio is None
    assert row.met is None
    assert row.note == "not installed"


def test_values_that_differ_stop_a_benchmark():
    with pytest.raises(SystemExit, match="counts differently"):
        demand(False, "monai counts differently")
