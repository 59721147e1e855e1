"""Copiers whose results are consumed in a thread, and what interrupts them."""

import signal
import threading
import time

import pytest
import torch

from segmeter.bridge.host_copier import HostCopier
from segmeter.errors import InputError, RunError
from tests.bridge.fake_stream import FakeTransport, is_poison


def test_the_consumer_gets_everything_in_order(open_copier):
    """Mutation seen to fail: the last result is consumed first."""
    seen = []
    with open_copier(slots=2, consume=lambda case_id, array: seen.append((case_id, array.tolist()))) as copier:
        for number in range(20):
            copier.submit(torch.tensor([number]), case_id=str(number))
        copier.drain()
        assert seen == [(str(number), [number]) for number in range(20)]


def test_a_slow_consumer_never_has_more_than_the_slots():
    """Mutation seen to fail: the slot is given back before the consumer returns."""
    submitted, most = [], []

    def consume(case_id, array):
        time.sleep(0.005)
        most.append(len(submitted) - len(most))
        assert not is_poison(array)

    with HostCopier(device="cpu", transport=FakeTransport(), slots=3, consume=consume) as copier:
        for number in range(30):
            copier.submit(torch.zeros(8), case_id=str(number))
            submitted.append(number)
    assert len(most) == 30
    assert max(most) <= 3


def test_an_exception_in_the_consumer_surfaces_at_the_next_submit_and_at_drain(open_copier):
    """Mutations seen to fail: surface is not called by submit; not by drain."""

    def consume(case_id, array):
        raise OSError("disk full")

    copier = open_copier(consume=consume)
    copier.submit(torch.ones(1), case_id="a")
    with pytest.raises(RunError, match=r"the consumer failed: OSError\('disk full'\)") as caught:
        copier.drain()
    assert isinstance(caught.value.__cause__, OSError)
    with pytest.raises(RunError, match="disk full"):
        copier.submit(torch.ones(1), case_id="b")
    with pytest.raises(RunError, match="disk full"):
        copier.close()


def submit_many(copier, count, error=None):
    """Use the copier as a context manager, hold all pending arrays, and end with `error`."""
    with copier:
        waiting = [copier.submit(torch.ones(1), case_id=str(number)) for number in range(count)]
        if error is not None:
            raise error
    return waiting


def test_a_failed_check_surfaces_through_the_consumer(open_copier):
    """Mutation seen to fail: a failed check is dropped."""
    copier = open_copier(consume=lambda case_id, array: None)
    copier.submit(torch.tensor([1.0, float("inf")]), case_id="hot", check="finite")
    with pytest.raises(InputError, match="of case 'hot'"):
        copier.close()


def test_submitting_does_not_hang_when_the_consumer_fails_while_slots_are_taken(open_copier):
    """Mutation seen to fail: the thread ends at the first error, and later submits wait for slots."""
    gate = threading.Event()

    def consume(case_id, array):
        gate.wait(5)
        raise OSError("gone")

    threading.Timer(0.1, gate.set).start()
    with pytest.raises(RunError, match="gone"):
        submit_many(open_copier(slots=2, consume=consume), 10)


def test_an_exception_in_the_block_is_not_masked_and_nothing_more_is_consumed(open_copier):
    """Mutation seen to fail: the copier is drained although its block failed."""
    seen = []

    def consume(case_id, array):
        time.sleep(0.05)
        seen.append(case_id)

    with pytest.raises(KeyError, match="mine"):
        submit_many(open_copier(consume=consume), 3, error=KeyError("mine"))
    assert len(seen) <= 1
    assert not any(thread.name == "segmeter-host-copier" and thread.is_alive() for thread in threading.enumerate())


@pytest.fixture
def ctrl_c():
    """Send SIGINT to the main thread shortly, with Python's own handler, which a background job does not have."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Timer(0.2, lambda: signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)).start()
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_leaves_a_submit_that_is_blocked(open_copier):
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        submit_many(open_copier(slots=2, patience_s=30), 3)
    assert time.monotonic() - start < 10
