"""Counts the bytes that cross to the host, below everything that Python code can hide them behind."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class Crossing(TorchDispatchMode):
    """Adds up `copy_` and `_to_copy` from what is not host memory into what is.

    Parameters
    ----------
    is_host
        Says of a tensor whether its memory is the host's.
    """

    def __init__(self, is_host) -> None:
        super().__init__()
        self.nbytes = 0
        self._is_host = is_host

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        source = {torch.ops.aten.copy_.default: 1, torch.ops.aten._to_copy.default: 0}.get(func)
        if source is not None and self._is_host(result) and not self._is_host(args[source]):
            self.nbytes += result.numel() * result.element_size()
        return result
