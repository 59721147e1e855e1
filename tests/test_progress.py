import sys

import pytest

import segmeter.progress as progress


@pytest.fixture
def clock(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False, raising=False)
    return now


def test_gauge_writes_a_line_now_and_then_with_the_time_that_is_left(clock, capsys):
    with progress.gauge("training") as show:
        for second in range(0, 45, 5):
            clock[0] = float(second)
            show(0.5 + second / 100, f"step {second}")
    assert capsys.readouterr().err.splitlines() == [
        "training: 65 %, 35 s left, step 15",
        "training: 80 %, 20 s left, step 30",
        "training: finished in 40 s",
    ]


def test_gauge_is_quiet_about_short_work(clock, capsys):
    with progress.gauge("training") as show:
        show(0.0, "")
        clock[0] = 5.0
        show(1.0, "")
    assert capsys.readouterr().err == ""


def test_gauge_draws_a_bar_on_a_terminal(monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with progress.gauge("training") as show:
        show(0.25, "loss 0.5 [red]")
    assert "training" in capsys.readouterr().err
