"""The queue's promises: bounded bytes, first fault said, nothing after it, interruptible."""

import threading

import numpy as np
import pytest

from segmeter.errors import RunError
from segmeter.export.queue import WriteQueue
from segmeter.files import write_bytes

LONG = 10.0  # seconds until a hang is a failure


def store(path, array):
    write_bytes(path, array.tobytes())


def block(size=8):
    return np.arange(size, dtype=np.uint8)


class Gate:
    """A writer that waits to be let through, and counts who is inside."""

    def __init__(self):
        self.entered = threading.Semaphore(0)
        self.open = threading.Event()

    def __call__(self, path, array):
        self.entered.release()
        assert self.open.wait(LONG)
        store(path, array)


def test_all_files_are_written_and_counted(tmp_path):
    queue = WriteQueue(workers=3, limit=20)
    for index in range(25):
        queue.put(f"c{index}", tmp_path / "sub" / f"{index}.bin", block(index + 1), store)
    assert queue.close() == 25
    assert sorted(path.stat().st_size for path in (tmp_path / "sub").iterdir()) == list(range(1, 26))


def test_put_waits_while_the_bytes_in_flight_are_at_the_limit(tmp_path):
    queue, gate = WriteQueue(workers=1, limit=100), Gate()
    queue.put("a", tmp_path / "a", block(60), gate)
    queue.put("b", tmp_path / "b", block(40), gate)
    done = threading.Event()

    def third():
        queue.put("c", tmp_path / "c", block(1), gate)
        done.set()

    thread = threading.Thread(target=third)
    thread.start()
    assert gate.entered.acquire(timeout=LONG)
    assert not done.wait(0.1)
    gate.open.set()
    assert done.wait(LONG)
    thread.join()
    assert queue.close() == 3


def test_an_array_above_the_limit_goes_alone(tmp_path):
    queue = WriteQueue(workers=2, limit=10)
    queue.put("a", tmp_path / "a", block(50), store)
    queue.put("b", tmp_path / "b", block(50), store)
    assert queue.close() == 2


def test_first_fault_is_raised_by_put_and_by_close_and_names_the_case(tmp_path):
    def full(path, array):
        raise OSError(28, "No space left on device")

    queue = WriteQueue(workers=1, limit=1000)
    queue.put("good", tmp_path / "good", block(), store)
    queue.put("bad one", tmp_path / "bad", block(), full)
    with pytest.raises(RunError, match=r"case 'bad one' .*No space left on device.* 1 files are complete"):
        queue.put("next", tmp_path / "next", block(1000), store)  # too large to be taken before
    with pytest.raises(RunError, match="case 'bad one'") as caught:
        queue.close()
    assert isinstance(caught.value.__cause__, OSError)


def test_nothing_that_waits_is_written_after_a_fault(tmp_path):
    gate = Gate()

    def fail(path, array):
        gate.entered.release()
        assert gate.open.wait(LONG)
        raise ValueError("broken")

    queue = WriteQueue(workers=1, limit=1000)
    queue.put("bad", tmp_path / "bad", block(), fail)
    queue.put("later", tmp_path / "later", block(), store)
    gate.open.set()
    with pytest.raises(RunError, match="ValueError: broken"):
        queue.close()
    assert list(tmp_path.iterdir()) == []


def test_put_that_waits_is_woken_by_a_fault(tmp_path):
    gate = Gate()

    def fail(path, array):
        assert gate.open.wait(LONG)
        raise OSError("gone")

    queue = WriteQueue(workers=1, limit=10)
    queue.put("bad", tmp_path / "bad", block(10), fail)
    threading.Timer(0.05, gate.open.set).start()
    with pytest.raises(RunError, match="case 'bad'"):
        queue.put("next", tmp_path / "next", block(10), store)
    queue.abandon()


def test_abandon_finishes_what_is_being_written_and_drops_the_rest(tmp_path):
    queue, gate = WriteQueue(workers=1, limit=1000), Gate()
    for name in "abc":
        queue.put(name, tmp_path / name, block(), gate)
    assert gate.entered.acquire(timeout=LONG)
    threading.Timer(0.05, gate.open.set).start()
    queue.abandon()
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_closed_queue_refuses_more(tmp_path):
    queue = WriteQueue(workers=1, limit=10)
    queue.close()
    with pytest.raises(RunError, match="to be open, but it was closed before case 'x'"):
        queue.put("x", tmp_path / "x", block(), store)


def test_control_c_in_close_drops_what_waits_and_passes_on(tmp_path, monkeypatch):
    queue, gate = WriteQueue(workers=1, limit=1000), Gate()
    for name in "abc":
        queue.put(name, tmp_path / name, block(), gate)
    assert gate.entered.acquire(timeout=LONG)
    join, interrupted = threading.Thread.join, []

    def interrupt_once(thread, timeout=None):
        if not interrupted:
            interrupted.append(True)
            gate.open.set()
            raise KeyboardInterrupt
        join(thread, timeout)

    monkeypatch.setattr(threading.Thread, "join", interrupt_once)
    with pytest.raises(KeyboardInterrupt):
        queue.close()
    assert not any(thread.is_alive() for thread in queue._threads)
