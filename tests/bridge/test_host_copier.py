import gc
import os
import random
import threading

import numpy as np
import pytest
import torch

from segmeter.bridge import host_copier
from segmeter.bridge.decode import labels_to_numpy, probs_to_numpy
from segmeter.bridge.host_copier import HostCopier
from segmeter.bridge.to_numpy import to_numpy
from segmeter.errors import InputError, RunError
from tests.bridge.fake_stream import FakeTransport
from tests.bridge.tensors import LAYOUTS, NATIVE, WIDE, laid_out, tensor, values


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", [*NATIVE, *WIDE])
def test_results_are_those_of_to_numpy(open_copier, name, layout):
    """Mutation seen to fail: widened to another dtype."""
    with open_copier() as copier:
        array = copier.submit(LAYOUTS[layout](tensor(name)), case_id="a").result()
    assert array.dtype == np.dtype(WIDE.get(name, name))
    assert array.flags.c_contiguous
    np.testing.assert_array_equal(array, laid_out(values(name), layout))


def test_labels_and_probs_are_those_of_the_synchronous_calls(open_copier):
    """Mutation seen to fail: `dtype` is not handed on."""
    logits = torch.randn(2, 4, 5, 6, generator=torch.Generator().manual_seed(1))
    with open_copier() as copier:
        labels = copier.submit_labels(logits, case_id="a", task="multiclass", num_classes=4)
        probs = copier.submit_probs(logits, case_id="a", task="multiclass", dtype="float16")
        np.testing.assert_array_equal(labels.result(), labels_to_numpy(logits, task="multiclass", num_classes=4))
        np.testing.assert_array_equal(probs.result(), probs_to_numpy(logits, task="multiclass", dtype="float16"))
        assert labels.result().dtype == np.uint8


def test_results_are_read_only_and_the_same_on_every_call(open_copier):
    """Mutation seen to fail: _Held without the read-only flag."""
    with open_copier() as copier:
        pending = copier.submit(torch.ones(3), case_id="a")
        array = pending.result()
        assert pending.result() is array
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 2
        with pytest.raises(ValueError, match="WRITEABLE"):
            array.flags.writeable = True


def test_what_the_tensor_held_at_submit_is_what_arrives():
    """Mutation seen to fail: Slot.load without the snapshot."""
    source = torch.arange(5.0)
    with HostCopier(device="cpu", transport=FakeTransport()) as copier:
        pending = copier.submit(source, case_id="a")
        source.fill_(-1)
        assert pending.result().tolist() == [0, 1, 2, 3, 4]


def test_submitting_waits_for_nothing_and_a_result_for_its_own_event():
    """Mutations seen to fail: load waits at once; result waits for the newest event; result without a wait."""
    transport = FakeTransport()
    with HostCopier(device="cpu", transport=transport) as copier:
        first, second = (copier.submit(torch.full((3,), value), case_id=str(value)) for value in (1.0, 2.0))
        assert transport.waits == transport.done == 0
        assert first.result().tolist() == [1, 1, 1]
        assert transport.waits == transport.done == 1
        assert second.result().tolist() == [2, 2, 2]


def test_sources_live_until_their_event():
    """Mutation seen to fail: Slot.load does not keep the sources."""
    with HostCopier(device="cpu", transport=FakeTransport()) as copier:
        pending = copier.submit(torch.arange(4), case_id="a", dtype="uint8")
        gc.collect()
        assert pending.result().tolist() == [0, 1, 2, 3]


def test_payload_and_record_start_together_and_share_one_wait():
    """Mutation seen to fail: the record is copied by itself."""
    transport = FakeTransport()
    with HostCopier(device="cpu", transport=transport) as copier:
        pending = copier.submit(torch.tensor([1, 256]), case_id="late", dtype="uint8")
        assert transport.starts == [[2, 48]]
        with pytest.raises(
            InputError, match=r"min 1 and max 256, 1 bad value\(s\), the first at index \(1,\) of case 'late'"
        ):
            pending.result()
        assert transport.waits == 1


def test_rows_are_owned_and_free_the_slot(open_copier):
    """Mutation seen to fail: the rows without a copy."""
    with open_copier(slots=2, patience_s=0.05) as copier:
        kept = []
        for number in range(6):
            logits = torch.zeros(3, 2, 1, 2)
            logits[number % 3, 1] = 1
            kept.append(list(copier.submit_labels(logits, case_id="a", task="multiclass", num_classes=2).rows()))
            kept.append(list(copier.submit(logits.bfloat16(), case_id="b").rows()))
        for number in range(6):
            assert [row.max() for row in kept[2 * number]] == [index == number % 3 for index in range(3)]
            assert [row.max() for row in kept[2 * number + 1]] == [index == number % 3 for index in range(3)]
        kept[0][0][...] = 7
        assert kept[0][1].max() == kept[2][0].max() == 0


