"""Recognises that memory ran out, on the host or on a device, and turns it into one line of advice."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from segmeter.errors import RunError

# torch's CPU allocator, CUDA and Apple GPUs; cuBLAS and cuDNN, which take memory beside torch's, as RuntimeErrors
_SAYINGS = ("can't allocate memory", "out of memory", "CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error of torch or Python says that memory ran out, on a device or on the host."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    return isinstance(error, RuntimeError) and any(saying in str(error) for saying in _SAYINGS)


@contextmanager
def advised(where: str, remedy: str) -> Iterator[None]:
    """Within the block, memory that runs out becomes one line: where, and what to set.

    Raises
    ------
    RunError
        Memory ran out.
    """
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        raise RunError(f"{where}: out of memory. {remedy}") from error
