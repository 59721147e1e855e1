"""What only a CUDA device can show; each test has a counterpart on the CPU or on the fake stream."""

import os
import threading

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from segmeter.bridge.arrays import to_numpy, to_torch
from segmeter.bridge.decode import labels_to_numpy
from segmeter.bridge.host_copier import HostCopier

pytestmark = pytest.mark.gpu
ROUNDS = int(os.environ.get("SEGMETER_GPU_ROUNDS", "1000"))


class Crossing(TorchDispatchMode):
    """Adds up the bytes that cross to the host, below everything that Python code can hide them behind."""

    nbytes = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        source = {torch.ops.aten.copy_.default: 1, torch.ops.aten._to_copy.default: 0}.get(func)
        if source is not None and result.is_cpu and not args[source].is_cpu:
            self.nbytes += result.numel() * result.element_size()
        return result


def draw(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def test_a_round_trip_through_the_device_changes_nothing():
    array = np.arange(24, dtype=">u2").reshape(4, 6)[::-1, ::2]
    np.testing.assert_array_equal(to_numpy(to_torch(array, device="cuda")), array)


def test_labels_of_19_classes_cross_as_one_byte_per_pixel():
    logits = torch.zeros(2, 19, 1024, 1024, device="cuda")
    with Crossing() as crossing:
        labels_to_numpy(logits, task="multiclass", num_classes=19)
    assert crossing.nbytes == 2 * 1024 * 1024 + 48, "the labels and the record of the check"


def test_the_synchronous_path_never_waits_for_the_whole_device(monkeypatch):
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *_: pytest.fail("torch.cuda.synchronize was called"))
    ones = torch.ones(10, device="cuda")
    assert to_numpy(ones, dtype="uint8").tolist() == [1] * 10
    assert HostCopier(device="cuda").submit(ones, case_id="a").result().tolist() == [1.0] * 10


def test_a_long_kernel_before_the_copy_never_shows():
    """The copy is queued long before its source is computed; the source is overwritten as soon as it is queued."""
    cycles = 2_000_000  # about 1 ms
    copier = HostCopier(device="cuda")
    for number in range(ROUNDS):
        source = torch.empty(1 << 20, device="cuda")
        torch.cuda._sleep(cycles)
        source.fill_(float(number))
        pending = copier.submit(source, case_id=str(number))
        source.fill_(-1.0)
        del source
        torch.empty(1 << 20, device="cuda").fill_(-2.0)
        array = pending.result()
        assert array.min() == array.max() == number


def test_results_that_nobody_takes_free_nothing_too_early():
    """The next results get the pinned memory of those before, whose copies may still run."""
    copier = HostCopier(device="cuda")
    for number in range(ROUNDS):
        torch.cuda._sleep(200_000)
        copier.submit(torch.full((1 << 16,), -1.0, device="cuda"), case_id="dropped")
        array = copier.submit(torch.full((1 << 16,), float(number), device="cuda"), case_id="kept").result()
        assert array.min() == array.max() == number


def test_pinned_memory_is_constant_after_the_first_submit():
    def pinned():
        return torch.cuda.host_memory_stats()["allocated_bytes.current"]

    copier = HostCopier(device="cuda")
    copier.submit(torch.zeros(1 << 20, device="cuda"), case_id="first").result()
    before = pinned()
    for number in range(100):
        copier.submit(torch.zeros(1 << 20, device="cuda"), case_id=str(number)).result()
        assert pinned() == before


def test_three_threads_submit_ten_thousand_results_under_memory_pressure():
    """Sources are freed at once and their memory is drawn anew, so a copy that came too late would show."""
    rounds = ROUNDS * 10 // 3
    faults = []

    def work(seed):
        generator = torch.Generator(device="cuda").manual_seed(seed)
        for number in range(rounds):
            size = 1000 + 997 * (number % 37)
            source = torch.randint(0, 256, (size,), device="cuda", dtype=torch.uint8, generator=generator)
            expected = source.long().sum()
            pending = copier.submit(source, case_id=f"{seed}-{number}")
            del source
            torch.full((size,), 255, device="cuda", dtype=torch.uint8)
            found = int(pending.result().astype(np.int64).sum())
            if found != int(expected):
                faults.append((seed, number))

    copier = HostCopier(device="cuda")
    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_stream_other_than_the_default_is_followed(asynchronous):
    """The tensor is still being written, on the stream that is current, when its labels are asked for."""
    side = torch.cuda.Stream()
    logits = torch.zeros(1, 3, 256, 256, device="cuda")
    torch.cuda.synchronize()
    copier = HostCopier(device="cuda")
    with torch.cuda.stream(side):
        torch.cuda._sleep(20_000_000)
        logits[:, 2] = 1.0
        if asynchronous:
            pending = copier.submit_labels(logits, case_id="a", task="multiclass", num_classes=3)
            labels = pending.result()
        else:
            labels = labels_to_numpy(logits, task="multiclass", num_classes=3)
    assert (labels == 2).all()
