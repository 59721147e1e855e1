"""Prepares batches ahead of their step, in threads. The threads never change which batch comes when."""

import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.profiler import record_function

from segmeter.bridge.arrays import indexable, to_torch
from segmeter.bridge.host_copier import Uploader
from segmeter.parallel import map_in_threads
from segmeter.training.data.windows import Resizing, resize_batch


class Samples(NamedTuple):
    """The samples of a batch as they are stored, and the resizing that is left to the device, if any.

    The image is (B, H, W, C), and the target (B, H, W) or (B, K, H, W). `indices` holds the number of each sample,
    int64 (B,): its case's, plus the number of cases for each time that the epoch had the case before.
    """

    image: NDArray[Any]
    target: NDArray[Any]
    indices: NDArray[np.int64]
    resizing: Resizing | None = None


class BatchSource(Protocol):
    """Makes a batch from its position alone: the same epoch, index and progress give equal arrays, from any thread."""

    @property
    def batch_size(self) -> int:
        """Samples per batch, of all processes together."""

    def __len__(self) -> int:
        """Return the batches per epoch."""

    def batch(self, epoch: int, index: int, progress: float) -> Samples:
        """Return the samples of one batch.

        `progress` is how far the run will be, 0 to 1. The resolution of the batch may follow it.
        """


class RandomNumbers(NamedTuple):
    """All random numbers for the augmentation of a batch, drawn on the host.

    Parameters
    ----------
    table : (B, N), float32
        In 0 to 1; goes to the device with the batch.
    seeds : (B,)
        Seeds of the noise, which is computed on the device.
    """

    table: Tensor
    seeds: tuple[int, ...]


class Augmentation(Protocol):
    """Changes a batch on its device. All random numbers come from the host, from seed, epoch and index alone."""

    def draw(self, *, seed: int, epoch: int, indices: NDArray[np.int64], channels: int) -> RandomNumbers: ...

    def __call__(self, image: Tensor, target: Tensor, random_numbers: RandomNumbers) -> tuple[Tensor, Tensor]: ...


@dataclass(frozen=True, kw_only=True)
class Batch:
    """The input of one forward pass: image (B, C, H, W), target, where they come from, and how they will be changed."""

    image: Tensor
    target: Tensor
    indices: NDArray[np.int64]
    random_numbers: RandomNumbers | None = None
    resizing: Resizing | None = None

    def moved(self, move: Callable[[list[Tensor]], Sequence[Tensor]]) -> Self:
        """Return the batch with those tensors moved that have to be on the device."""
        if self.random_numbers is None:
            image, target = move([self.image, self.target])
            return replace(self, image=image, target=target)
        image, target, table = move([self.image, self.target, self.random_numbers.table])
        return replace(self, image=image, target=target, random_numbers=self.random_numbers._replace(table=table))


class Batches(AbstractContextManager["Batches"]):
    """Batches in order, from any first one on; `workers` threads prepare up to `workers` + 1 of them ahead.

    Threads suffice, as decoders release the GIL. So nothing is copied between processes, and all signals and errors
    arrive in this one. The threads start with the first `next_batch`.

    Parameters
    ----------
    source
        Where batches come from.
    first
        Number of the first batch, counted from the start of the run.
    progress
        From the number of a batch to how far the run is then, 0 to 1. Called in the caller's thread when a batch is
        begun, so the part that follows a time budget is that of up to `workers` + 1 batches before.
    workers
        Threads; 0 prepares each batch on demand.
    device
        Where batches go. A GPU copies them from page-locked memory on a stream of its own during the step before, and
        only the kernels that need a batch wait for it.
    random_numbers
        `Augmentation.draw` with a seed, called in any thread; or None.
    """

    def __init__(
        self,
        source: BatchSource,
        *,
        first: int,
        progress: Callable[[int], float],
        workers: int,
        device: torch.device,
        random_numbers: Callable[..., RandomNumbers] | None = None,
    ) -> None:
        self._source = source
        self._random_numbers = random_numbers
        self._uploader = Uploader(device)
        self.waited = 0.0
        self._batches: Generator[Batch, None, None]
        positions = ((number, progress(number)) for number in count(first))
        if workers:
            start = partial(_use_one_thread, torch.get_num_threads())
            self._batches = map_in_threads(
                self._prepare, positions, threads=workers, ahead=workers + 1, name="batches", start=start
            )
        else:
            self._batches = (self._prepare(position) for position in positions)

    def __exit__(self, *error: object) -> None:
        self._batches.close()

    def next_batch(self) -> Batch:
        """Return the next batch. The seconds that this took are added to `waited`."""
        start = time.perf_counter()
        batch = next(self._batches)
        self.waited += time.perf_counter() - start
        return batch.moved(self._uploader.move)

    def _prepare(self, position: tuple[int, float]) -> Batch:
        number, progress = position
        epoch, index = divmod(number, len(self._source))
        image, target, indices, resizing = self._source.batch(epoch, index, progress)
        random_numbers = None
        if self._random_numbers is not None:
            random_numbers = self._random_numbers(epoch=epoch, indices=indices, channels=image.shape[-1])
        batch = Batch(
            image=to_torch(image).permute(0, 3, 1, 2),
            target=to_torch(indexable(target)),
            indices=indices,
            random_numbers=random_numbers,
            resizing=resizing,
        )
        on_gpu = self._uploader.device.type == "cuda"
        return batch.moved(lambda tensors: [tensor.pin_memory() for tensor in tensors]) if on_gpu else batch


def _use_one_thread(for_others: int) -> None:
    """Let torch compute with one thread in this thread, so that resizing takes no cores from the step.

    torch fixes a thread's count when it first computes, from the global setting. So this thread sets its count to 1,
    and another thread then restores the global setting.
    """
    torch.get_num_threads()
    torch.set_num_threads(1)
    restoring = threading.Thread(target=torch.set_num_threads, args=(for_others,))
    restoring.start()
    restoring.join()


@record_function("segmeter.augment")
def augmented(batch: Batch, augment: Augmentation | None) -> tuple[Tensor, Tensor]:
    """Resize and augment a batch on its device. Image and target are the same on every call; nothing waits."""
    image, target = batch.image, batch.target
    if batch.resizing is not None:
        image, target = resize_batch(image, target, batch.resizing)
    if augment is None:
        return image, target
    assert batch.random_numbers is not None  # `Batches` makes them wherever there is an augmentation
    with torch.no_grad():
        return augment(image, target, batch.random_numbers)
