"""Arrays -> one tensor on the device, while the device computes on."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from segmeter.bridge.dtypes import TORCH
from segmeter.bridge.tensor_checks import check_device
from segmeter.bridge.transport import Transport, open_transport
from segmeter.checks import expected
from segmeter.errors import InputError

_WHERE = "Uploader"


def upload(tensor: Tensor, device: torch.device) -> Tensor:
    """Copy a small CPU tensor to a device, without waiting for what that has to do before."""
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


class Uploader:
    """Stacks arrays of one shape and dtype into a tensor on a device.

    On CUDA the arrays are stacked into pinned buffers, which are used in turn, and copied on a side stream, so that
    neither host nor copy waits for what the device was given before; the stream that is current when it is called
    waits for the copy. Elsewhere it is a plain copy. Used from one thread.

    Parameters
    ----------
    device
        Where the tensors go.
    slots
        Pinned buffers, each as large as the largest upload in it; filling one waits for the copy out of it `slots`
        uploads ago.

    Raises
    ------
    InputError
        `device` is not there.
    """

    def __init__(self, device: str | torch.device, *, slots: int = 2) -> None:
        self.device = check_device(_WHERE, device)
        cuda = self.device.type == "cuda"
        transport = open_transport(self.device)
        self._slots = [_Slot(transport) for _ in range(slots)] if cuda else []
        self._side = torch.cuda.Stream(self.device) if cuda else None  # type: ignore[no-untyped-call]
        self._next = 0

    def __call__(self, arrays: Sequence[NDArray[Any]]) -> Tensor:
        """Upload `arrays`, and return a tensor (len(arrays), *shape) of their dtype, that nobody else holds.

        Raises
        ------
        InputError
            There are none, their shapes or dtypes differ, or torch has no such dtype.
        """
        shape, dtype = self._check(arrays)
        if self._side is None:
            host = torch.empty(shape, dtype=dtype)
            np.stack(arrays, out=host.numpy())
            return host.to(self.device)
        slot = self._slots[self._next]
        self._next = (self._next + 1) % len(self._slots)
        host = slot.room(shape, dtype)
        np.stack(arrays, out=host.numpy())
        current = torch.cuda.current_stream(self.device)
        with torch.cuda.stream(self._side):
            tensor = host.to(self.device, non_blocking=True)
            slot.copied.record(self._side)
        current.wait_event(slot.copied)
        tensor.record_stream(current)  # its memory belongs to the side stream, which must not reuse it too early
        return tensor

    def _check(self, arrays: Sequence[NDArray[Any]]) -> tuple[tuple[int, ...], torch.dtype]:
        kinds = {(np.shape(array), np.asarray(array).dtype.newbyteorder("=")) for array in arrays}
        if len(kinds) != 1:
            given = ", ".join(f"{dtype} {shape}" for shape, dtype in sorted(kinds, key=str)) or "none"
            raise InputError(expected(_WHERE, "arrays", "to be of one shape and dtype", given))
        shape, dtype = kinds.pop()
        if dtype not in TORCH:
            raise InputError(expected(_WHERE, "arrays", "to hold numbers or bools", f"dtype {dtype}"))
        return (len(arrays), *shape), TORCH[dtype]


class _Slot:
    """One pinned buffer, and the event of the last copy out of it."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._buffer = torch.empty(0, dtype=torch.uint8)
        self.copied = transport.event()

    def room(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """Wait until the last copy has left the buffer, and return it as a tensor to be filled."""
        self._transport.wait(self.copied)
        nbytes = math.prod(shape) * dtype.itemsize
        if self._buffer.numel() < nbytes:
            self._buffer = self._transport.allocate(1 << (nbytes - 1).bit_length())  # pinned memory comes so anyway
        return self._buffer[:nbytes].view(dtype).view(shape)
