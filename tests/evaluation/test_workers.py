"""Work in threads and processes: the order, what is dropped on leaving, and what a killed process says."""

import multiprocessing
import os
import signal
import threading
import time
from functools import partial
from pathlib import Path

import pytest

from segmeter.errors import RunError
from segmeter.evaluation.workers import run_all

KINDS = [pytest.param(0, id="threads"), pytest.param(2, id="processes")]


def slower_first(item: int) -> tuple[int, int]:
    time.sleep(0.05 if item == 0 else 0)
    return item, os.getpid()


@pytest.mark.parametrize("processes", KINDS)
def test_results_come_in_the_order_of_the_items(processes: int) -> None:
    found = list(run_all(slower_first, range(40), processes=processes, name=str))
    assert [item for item, _ in found] == list(range(40))
    assert (os.getpid() in {pid for _, pid in found}) == (processes == 0)


def die_at_three(item: int) -> int:
    if item == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return item


def test_a_killed_worker_gives_one_line_with_the_cases_that_it_may_have_had() -> None:
    found = []
    with pytest.raises(
        RunError, match=r"a worker process was killed at .*\b\d+.*resume=RUN and fewer workers"
    ) as caught:
        found.extend(run_all(die_at_three, range(30), processes=2, name=lambda item: f"case-{item}"))
    assert caught.value.exit_code == 3
    assert len(caught.value.problems) == 1
    assert "case-3" in str(caught.value) or len(found) < 3


def count_calls(calls: list[int], item: int) -> int:
    calls.append(item)
    time.sleep(0.005)
    return item


def test_leaving_early_drops_what_waits() -> None:
    calls: list[int] = []
    results = run_all(partial(count_calls, calls), range(1000), processes=0, name=str, ahead=500)
    assert next(results) == 0
    results.close()  # type: ignore[attr-defined]
    assert len(calls) < 100


def fail(item: int) -> int:
    raise ValueError(f"item {item}")


@pytest.mark.parametrize("processes", KINDS)
def test_an_error_of_the_work_comes_out(processes: int) -> None:
    with pytest.raises(ValueError, match="item 0"):
        list(run_all(fail, range(3), processes=processes, name=str))


def test_memory_is_bounded_by_what_is_ahead() -> None:
    started: list[int] = []
    lock = threading.Lock()

    def note(item: int) -> int:
        with lock:
            started.append(item)
        return item

    results = run_all(note, range(100_000), processes=0, name=str)
    for _ in range(10):
        next(results)
    time.sleep(0.05)
    assert len(started) < 1000
    results.close()  # type: ignore[attr-defined]


def long_then(item: int) -> int:
    time.sleep(30)
    return item


def start_and_wait() -> None:
    list(run_all(long_then, range(2), processes=2, name=str))


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="processes are looked up in /proc")
def test_workers_end_with_a_parent_that_is_killed() -> None:
    parent = multiprocessing.get_context("spawn").Process(target=start_and_wait)
    parent.start()
    children = _wait_for_children(parent.pid or 0, 2)
    parent.kill()
    parent.join()
    limit = time.monotonic() + 20
    while any(_alive(pid) for pid in children) and time.monotonic() < limit:
        time.sleep(0.1)
    assert not [pid for pid in children if _alive(pid)]


def _wait_for_children(pid: int, count: int) -> list[int]:
    """The workers among the children, which have run our initializer when they have two threads."""
    limit = time.monotonic() + 60
    while time.monotonic() < limit:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text() if _alive(pid) else ""
        workers = [int(child) for child in text.split() if _threads(int(child)) > 1]
        if len(workers) >= count:
            return workers
        time.sleep(0.1)
    raise TimeoutError


def _threads(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/task").iterdir())) if _alive(pid) else 0


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in ("Z", "X")
