"""A process that waits for others hears of their faults, and of signals, whatever its main thread is in."""

import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any

import pytest

from segmeter.distributed import watch as watching
from segmeter.distributed.faults import FAULT, Fault, Seen, meeting, read_fault, tell
from segmeter.distributed.place import Place
from segmeter.distributed.watch import AGENT, Watch, open_store, watched
from segmeter.errors import DataError, Interrupted, PeerError

FIRST = Fault(("process 1 of 2 failed: no room.",), 2)


@pytest.fixture
def board(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What the two processes of a training share; rank 0 is played by the test."""
    store = open_store()
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(store.port))
    monkeypatch.setenv(AGENT, "True")
    monkeypatch.setattr(watching, "_trainings", iter([0]))
    monkeypatch.setattr(watching, "_LOOK_S", 0.05)
    return meeting(store, 0, range(2))


def test_alone_there_is_nothing_to_watch() -> None:
    before = threading.active_count()
    with watched(None, 1.0) as watch:
        assert watch is None
        assert threading.active_count() == before


def test_a_fault_of_another_process_interrupts_this_one(board: Any) -> None:
    """Mutation seen to fail: no signal to the main thread (it sleeps to its end)."""
    handler, began = signal.getsignal(signal.SIGUSR2), time.monotonic()
    threading.Timer(0.3, tell, (board, FIRST)).start()
    with pytest.raises(PeerError, match="process 1 of 2 failed: no room") as raised, watched(Place(1, 2, 1), None):
        time.sleep(60)
    assert raised.value.exit_code == 2
    assert time.monotonic() - began < 50
    assert signal.getsignal(signal.SIGUSR2) == handler


def test_an_error_of_this_process_is_told_and_raised_as_it_is(board: Any) -> None:
    settled: list[bool] = []
    with (
        pytest.raises(DataError, match=r"^a.png: is bad\.$"),
        watched(Place(1, 2, 1), None, settle=lambda: settled.append(True)),
    ):
        raise DataError("a.png: is bad.")
    assert read_fault(board.get(FAULT)) == Fault(("process 2 of 2 failed: a.png: is bad.",), 2)
    assert settled


def test_a_broken_connection_is_not_the_cause_where_another_process_has_failed(board: Any) -> None:
    """Mutation seen to fail: an error that is told at once (the first cause would be gloo's)."""

    def lose_the_connection() -> None:
        with watched(Place(1, 2, 1), None) as watch:
            assert watch is not None
            watch._raises = False  # as in a library, which no signal interrupts
            threading.Timer(0.5, tell, (board, FIRST)).start()
            raise RuntimeError("gloo: Connection closed by peer")

    with pytest.raises(PeerError, match="no room"):
        lose_the_connection()


def test_the_second_cause_never_replaces_the_first(board: Any) -> None:
    assert tell(board, FIRST) == FIRST
    assert tell(board, Fault(("later.",))) == FIRST


@pytest.mark.parametrize("rank", [0, 1])
def test_a_process_that_is_done_waits_for_the_others(rank: int, board: Any) -> None:
    """The first one may have the store, and have files to write. Mutation seen to fail: no wait."""
    other, began = str(1 - rank), time.monotonic()
    board.set(other, Seen(looks=1).to_json())
    threading.Timer(0.6, board.set, (other, Seen(looks=2, done=True).to_json())).start()
    with watched(Place(rank, 2, rank), None):
        time.sleep(0.2)
        assert Seen.from_json(board.get(str(rank))).looks > 0
    assert time.monotonic() - began > 0.5
    assert Seen.from_json(board.get(str(rank))).looks == -1


def test_a_training_that_was_stopped_and_saved_is_no_fault(board: Any) -> None:
    board.set("1", Seen(looks=1, done=True).to_json())
    with pytest.raises(Interrupted), watched(Place(0, 2, 0), None):
        raise Interrupted("saved.", exit_code=143)
    assert read_fault(board.get(FAULT)) is None


def test_a_process_that_does_not_leave_is_ended(board: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one whose main thread never comes back; what would end it is noted."""
    ended = threading.Event()
    codes: list[int] = []
    monkeypatch.setattr(watching, "_GRACE", 3)
    monkeypatch.setattr(watching.os, "_exit", lambda code: (codes.append(code), ended.set()))
    watch = Watch(Place(1, 2, 1), None, lambda: None)
    watch._raises = False
    watch.meet()
    tell(board, FIRST)
    assert ended.wait(30)
    watch.close()
    assert codes[0] == 2


def lonely(limit_s: float) -> "subprocess.Popen[str]":
    more = {"PYTHONPATH": os.pathsep.join(sys.path), "SLURM_JOB_ID": str(os.getpid())}  # which chooses the port
    command = [sys.executable, "-m", "tests.distributed.lonely", str(limit_s)]
    process = subprocess.Popen(
        command, env=os.environ | more, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "waiting\n"
    return process


def test_a_process_says_at_once_that_it_is_there(board: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutation seen to fail: a first sign of life with the first look, so that one frozen before was never missed."""
    monkeypatch.setattr(watching, "_LOOK_S", 2.0)
    watch = Watch(Place(1, 2, 1), None, lambda: None)
    try:
        watch.meet()
        assert Seen.from_json(board.get("1")).looks == 1
    finally:
        watch.close()


@pytest.mark.slow
@pytest.mark.parametrize("times", [1, 2])
def test_a_process_that_waits_in_a_library_hears_sigterm(times: int) -> None:
    """Mutation seen to fail: signals that are heard by the main thread alone (it waits for ever)."""
    process = lonely(3600)
    for _ in range(times):
        time.sleep(2)
        process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 143, said
    assert ("segmeter: process 1 of 2: stopped by SIGTERM.\n" in said) == (times == 1), said


@pytest.mark.slow
def test_a_process_that_never_comes_is_named() -> None:
    process = lonely(2)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 3, said
    assert "no process got on for 2 s (training.stall_minutes)" in said
    assert "process 2 of 2 is at its start" in said
