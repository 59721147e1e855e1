import threading
import time
from functools import partial

import numpy as np
import pytest
import torch

from segmeter.errors import DataError
from segmeter.training.data.batches import Batches, RandomNumbers, Samples
from tests.training.tiny import TinyCases, TinySource


class CountingSource:
    """Five batches per epoch of one value each; notes what was asked for, and by whom."""

    def __init__(self, dtype=np.uint8):
        self.asked = []
        self.threads = set()
        self.torch_threads = set()
        self.dtype = dtype

    def __len__(self):
        return 5

    def batch(self, epoch, index, progress):
        self.asked.append((epoch, index, progress))
        self.threads.add(threading.current_thread().name)
        self.torch_threads.add(torch.get_num_threads())
        value = 10 * epoch + index
        return Samples(
            np.full((1, 2, 3, 3), value, np.uint8),
            np.full((1, 2, 3), value, self.dtype),
            np.array([value], np.int64),
        )


def open_batches(source, *, first=0, workers=0, **values):
    cpu = torch.device("cpu")
    return Batches(source, first=first, progress=lambda number: number / 100, workers=workers, device=cpu, **values)


def take_all(batches, count):
    return [batches.next_batch() for _ in range(count)]


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_batches_come_in_order_across_epochs_whatever_the_workers(workers):
    source = CountingSource()
    with open_batches(source, first=3, workers=workers) as batches:
        taken = take_all(batches, 8)
    assert sorted(source.asked)[:3] == [(0, 3, 0.03), (0, 4, 0.04), (1, 0, 0.05)]  # epoch, batch, part of the run
    assert [int(batch.indices[0]) for batch in taken] == [3, 4, 10, 11, 12, 13, 14, 20]
    assert taken[2].image.shape == (1, 3, 2, 3)
    assert taken[2].image.unique().tolist() == [10]
    assert batches.waited > 0


@pytest.mark.parametrize(("workers", "ahead"), [(0, 1), (1, 2), (3, 4)])
def test_no_more_batches_are_prepared_than_workers_and_one(workers, ahead):
    source = CountingSource()
    with open_batches(source, workers=workers) as batches:
        batches.next_batch()
        deadline = time.monotonic() + 5
        while len(source.asked) < ahead and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.05)  # for one too many
        assert len(source.asked) == ahead
    assert ("MainThread" in source.threads) == (workers == 0)


@pytest.mark.parametrize(("workers", "threads"), [(0, 3), (2, 1)])
def test_workers_leave_the_cores_to_the_step(request, workers, threads):
    request.addfinalizer(partial(torch.set_num_threads, torch.get_num_threads()))
    torch.set_num_threads(3)
    source = CountingSource()
    with open_batches(source, workers=workers) as batches:
        take_all(batches, 8)
        assert source.torch_threads == {threads}
        assert torch.get_num_threads() == 3
    later = []
    thread = threading.Thread(target=lambda: later.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    assert later == [3]


def test_draws_travel_with_their_batch_and_are_drawn_where_it_is_prepared():
    threads = set()

    def draw(*, epoch, indices, channels):
        threads.add(threading.current_thread().name)
        return RandomNumbers(torch.full((1, channels), float(indices[0])), (epoch,))

    with open_batches(CountingSource(), first=3, workers=2, random_numbers=draw) as batches:
        taken = take_all(batches, 3)
    assert [batch.random_numbers.table.tolist() for batch in taken] == [[[3.0] * 3], [[4.0] * 3], [[10.0] * 3]]
    assert [batch.random_numbers.seeds for batch in taken] == [(0,), (0,), (1,)]
    assert "MainThread" not in threads
    moved = taken[0].moved(lambda tensors: [tensor.to("meta") for tensor in tensors])
    assert {tensor.device.type for tensor in (moved.image, moved.target, moved.random_numbers.table)} == {"meta"}
    assert moved.random_numbers.seeds == taken[0].random_numbers.seeds


def test_images_are_channels_last_and_wide_targets_are_what_torch_computes_with():
    with open_batches(CountingSource(np.uint16)) as batches:
        batch = batches.next_batch()
    assert batch.image.is_contiguous(memory_format=torch.channels_last)
    assert batch.target.dtype == torch.int32


@pytest.mark.parametrize("workers", [0, 2])
def test_an_error_comes_out_with_the_name_of_its_file(workers):
    source = TinySource(TinyCases(broken=(3,)))
    with open_batches(source, first=7, workers=workers) as batches:
        with pytest.raises(DataError, match=r"images/case03\.png: is truncated"):
            take_all(batches, 8)
