import logging
import random
from unittest.mock import MagicMock, call

import numpy as np
import pytest
import torch

from segmeter.bridge import host_copier
from segmeter.bridge.arrays import to_numpy
from segmeter.bridge.host_copier import CudaTransport, HostCopier, Transport, Uploader, open_transport
from segmeter.errors import InputError
from tests.bridge.fake_stream import POISON, FakeTransport

DEVICES = {"cpu": lambda: None, "fake stream": FakeTransport}


@pytest.fixture(params=DEVICES)
def open_copier(request):
    """Make a copier on the CPU, with plain copies or with those of the fake stream."""
    return lambda **more: HostCopier(device="cpu", transport=DEVICES[request.param](), **more)


def test_submitting_waits_for_nothing_and_a_result_for_its_own_event():
    transport = FakeTransport()
    copier = HostCopier(device="cpu", transport=transport)
    first, second = (copier.submit(torch.full((3,), value), case_id=str(value)) for value in (1.0, 2.0))
    bad = copier.submit(torch.tensor([1, 256]), case_id="late", dtype="uint8")
    assert transport.waits == transport.done == 0
    assert transport.starts[2] == [2, 48], "payload and record start together"
    for number, pending in enumerate((first, second), 1):
        assert pending.result().tolist() == [number] * 3
        assert transport.waits == transport.done == number
    with pytest.raises(InputError, match=r"1 bad value\(s\), the first at index \(1,\) of case 'late'"):
        bad.result()
    assert transport.waits == 3


def test_a_failed_check_is_raised_where_the_result_is_taken_each_time(open_copier):
    logits = torch.zeros(1, 3, 2, 2)
    logits[0, 1, 1, 0] = float("nan")
    copier = open_copier()
    for number in range(5):
        pending = copier.submit_labels(logits, case_id=f"case {number}", task="multiclass", num_classes=3)
        for _ in range(2):
            with pytest.raises(InputError, match=rf"\(1 NaN, 0 infinite\).* \(0, 1, 0\) of case 'case {number}'"):
                pending.result()
    assert copier.submit(torch.ones(1), case_id="next").result() == 1


def submit_something(copier, rng, generator, case_id):
    """Submit a tensor that is overwritten at once; return the pending array and what must arrive."""
    source = torch.randint(0, 200, (rng.randint(0, 3), rng.randint(1, 20)), generator=generator)
    source = source.to(rng.choice([torch.uint8, torch.int64, torch.float32, torch.bfloat16]))
    source = source.T if rng.random() < 0.5 else source
    dtype = rng.choice([None, "uint8"])
    expected = to_numpy(source, dtype=dtype, copy=True)
    pending = copier.submit(source, case_id=case_id, dtype=dtype)
    source.fill_(99)
    return pending, expected


def test_results_are_owned_by_the_caller_and_the_same_on_every_call(open_copier):
    source, copier = torch.ones(3), open_copier()
    pending, other = copier.submit(source, case_id="a"), copier.submit(source, case_id="b")
    pending.result()[0] = 2
    assert pending.result().tolist() == [2, 1, 1]
    assert source.tolist() == other.result().tolist() == [1, 1, 1]


@pytest.mark.parametrize("seed", range(8))
def test_random_schedules_never_show_poison_or_another_result(seed):
    rng, generator = random.Random(seed), torch.Generator().manual_seed(seed)
    transport = FakeTransport(seed)
    copier, held = HostCopier(device="cpu", transport=transport), []
    for number in range(40):
        held.append(submit_something(copier, rng, generator, str(number)))
        transport.run_some()
        for pending, expected in held:
            if rng.random() < 0.3:
                np.testing.assert_array_equal(pending.result(), expected)
    for pending, expected in held:
        np.testing.assert_array_equal(pending.result(), expected)


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int32", "float32", "bool", ">u2"])
@pytest.mark.parametrize("turn", [lambda x: x, np.flipud, np.asfortranarray], ids=["plain", "flipped", "Fortran"])
def test_arrays_arrive_as_they_are(dtype, turn):
    arrays = [turn(np.arange(number, number + 12).reshape(3, 4).astype(dtype)) for number in range(2)]
    kept = [array.copy() for array in arrays]
    tensor = Uploader("cpu")(arrays)
    arrays[0][:] = 0
    assert tensor.dtype == getattr(torch, np.dtype(dtype).newbyteorder("=").name)
    np.testing.assert_array_equal(tensor.numpy(), np.stack(kept))


@pytest.fixture
def asked(monkeypatch):
    """Keeps in order what is asked of CUDA, of pinned memory and of the tensors that are its attributes."""
    made = MagicMock(**{"cuda.current_device.return_value": 0, "cuda.device_count.return_value": 1})
    monkeypatch.setattr(torch, "cuda", made.cuda)
    monkeypatch.setattr(host_copier, "empty_pinned", lambda shape, dtype: made.host)
    return made


