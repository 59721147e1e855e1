"""Number of a batch -> batch, prepared ahead by threads; which batch it is never depends on them."""

import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from segmeter.bridge.to_torch import to_torch
from segmeter.errors import RunError, SegmeterError

Arrays = tuple[NDArray[Any], NDArray[Any], NDArray[np.int64]]


class BatchSource(Protocol):
    """Gives a batch by its place alone: the same epoch, index and progress give the same arrays, from any thread."""

    def __len__(self) -> int:
        """Batches per epoch."""

    def batch(self, epoch: int, index: int, progress: float) -> Arrays:
        """Image (B, H, W, C), target (B, H, W) or (B, K, H, W), and the number of each sample, int64 (B,).

        A number is that of the case, plus the number of cases for each time that the epoch had the case before.

        `progress` is how far the run will be, 0 to 1; the resolution of the batch may follow it.
        """


@dataclass(frozen=True, kw_only=True)
class Batch:
    """What one forward pass is fed: image (B, C, H, W) and target, on the host, and where they come from."""

    image: Tensor
    target: Tensor
    indices: NDArray[np.int64]
    epoch: int


class Batches:
    """Batches in order, from any first one; `workers` threads prepare up to `workers` + 1 of them ahead.

    Threads, not processes: decoders free the interpreter, nothing is copied between processes, and a signal or an
    error reaches one place.

    Parameters
    ----------
    source
        Where batches come from.
    first
        Number of the first batch, counted from the start of the run.
    progress
        Number of a batch -> how far the run is then, 0 to 1. Asked in the calling thread.
    workers
        Threads; 0 prepares each batch when it is asked for.
    pin
        Put batches into page-locked memory, from which they travel to a GPU without a stop.
    """

    def __init__(
        self, source: BatchSource, *, first: int, progress: Callable[[int], float], workers: int, pin: bool
    ) -> None:
        self._source = source
        self._progress = progress
        self._next = first
        self._pin = pin
        self._ahead: deque[Future[Batch]] = deque()
        self._depth = workers + 1
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="batches") if workers else None
        self.waited = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool:
            self._pool.shutdown(wait=True, cancel_futures=True)

    def take(self) -> Batch:
        """The next batch; the time that this took adds to `waited`, in seconds.

        Raises
        ------
        SegmeterError
            What reading a file led to, as it was raised; anything else as a RunError that names the batch.
        """
        start = time.perf_counter()
        batch = self._prepare(*self._reserve()) if self._pool is None else self._from_pool(self._pool)
        self.waited += time.perf_counter() - start
        return batch

    def _from_pool(self, pool: ThreadPoolExecutor) -> Batch:
        while len(self._ahead) < self._depth:
            self._ahead.append(pool.submit(self._prepare, *self._reserve()))
        return self._ahead.popleft().result()

    def _reserve(self) -> tuple[int, float]:
        self._next += 1
        return self._next - 1, self._progress(self._next - 1)

    def _prepare(self, number: int, progress: float) -> Batch:
        epoch, index = divmod(number, len(self._source))
        try:
            image, target, indices = self._source.batch(epoch, index, progress)
            # torch compares and indexes no uint16
            labels = to_torch(target, dtype="int32" if target.dtype == np.uint16 else None)
            tensors = [to_torch(image).permute(0, 3, 1, 2), labels]
        except SegmeterError:
            raise
        except Exception as error:
            message = (
                f"training: batch {index} of epoch {epoch} could not be prepared: {type(error).__name__}: {error}."
            )
            raise RunError(message) from error
        if self._pin:
            tensors = [tensor.pin_memory() for tensor in tensors]
        return Batch(image=tensors[0], target=tensors[1], indices=indices, epoch=epoch)


def to_device(batch: Batch, device: torch.device) -> tuple[Tensor, Tensor]:
    """Image and target on `device`; the copy is queued, not waited for."""
    return batch.image.to(device, non_blocking=True), batch.target.to(device, non_blocking=True)
