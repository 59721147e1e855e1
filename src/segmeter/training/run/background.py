"""Work that must be done, but not now -> a thread, one piece at a time; a failure surfaces at the next call."""

import logging
from collections.abc import Callable, Container, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor

_LOG = logging.getLogger(__name__)


class Background:
    """Runs one piece of work at a time in a thread of its own.

    Examples
    --------
    >>> done = []
    >>> background = Background("doctest")
    >>> background.start(lambda: done.append(1))
    >>> background.close()
    >>> done
    [1]
    """

    def __init__(self, name: str) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._running: Future[None] | None = None

    def start(self, work: Callable[[], None]) -> None:
        """Wait for the work before, raise what it raised, and start this."""
        self.wait()
        self._running = self._pool.submit(work)

    def check(self) -> None:
        """Raise what finished work raised; unfinished work is not waited for."""
        if self._running is not None and self._running.done():
            self.wait()

    def wait(self) -> None:
        """Wait for the work, and raise what it raised, once."""
        running, self._running = self._running, None
        if running is not None:
            running.result()

    def close(self) -> None:
        """Wait for the work; a failure that nobody asked for is logged, as another error may be on its way."""
        try:
            self.wait()
        except Exception as error:
            _LOG.error("%s", error)
        finally:
            self._pool.shutdown()


Copy = tuple[Tensor, Tensor]  # (to, from)


def snapshot(value: Any, *, later: Container[int] = ()) -> tuple[Any, list[Copy]]:
    """Copy nested containers and their tensors, each on its device; on a GPU the copies are queued, not waited for.

    Parameters
    ----------
    value
        Dicts, lists and tuples of tensors and plain values. Two names of the same view stay that.
    later
        Addresses of storages, as `address` gives them, that are not copied yet.

    Returns
    -------
    The copy, and what is still to be copied into it.
    """
    copies: dict[Any, Tensor] = {}
    pending: list[Copy] = []

    def copied(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: copied(each) for key, each in value.items()}
        if not isinstance(value, Tensor):
            return type(value)(copied(each) for each in value) if isinstance(value, list | tuple) else value
        source = value.detach()
        view = (address(source), source.storage_offset(), source.shape, source.stride(), source.dtype)
        if view not in copies or not source.numel():
            copies[view] = torch.empty_like(source)
            pending.append((copies[view], source))
        return copies[view]

    whole = copied(value)
    for target, source in pending:
        if address(source) not in later:
            target.copy_(source)
    return whole, [(target, source) for target, source in pending if address(source) in later]


def address(tensor: Tensor) -> int:
    """Where the storage of a tensor begins."""
    return tensor.untyped_storage().data_ptr()


def beside(device: torch.device, work: Callable[[], None]) -> Callable[[], None]:
    """The same work, whose transfers from a GPU begin after what is queued there now, and stop nothing queued later."""
    if device.type != "cuda":
        return work
    ready = torch.cuda.Event()  # type: ignore[no-untyped-call]
    ready.record(torch.cuda.current_stream(device))

    def run() -> None:
        side = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        side.wait_event(ready)
        with torch.cuda.stream(side):
            work()

    return run
