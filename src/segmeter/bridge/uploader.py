"""Uploads arrays as one tensor while the device continues with its work."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from segmeter.bridge.dtypes import TORCH, check_device
from segmeter.bridge.host_copier import empty_pinned
from segmeter.checks import expected
from segmeter.errors import InputError


def upload(tensor: Tensor, device: torch.device) -> Tensor:
    """Copy a small CPU tensor to a device without waiting for the device's earlier work."""
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


class Uploader:
    """Stacks arrays of one shape and dtype into a tensor on a device.

    On CUDA the arrays are stacked in pinned memory and copied on a side stream, so neither the host nor the copy waits
    for the device's earlier work. The current stream waits for the copy. torch reuses pinned memory only when the copy
    out of it is complete. Elsewhere it is a plain copy.

    Parameters
    ----------
    device
        Where the tensors go.

    Raises
    ------
    InputError
        `device` is not there.
    """

    def __init__(self, device: str | torch.device) -> None:
        self.device = check_device("Uploader", device)
        self._side = torch.cuda.Stream(self.device) if self.device.type == "cuda" else None  # type: ignore[no-untyped-call]

    def __call__(self, arrays: Sequence[NDArray[Any]]) -> Tensor:
        """Upload `arrays`, and return a new tensor (len(arrays), *shape) of their dtype.

        Raises
        ------
        InputError
            There are none, their shapes or dtypes differ, or torch has no such dtype.
        """
        kinds = {(np.shape(array), np.asarray(array).dtype.newbyteorder("=")) for array in arrays}
        if len(kinds) != 1:
            given = ", ".join(f"{dtype} {shape}" for shape, dtype in sorted(kinds, key=str)) or "none"
            raise InputError(expected("Uploader", "arrays", "to be of one shape and dtype", given))
        shape, dtype = kinds.pop()
        if dtype not in TORCH:
            raise InputError(expected("Uploader", "arrays", "to hold numbers or bools", f"dtype {dtype}"))
        stacked = (len(arrays), *shape)
        host = empty_pinned(stacked, TORCH[dtype]) if self._side else torch.empty(stacked, dtype=TORCH[dtype])
        np.stack(arrays, out=host.numpy())
        if self._side is None:
            return host.to(self.device)
        current = torch.cuda.current_stream(self.device)
        with torch.cuda.stream(self._side):
            tensor = host.to(self.device, non_blocking=True)
        current.wait_stream(self._side)
        tensor.record_stream(current)  # its memory belongs to the side stream, which must not reuse it too early
        return tensor
