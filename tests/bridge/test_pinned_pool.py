"""The slots of the pinned pool, on the fake stream: their sizes, who holds them, and when they are free again."""

import gc

import numpy as np
import pytest
import torch

from segmeter.bridge.pinned_pool import ALIGNMENT, PinnedPool, check_process
from segmeter.bridge.to_numpy import pack
from segmeter.errors import InputError, RunError
from tests.bridge.fake_stream import FakeTransport


def make_pool(*, slot_bytes=64, grows=False):
    return PinnedPool(FakeTransport(), slots=2, slot_bytes=slot_bytes, grows=grows)


def start(pool, tensor, case_id="a", dtype=None):
    transfer = pack("test", tensor, None if dtype is None else np.dtype(dtype), "raise")
    return pool.start_copy(pool.take(0.05), transfer, case_id)


@pytest.mark.parametrize("nbytes", [1, 63, 64, 65, 1000])
def test_a_buffer_is_the_next_multiple_of_the_alignment(nbytes):
    sizes = {slot.capacity for slot in make_pool(slot_bytes=nbytes).slots}
    assert sizes == {(nbytes + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT}


def test_a_slot_is_held_until_the_copy_and_its_arrays_are_gone():
    pool = make_pool()
    first, second = start(pool, torch.arange(4), "first"), start(pool, torch.arange(3), "second")
    array = first.array("first")
    view, _ = array[1:], second
    del first, array
    with pytest.raises(RunError, match=r"within 0.05 s, got none. The results of 'first', 'second' are still held"):
        pool.take(0.05)
    assert view.tolist() == [1, 2, 3]
    del view
    gc.collect()
    assert pool.take(0.05) is pool.slots[0]


def test_the_array_lies_in_the_slot_and_the_rows_do_not():
    pool = make_pool()
    slots = [slot.buffer.numpy() for slot in pool.slots]
    array = start(pool, torch.arange(4)).array("a")
    assert any(np.shares_memory(array, slot) for slot in slots)
    assert not array.flags.writeable
    rows, fault = start(pool, torch.arange(4)).rows("a")
    assert fault is None
    assert rows.tolist() == [0, 1, 2, 3]
    assert rows.flags.writeable
    assert not any(np.shares_memory(rows, slot) for slot in slots)


def test_a_failed_check_gives_the_rows_before_it_and_frees_the_slot():
    pool, batch = make_pool(), torch.tensor([[1, 2], [3, 4], [5, 300]])
    rows, fault = start(pool, batch, dtype="uint8").rows("batch 7")
    assert rows.tolist() == [[1, 2], [3, 4]]
    assert "the first at index (2, 1) of case 'batch 7'" in str(fault)
    failed = start(pool, batch, dtype="uint8")
    with pytest.raises(InputError, match="max 300"):
        failed.array("again")
    assert {pool.take(0.05), pool.take(0.05)} == set(pool.slots)


def test_what_does_not_fit_grows_the_slot_to_a_power_of_two_or_gets_its_own_memory():
    pool = make_pool(grows=True)
    assert start(pool, torch.arange(100)).array("a").tolist() == list(range(100))
    assert pool.slots[0].capacity == 1024  # of 800 bytes
    fixed = make_pool()
    array = start(fixed, torch.arange(100)).array("a")
    assert fixed.slots[0].capacity == 64
    assert array.tolist() == list(range(100))
    assert not np.shares_memory(array, fixed.slots[0].buffer.numpy())


def test_a_slot_that_could_not_grow_keeps_its_buffer(monkeypatch):
    """Its size was noted first, and the next payload was written beyond the buffer's end."""
    pool = make_pool(grows=True)
    with monkeypatch.context() as full:
        full.setattr(FakeTransport, "allocate", lambda self, nbytes: torch.empty(-1))
        for slot in list(pool.slots):
            with pytest.raises(RuntimeError):
                start(pool, torch.arange(100))
            assert slot.capacity == slot.buffer.numel() == 64
    assert start(pool, torch.arange(100)).array("a").tolist() == list(range(100))


def test_another_process_is_refused():
    with pytest.raises(RunError, match=r"got a forked child\. Make one in the child"):
        check_process(-1)
