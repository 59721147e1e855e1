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

from segmeter.bridge.arrays import to_torch
from segmeter.bridge.host_copier import Uploader
from segmeter.parallel import map_in_threads
from segmeter.training.data.windows import Resizing, resize_batch


class Windows(NamedTuple):
    """Samples as stored, and the resizing that is left to the device, if any."""

    image: NDArray[Any]
    target: NDArray[Any]
    indices: NDArray[np.int64]
    resizing: Resizing | None = None


class BatchSource(Protocol):
    """Makes a batch from its position alone: the same epoch, index and progress give equal arrays, from any thread."""

    def __len__(self) -> int:
        """Return the batches per epoch."""

    def batch(self, epoch: int, index: int, progress: float) -> tuple[Any, ...]:
        """Return `Windows` or its first three: image (B, H, W, C), target (B, H, W) or (B, K, H, W), and the number of
        each sample, int64 (B,).

        A sample's number is its case's, plus the number of cases for each time that the epoch had the case before.
        `progress` is how far the run will be, 0 to 1. The resolution of the batch may follow it.
        """


class Draws(NamedTuple):
    """All random numbers for the augmentation of a batch, drawn on the host.

    Parameters
    ----------
    table : (B, N), float32
        In 0 to 1; goes to the device with the batch.
    seeds : (B,)
        Seeds of the noise, which is drawn on the device.
    """

    table: Tensor
    seeds: tuple[int, ...]


class Augmentation(Protocol):
    """Changes a batch on its device. All draws are made on the host, from seed, epoch and index alone."""

    def draw(self, *, seed: int, epoch: int, indices: NDArray[np.int64], channels: int) -> Draws: ...

    def __call__(self, image: Tensor, target: Tensor, draws: Draws) -> tuple[Tensor, Tensor]: ...


@dataclass(frozen=True, kw_only=True)
class Batch:
    """The input of one forward pass: image (B, C, H, W), target, where they come from, and how they will be changed."""

    image: Tensor
    target: Tensor
    indices: NDArray[np.int64]
    draws: Draws | None = None
    resizing: Resizing | None = None

    def moved(self, move: Callable[[list[Tensor]], Sequence[Tensor]]) -> Self:
        """Return the batch with those tensors moved that have to be on the device."""
        image, target, *table = move([self.image, self.target, *([] if self.draws is None else [self.draws.table])])
        draws = None if self.draws is None else self.draws._replace(table=table[0])
        return replace(self, image=image, target=target, draws=draws)


class Batches(AbstractContextManager["Batches"]):
    """Batches in order, from any first one; `workers` threads prepare up to `workers` + 1 of them ahead.

    Threads suffice, as decoders release the interpreter. Nothing is copied between processes, and signals and errors
    reach one place.

    Parameters
    ----------
    source
        Where batches come from.
    first
        Number of the first batch, counted from the start of the run.
    progress
        Number of a batch -> how far the run is then, 0 to 1. Called in the caller's thread.
    workers
        Threads; 0 prepares each batch on demand.
    device
        Where batches go. A GPU copies them from page-locked memory on a stream of its own during the step before, and
        only the kernels that need a batch wait for it.
    draw
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
        draw: Callable[..., Draws] | None = None,
    ) -> None:
        self._source = source
        self._draw = draw
        self._uploader = Uploader(device)
        places = ((number, progress(number)) for number in count(first))
        self._batches: Generator[Batch, None, None] = (self._prepare(place) for place in places)
        if workers:
            pool: dict[str, Any] = {"threads": workers, "ahead": workers + 1, "name": "batches"}
            alone = partial(_compute_alone, torch.get_num_threads())
            self._batches = map_in_threads(self._prepare, places, **pool, start=alone)
        self.waited = 0.0

    def __exit__(self, *error: object) -> None:
        self._batches.close()

    def next_batch(self) -> Batch:
        """Return the next batch. The seconds that this took are added to `waited`."""
        start = time.perf_counter()
        batch = next(self._batches)
        self.waited += time.perf_counter() - start
        return batch.moved(self._uploader.move)

    def _prepare(self, place: tuple[int, float]) -> Batch:
        number, progress = place
        epoch, index = divmod(number, len(self._source))
        image, target, indices, resizing = Windows(*self._source.batch(epoch, index, progress))
        labels = to_torch(target)
        batch = Batch(
            image=to_torch(image).permute(0, 3, 1, 2),
            target=labels.int() if target.dtype == np.uint16 else labels,  # torch compares and indexes no uint16
            indices=indices,
            draws=self._draw and self._draw(epoch=epoch, indices=indices, channels=image.shape[-1]),
            resizing=resizing,
        )
        on_gpu = self._uploader.device.type == "cuda"
        return batch.moved(lambda tensors: [each.pin_memory() for each in tensors]) if on_gpu else batch


def _compute_alone(others: int) -> None:
    """Let torch compute with one thread in this thread, so that resizing takes no cores from the step.

    A thread that computes for the first time gets the number that was last set anywhere. So this thread takes its
    number first, and another thread then sets `others` again.
    """
    torch.get_num_threads()
    torch.set_num_threads(1)
    restoring = threading.Thread(target=torch.set_num_threads, args=(others,))
    restoring.start()
    restoring.join()


@record_function("segmeter.augment")
def augmented(batch: Batch, augment: Augmentation | None) -> tuple[Tensor, Tensor]:
    """Return image and target as the forward pass takes them, the same ones on every call; nothing waits for the
    device.
    """
    image, target = batch.image, batch.target
    if batch.resizing is not None:
        image, target = resize_batch(image, target, batch.resizing)
    if augment is None:
        return image, target
    assert batch.draws is not None  # `Batches` draws wherever there is an augmentation
    with torch.no_grad():
        return augment(image, target, batch.draws)
