"""Work in threads and processes: the order, what is dropped on leaving, and what a killed process says."""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import psutil
import pytest

from segmeter import parallel, threads
from segmeter.errors import RunError
from segmeter.parallel import free_bytes, map_in_processes, map_in_threads, run_parts

KINDS = [
    pytest.param(partial(map_in_threads, threads=2), id="threads"),
    pytest.param(partial(map_in_processes, processes=2, describe=str), id="processes"),
]


def slower_first(item: int) -> int:
    time.sleep(0.05 if item == 0 else 0)
    return item


def wait_at_three(path: Path, item: int) -> tuple[int, int]:
    while item == 3 and not path.exists():
        time.sleep(0.01)
    return item, os.getpid()


@pytest.mark.parametrize("run", KINDS)
def test_results_come_in_order_each_before_later_items_are_done(run, tmp_path):
    """And they are of this process in threads alone."""
    results = run(partial(wait_at_three, tmp_path / "go"), range(8))
    found = [next(results) for _ in range(3)]  # item 3 waits for the file
    (tmp_path / "go").touch()
    found += results
    assert [item for item, _ in found] == list(range(8))
    assert ({pid for _, pid in found} == {os.getpid()}) == (run is KINDS[0].values[0])
    assert list(run(fail, range(0))) == []
    with pytest.raises(ValueError, match="item 0"):
        list(run(fail, range(3)))


def test_a_fault_of_the_items_comes_after_the_results_of_those_before() -> None:
    def items() -> Iterator[int]:
        yield from range(3)
        raise RunError("the fourth")

    results = map_in_threads(slower_first, items(), threads=2)
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(RunError, match="the fourth"):
        next(results)


def test_a_result_that_is_ready_does_not_wait_for_more_items_of_a_slow_source() -> None:
    taken = []

    def slow_items() -> Iterator[int]:
        for item in range(6):
            time.sleep(0.15)
            taken.append(item)
            yield item

    results = map_in_threads(str, slow_items(), threads=2, ahead=6)
    assert next(results) == "0"
    assert len(taken) <= 3, "a kill would lose the results that wait"
    assert list(results) == list("12345")


def die_at_three(item: int) -> int:
    if item == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return item


@pytest.mark.slow
def test_a_killed_worker_gives_one_line_with_the_cases_that_it_may_have_had() -> None:
    found = []
    told = r"a worker process was killed at .*\b\d+.*resume=RUN and fewer workers"
    with pytest.raises(RunError, match=told) as caught:
        found.extend(map_in_processes(die_at_three, range(30), processes=2, describe=lambda item: f"case-{item}"))
    assert caught.value.exit_code == 3
    assert len(caught.value.problems) == 1
    assert "case-3" in str(caught.value) or len(found) < 3


def fail(item: int) -> int:
    raise ValueError(f"item {item}")


def test_no_more_is_started_than_is_ahead_and_leaving_early_drops_what_waits() -> None:
    started: list[int] = []
    results = map_in_threads(started.append, range(100_000), threads=4, ahead=12)
    for _ in range(10):
        next(results)
    time.sleep(0.05)
    assert 10 <= len(started) <= 10 + 12
    results.close()
    started.clear()
    results = map_in_threads(lambda item: time.sleep(0.005) or started.append(item), range(1000), threads=2, ahead=500)
    next(results)
    results.close()
    assert len(started) < 100


def start_and_wait() -> None:
    list(map_in_processes(time.sleep, [30, 30], processes=2, describe=str))


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="processes are looked up in /proc")
def test_workers_end_with_a_parent_that_is_killed() -> None:
    parent = multiprocessing.get_context("spawn").Process(target=start_and_wait)
    parent.start()
    children, workers = psutil.Process(parent.pid).children, []
    limit = time.monotonic() + 60
    while len(workers) < 2 and time.monotonic() < limit:
        time.sleep(0.1)
        workers = [child for child in children() if child.num_threads() > 1]  # they have run our initializer
    assert len(workers) == 2
    parent.kill()
    parent.join()
    _, left = psutil.wait_procs(workers, timeout=20)
    assert {child.status() for child in left} <= {psutil.STATUS_ZOMBIE}


def test_what_takes_very_long_is_named(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(parallel, "LONG_SECONDS", 0.05)
    assert list(map_in_threads(slower_first, [1, 0], threads=1)) == [1, 0]
    assert not caplog.records or "item 2" in caplog.text
    list(map_in_threads(time.sleep, [0.3], threads=1))
    assert "still waiting for item 1 after 0 s; Ctrl-C twice ends the run at once." in caplog.text

    def work(item: int) -> None:
        raise TimeoutError("the file system's own")

    with pytest.raises(TimeoutError, match="own"):
        list(map_in_threads(work, [1], threads=1))


def test_free_memory_is_no_more_than_the_machine_and_the_process_may_have() -> None:
    free = free_bytes()
    assert free is not None
    assert 0 < free < 1 << 50
    resource = pytest.importorskip("resource", reason="Windows limits no process so")
    assert resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY
    limited = "import resource; resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30));"
    limited += "from segmeter.parallel import free_bytes; assert free_bytes() < 3 << 30, free_bytes()"
    subprocess.run([sys.executable, "-c", limited], check=True)


def test_a_control_group_limits_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "groups" / "job"
    folder.mkdir(parents=True)
    (tmp_path / "own").write_text("0::/job/inner\n")
    (folder / "memory.max").write_text("5000\n")
    (folder / "memory.current").write_text("2000\n")
    monkeypatch.setattr(threads, "_CGROUPS", tmp_path / "groups")
    monkeypatch.setattr(threads, "_OWN_CGROUPS", tmp_path / "own")
    (folder / "memory.stat").write_text("active_file 700\ninactive_file 900\ninactive_file_x 5\n")
    assert free_bytes() == 3900  # the cache of files that were read is given back
    (folder / "memory.max").write_text("max\n")
    assert (free_bytes() or 0) > 5000


@pytest.mark.parametrize(
    ("code", "said"), [(28, "No space left on device: '/dev/shm'"), (24, r"Too many open files$")], ids=["full", "open"]
)
def test_shared_memory_without_room_is_named_and_not_blamed_for_open_files(code, said, monkeypatch):
    def refuse(*given: object, **options: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(parallel, "ProcessPoolExecutor", refuse)
    with pytest.raises(OSError, match=said):
        list(map_in_processes(str, range(2), processes=2, describe=str))


def test_parts_are_shared_among_threads_and_an_error_in_any_of_them_comes_out() -> None:
    """Both threads get a part, as each waits for the other. Mutation seen to fail: no helper is waited for."""
    both, done, main = threading.Barrier(2), [], threading.get_ident()

    def part(number: int) -> None:
        both.wait(10)
        if threading.get_ident() != main:
            time.sleep(0.05)  # so that the other one is done first
        done.append(number)

    run_parts([partial(part, number) for number in range(4)], 2)
    assert sorted(done) == [0, 1, 2, 3]

    def fail() -> None:
        both.wait(10)
        if threading.get_ident() != main:
            raise ValueError("in the helper")

    with pytest.raises(ValueError, match="in the helper"):
        run_parts([fail, fail], 2)


def test_workers_ignore_ctrl_c_where_it_can_not_be_blocked(monkeypatch):
    """Windows sends it to every process of a terminal, and only the parent may act on it."""
    monkeypatch.delattr(signal, "pthread_sigmask")
    before = signal.getsignal(signal.SIGINT)
    try:
        parallel._begin_worker()
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