def test_uploads_run_beside_the_computation_which_waits_for_them_in_their_order(asked):
    upload = Uploader("cuda")
    asked.reset_mock()
    assert upload.move([asked.image, asked.target]) == [asked.image.to(), asked.target.to()]
    side, current = asked.cuda.Stream.return_value, asked.cuda.current_stream.return_value
    assert asked.mock_calls[:-2] == [
        call.cuda.current_stream(upload.device),
        call.cuda.stream(side),
        call.cuda.stream().__enter__(),
        call.image.to(upload.device, non_blocking=True),
        call.target.to(upload.device, non_blocking=True),
        call.cuda.stream().__exit__(None, None, None),
        call.cuda.current_stream().wait_stream(side),
        call.image.to().record_stream(current),
        call.target.to().record_stream(current),
    ]


@pytest.mark.gpu
def test_uploads_arrive_whole_while_the_device_is_busy():
    """The buffers are filled again while earlier copies and kernels are under way, and memory is freed and reused."""
    upload = Uploader("cuda")
    sums = []
    for number in range(500):
        torch.cuda._sleep(200_000)
        tensor = upload([np.full((256, 256), number % 251, np.uint8)] * (1 + number % 3))
        sums.append((tensor.int().amin(), tensor.int().amax()))
        del tensor
    assert [(int(low), int(high)) for low, high in sums] == [(number % 251,) * 2 for number in range(500)]


@pytest.mark.gpu
def test_an_upload_does_not_wait_for_the_device():
    upload = Uploader("cuda")
    upload([np.zeros((512, 512), np.uint8)])
    torch.cuda.set_sync_debug_mode("error")
    try:
        torch.cuda._sleep(500_000_000)
        busy = torch.cuda.Event()
        busy.record()
        upload([np.zeros((512, 512), np.uint8)])
        assert not busy.query(), "the upload returned only after the kernel before it"
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_the_fake_stream_shows_reading_early_and_sources_that_are_overwritten_or_freed():
    """Otherwise the tests that use it prove nothing."""
    transport, source = FakeTransport(), torch.arange(4.0)
    (early,), event = transport.start([source])  # and taken at once
    assert (early.numpy().view("uint8") == POISON).all()
    source.fill_(9)
    transport.wait(event)
    assert early.tolist() == [9, 9, 9, 9]
    _, event = transport.start([torch.arange(4.0)])
    with pytest.raises(AssertionError, match="freed while its copy was in flight"):
        transport.wait(event)


def test_the_side_stream_waits_then_copies_without_blocking_then_records(asked):
    transport = CudaTransport(torch.device("cuda"))
    assert transport.device == torch.device("cuda", 0)
    _, event = transport.start([asked.x, asked.y])
    transport.wait(event)
    side, current = asked.cuda.Stream.return_value, asked.cuda.current_stream.return_value
    assert [each for each in asked.mock_calls if ".shape" not in each[0]][2:] == [
        call.cuda.current_stream(transport.device),
        call.cuda.Stream().wait_stream(current),
        call.cuda.stream(side),
        call.cuda.stream().__enter__(),
        call.host.copy_(asked.x, non_blocking=True),
        call.x.record_stream(side),
        call.host.copy_(asked.y, non_blocking=True),
        call.y.record_stream(side),
        call.cuda.Event(),
        call.cuda.Event().record(side),
        call.cuda.stream().__exit__(None, None, None),
        call.cuda.Event().synchronize(),
    ]


def test_where_pinning_fails_plain_memory_serves_with_one_warning(monkeypatch, caplog):
    host_copier._warn_once.cache_clear()
    real = torch.empty

    def refuse(*shape, pin_memory=False, **more):
        if pin_memory:
            raise RuntimeError("cannot pin")
        return real(*shape, **more)

    monkeypatch.setattr(torch, "empty", refuse)
    with caplog.at_level(logging.WARNING):
        assert [host_copier.empty_pinned((64,), torch.uint8).shape for _ in range(3)] == [(64,)] * 3
    assert caplog.messages == ["host memory could not be pinned, copies are slower: cannot pin"]


def test_the_cpu_copies_at_once_and_says_so_once(caplog):
    """Who brings the transport knows it."""
    host_copier._warn_once.cache_clear()
    plain = open_transport(torch.device("cpu"))
    assert type(plain) is Transport
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            HostCopier(device="cpu")
            HostCopier(device="cpu", transport=plain)
    assert caplog.messages == ["results from cpu are copied at once: nothing overlaps, the values are the same"]
    assert plain.start([torch.ones(2)])[0][0].tolist() == [1, 1]
