"""device memory -> host memory: how copies start and how their end is awaited, for each kind of device."""

import logging
from collections.abc import Sequence
from functools import cache
from typing import Any, Protocol

import torch
from torch import Tensor

_LOG = logging.getLogger(__name__)

Copy = tuple[Tensor, Tensor]  # (to, from): same shape and dtype, both contiguous


class Transport(Protocol):
    """Starts copies from one device. Only this layer knows streams and events, so that tests can put in their own."""

    device: torch.device
    immediate: bool
    """Whether `start` has copied when it returns, so that the source needs no snapshot."""

    def allocate(self, nbytes: int) -> Tensor:
        """Host memory to copy into: (nbytes,) uint8."""

    def event(self) -> Any:
        """Something that `start` can record and `wait` can wait for; each slot of a pool has its own."""

    def start(self, copies: Sequence[Copy], event: Any) -> None:
        """Queue copies behind what is queued for the device now, and `event` behind them. Sources must stay alive."""

    def wait(self, event: Any) -> None:
        """Return when everything before the last `start` with this event has arrived."""


class PlainTransport:
    """Copies that are done when they return: for the CPU, and for devices without streams."""

    immediate = True

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def allocate(self, nbytes: int) -> Tensor:
        return torch.empty(nbytes, dtype=torch.uint8)

    def event(self) -> None:
        return None

    def start(self, copies: Sequence[Copy], event: None) -> None:
        for host, source in copies:
            host.copy_(source)

    def wait(self, event: None) -> None:
        return None


class CudaTransport:
    """One side stream of one CUDA device, into pinned memory.

    The destination is what has to be pinned for a copy to the host to be asynchronous; the side stream lets it run
    beside the next kernels.
    """

    immediate = False

    def __init__(self, device: torch.device) -> None:
        index = torch.cuda.current_device() if device.index is None else device.index
        self.device = torch.device("cuda", index)
        self._side = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]

    def allocate(self, nbytes: int) -> Tensor:
        try:
            return torch.empty(nbytes, dtype=torch.uint8, pin_memory=True)
        except RuntimeError as error:
            warn_once(f"{nbytes} bytes of host memory could not be pinned, copies are slower: {error}")
            return torch.empty(nbytes, dtype=torch.uint8)

    def event(self) -> torch.cuda.Event:
        return torch.cuda.Event()  # type: ignore[no-untyped-call]

    def start(self, copies: Sequence[Copy], event: torch.cuda.Event) -> None:
        self._side.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(self._side):
            for host, source in copies:
                host.copy_(source, non_blocking=True)
            event.record(self._side)

    def wait(self, event: torch.cuda.Event) -> None:
        event.synchronize()


def open_transport(device: torch.device) -> Transport:
    """The transport of a device."""
    return CudaTransport(device) if device.type == "cuda" else PlainTransport(device)


@cache
def warn_once(message: str) -> None:
    """Log a warning the first time that it is given in this process."""
    _LOG.warning(message)
