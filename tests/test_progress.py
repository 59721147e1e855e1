"""Progress on a terminal and elsewhere, and where a run's time goes."""

import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

import segmeter.progress as progress
from segmeter.progress import Stages


@pytest.fixture
def clock(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False, raising=False)
    return now


@pytest.fixture
def lines(capsys):
    """Return the lines that were written since the last call."""
    return lambda: capsys.readouterr().err.splitlines()


def test_gauge_writes_a_line_now_and_then_with_the_time_that_is_left(clock, lines):
    with progress.gauge("training") as show:
        for second in range(0, 45, 5):
            clock[0] = float(second)
            show(0.5 + second / 100, f"step {second}")
    assert lines() == [
        "training: 65 %, 35 s left, step 15",
        "training: 80 %, 20 s left, step 30",
        "training: finished in 40 s, step 40",
    ]
    with progress.gauge("training") as show:  # of short work nothing is said
        show(0.0, "")
        clock[0] += 5.0
        show(1.0, "")
    assert lines() == []


def test_parts_of_an_item_move_the_line_and_it_ends_without_a_time_that_is_left(clock, lines):
    def one_large_image():
        for tile in range(1, 5):
            clock[0] += 10.0
            report[0](tile / 4)
        yield "image"

    report = []
    assert list(progress.track(one_large_image(), "predicting", 1, watch_parts=report.append)) == ["image"]
    assert lines() == [
        "predicting: 50 %, 20 s left, 0 of 1 (40 s each)",
        "predicting: 100 %, 1 of 1 (40 s each)",
        "predicting: finished in 40 s, 1 of 1 (40 s each)",
    ]


def test_a_batch_that_is_computed_before_its_items_come_does_not_move_back(clock, lines):
    report = []

    def batch():
        clock[0] += 20.0
        report[0](2.0)
        yield from "ab"

    for _ in progress.track(batch(), "evaluating", 2, watch_parts=report.append):
        clock[0] += 20.0
    *shown, last = lines()
    assert [line.split(",")[0] for line in shown] == ["evaluating: 100 %"] * 3
    assert last == "evaluating: finished in 60 s, 2 of 2 (30 s each)"


def test_items_are_counted_with_their_rate_and_a_long_wait_is_given_in_hours(clock, lines):
    for _ in progress.track(range(40), "checking", 40):
        clock[0] += 1.0
    assert lines() == [
        "checking: 38 %, 25 s left, 15 of 40 (1.0/s)",
        "checking: 75 %, 10 s left, 30 of 40 (1.0/s)",
        "checking: finished in 40 s, 40 of 40 (1.0/s)",
    ]
    slow = progress.track(range(400), "checking", 400)
    next(slow)
    clock[0] += 16.0
    next(slow)
    assert lines() == ["checking: 0 %, 1:46:24 left, 1 of 400 (16 s each)"]


def test_on_a_terminal_a_bar_is_drawn(monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with progress.gauge("training") as show:
        show(0.25, "loss 0.5 [red]")
    assert "training" in capsys.readouterr().err
    assert list(progress.track("abc", "checking", 3, watch_parts=lambda report: report(0.5))) == ["a", "b", "c"]
    assert "checking" in capsys.readouterr().err


def test_seconds_and_bytes_add_up_over_threads_and_the_report_has_every_stage_and_both_ways():
    stages = Stages()
    with ThreadPoolExecutor(4) as pool:
        for _ in range(50):
            pool.submit(stages.add, "read", 0.5)
            pool.submit(stages.crossed, "to the host", 3)
    assert stages.seconds == {**dict.fromkeys(stages.seconds, 0.0), "read": 25.0}
    assert stages.bytes == {"to the device": 0, "to the host": 150}
    with stages.timed("measure"):
        pass
    assert stages.seconds["measure"] > 0
    stages.crossed("to the device", 2_500_000)
    time, crossed = stages.report().splitlines()
    for stage in ("read", "forward", "transfer", "post-process", "measure", "write"):
        assert f"{stage} " in time
    assert crossed == "crossed   2.5 MB to the device, 0.0 MB to the host"