def test_rows_before_the_first_bad_one_come_before_the_error(open_copier):
    """Mutation seen to fail: all rows are given."""
    tensor = torch.tensor([[1, 2], [3, 4], [5, 256], [7, 300]])
    with open_copier(slots=2, patience_s=0.05) as copier:
        for _ in range(4):
            pending = copier.submit(tensor, case_id="batch", dtype="uint8")
            rows = pending.rows()
            assert [next(rows).tolist(), next(rows).tolist()] == [[1, 2], [3, 4]]
            with pytest.raises(InputError, match=r"2 bad value\(s\), the first at index \(2, 1\) of case 'batch'"):
                next(rows)
            with pytest.raises(RunError, match=r"PendingArray.rows: expected an array in use"):
                next(pending.rows())


def test_a_failed_check_is_raised_where_the_result_is_taken_each_time(open_copier):
    """Mutations seen to fail: the record is not read; the slot is not given back."""
    logits = torch.zeros(1, 3, 2, 2)
    logits[0, 1, 1, 0] = float("nan")
    kept = []
    with open_copier(slots=2, patience_s=0.2) as copier:
        for number in range(5):
            pending = copier.submit_labels(logits, case_id=f"case {number}", task="multiclass", num_classes=3)
            for _ in range(2):
                with pytest.raises(
                    InputError, match=rf"\(1 NaN, 0 infinite\).* \(0, 1, 0\) of case 'case {number}'"
                ) as caught:
                    pending.result()
                kept.append((pending, caught.value))
        assert copier.submit(torch.ones(1), case_id="next").result() == 1


@pytest.mark.parametrize("seed", range(30))
def test_random_schedules_never_show_poison_or_another_result(seed):
    """Mutations seen to fail: no snapshot; no wait; slots given back while arrays are alive; sources not kept."""
    rng, generator = random.Random(seed), torch.Generator().manual_seed(seed)
    transport, slots = FakeTransport(seed), rng.randint(2, 4)
    held = []
    with HostCopier(device="cpu", transport=transport, slots=slots, slot_bytes=64, patience_s=1) as copier:
        for number in range(40):
            if len(held) == slots:
                held.pop(rng.randrange(slots))
            held.append(submit_something(copier, rng, generator, str(number)))
            transport.run_some()
            look_at_some(held, rng)


def look_at_some(held, rng):
    """Take some results, release some, and compare every array that is still held."""
    for pending, expected, arrays in held:
        if not arrays and rng.random() < 0.5:
            arrays.append(pending.result()[..., :])
            if rng.random() < 0.5:
                pending.release()
        for array in arrays:
            np.testing.assert_array_equal(array, expected)


def submit_something(copier, rng, generator, case_id):
    """Submit a tensor that is overwritten at once; return the pending array, what must arrive, and room for arrays."""
    source = torch.randint(0, 200, (rng.randint(0, 3), rng.randint(1, 20)), generator=generator)
    source = source.to(rng.choice([torch.uint8, torch.int64, torch.float32, torch.bfloat16]))
    source = source.T if rng.random() < 0.5 else source
    dtype = rng.choice([None, "uint8"])
    expected = to_numpy(source, dtype=dtype, copy=True)
    pending = copier.submit(source, case_id=case_id, dtype=dtype)
    source.fill_(99)
    return pending, expected, []


def test_a_slot_is_used_again_only_when_no_array_on_it_is_left(open_copier):
    """Mutation seen to fail: release gives the slot back although an array is alive."""
    with open_copier(slots=2, patience_s=0.05) as copier:
        first, second = (copier.submit(torch.full((4,), value), case_id=str(value)) for value in (1.0, 2.0))
        view = first.result()[1:3]
        first.release()
        with pytest.raises(RunError, match=r"within 0.05 s, got none. The results of '1.0', '2.0' are still held"):
            copier.submit(torch.zeros(4), case_id="3")
        second.release()
        third = copier.submit(torch.full((4,), 3.0), case_id="3")
        assert view.tolist() == [1, 1]
        del view
        fourth = copier.submit(torch.full((4,), 4.0), case_id="4")
        assert [third.result()[0], fourth.result()[0]] == [3, 4]
        with pytest.raises(RunError, match=r"got a released one of case '1\.0'"):
            first.result()


def test_submitting_blocks_until_a_slot_is_free(open_copier):
    """Mutation seen to fail: PinnedPool.take makes a new slot where none is free."""
    with open_copier(slots=2) as copier:
        waiting = [copier.submit(torch.ones(2), case_id=str(n)) for n in range(2)]
        late = []
        thread = threading.Thread(target=lambda: late.append(copier.submit(torch.zeros(2), case_id="late")))
        thread.start()
        thread.join(0.1)
        assert thread.is_alive()
        waiting.pop().release()
        thread.join(5)
        assert not thread.is_alive()
        assert late[0].result().tolist() == [0, 0]


def test_memory_is_allocated_once():
    """Mutation seen to fail: Slot.load allocates."""
    transport = FakeTransport()
    with HostCopier(device="cpu", transport=transport, slots=3) as copier:
        for size in (1000, 10, 999, 1000):
            copier.submit(torch.zeros(size, dtype=torch.uint8), case_id="a").result()
    assert transport.allocated == [1024, 48] * 3, "the first payload, rounded up to 64 bytes, and the records"


def test_a_ring_made_in_inference_mode_works_outside_of_it(open_copier):
    """Mutation seen to fail: the buffers are made in inference mode."""
    with open_copier() as copier:
        with torch.inference_mode():
            assert copier.submit(torch.ones(2), case_id="inside").result().tolist() == [1, 1]
        for number in range(4):
            assert copier.submit(torch.full((2,), number), case_id="outside").result().tolist() == [number] * 2
            with pytest.raises(InputError, match="fit uint8"):
                copier.submit(torch.tensor([256]), case_id="bad", dtype="uint8").result()


def test_buffers_of_no_given_size_grow_to_powers_of_two():
    """Few are ever made, so that images of many sizes stay on the fast way.

    Mutation seen to fail: grown to the byte.
    """
    transport = FakeTransport()
    with HostCopier(device="cpu", transport=transport, slots=2) as copier:
        for size in (60, 10, 1000, 1001, 65, 1024, 1025, 2000, 2048):
            source = torch.arange(size, dtype=torch.int32).to(torch.uint8)
            assert copier.submit(source, case_id="a").result().tolist() == source.tolist()
    assert sorted(transport.allocated) == [48, 48, 64, 64, 1024, 1024, 2048, 2048]


def test_a_payload_beyond_the_slots_gets_memory_of_its_own(open_copier):
    """Mutation seen to fail: a large payload gets the buffer all the same."""
    with open_copier(slots=2, slot_bytes=8, patience_s=0.05) as copier:
        large = copier.submit(torch.arange(100), case_id="a")
        small = copier.submit(torch.arange(1), case_id="b")
        assert large.result().tolist() == list(range(100))
        with pytest.raises(RunError, match="still held"):
            copier.submit(torch.arange(1), case_id="c")
        assert small.result() == 0


def test_a_result_that_nobody_reads_frees_its_slot():
    """Mutation seen to fail: only a result that was read frees its slot."""
    transport = FakeTransport()
    with HostCopier(device="cpu", transport=transport, slots=2, patience_s=0.05) as copier:
        for number in range(6):
            copier.submit(torch.full((2,), number), case_id="dropped")
        assert copier.submit(torch.tensor([5]), case_id="kept").result() == 5


def test_arrays_outlive_the_copier(open_copier):
    with open_copier() as copier:
        array = copier.submit(torch.arange(3), case_id="a").result()
    del copier
    gc.collect()
    assert array.tolist() == [0, 1, 2]


def test_a_forked_child_is_refused(monkeypatch):
    """Mutation seen to fail: check_process does nothing."""
    copier = HostCopier(device="cpu", transport=FakeTransport())
    pending = copier.submit(torch.ones(1), case_id="a")
    monkeypatch.setattr(os, "getpid", lambda: -1)
    for call in (pending.result, copier.drain, lambda: copier.submit(torch.ones(1), case_id="b")):
        with pytest.raises(RunError, match=r"got a forked child\. Make one in the child"):
            call()


def test_nothing_waits_for_the_whole_device(monkeypatch, open_copier):
    """Mutation seen to fail: a torch.cuda.synchronize() in drain."""

    def refuse(*_):
        raise AssertionError("torch.cuda.synchronize was called")

    monkeypatch.setattr(torch.cuda, "synchronize", refuse)
    taken = []
    with open_copier(consume=lambda case_id, array: taken.append(case_id)) as copier:
        for number in range(5):
            copier.submit(torch.ones(2), case_id=str(number))
        copier.drain()
    assert sorted(taken) == ["0", "1", "2", "3", "4"]


def test_a_closed_copier_refuses(open_copier):
    """Mutation seen to fail: a closed copier works on."""
    copier = open_copier()
    copier.close()
    copier.close()
    with pytest.raises(RunError, match="got a closed one"):
        copier.submit(torch.ones(1), case_id="a")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"slots": 1}, "`slots` >= 2, got 1"),
        ({"slot_bytes": 0}, "`slot_bytes` >= 1, got 0"),
        ({"patience_s": 0}, "`patience_s` > 0, got 0"),
    ],
)
def test_numbers_out_of_range_are_refused(more, message):
    """Mutation seen to fail: one slot is enough."""
    with pytest.raises(InputError, match=message):
        HostCopier(device="cpu", **more)


def test_tensors_of_another_device_and_bad_arguments_cost_no_slot(open_copier):
    """Mutation seen to fail: the slot is not given back when packing fails."""
    with open_copier(slots=2, slot_bytes=64, patience_s=0.05) as copier:
        for _ in range(3):
            with pytest.raises(InputError, match="a meta tensor"):
                copier.submit(torch.ones(1, device="meta"), case_id="a")
            with pytest.raises(InputError, match="`dtype` to be one of auto"):
                copier.submit_labels(torch.ones(1, 2, 1, 1), case_id="a", task="multiclass", num_classes=2, dtype="x")
        assert copier.submit(torch.ones(1), case_id="b").result() == 1


def test_the_public_name_is_this_class():
    import segmeter

    assert segmeter.HostCopier is host_copier.HostCopier
