"""Memory of a model's passes: how the C library keeps what a pass frees, and what to say when memory runs out."""

import ctypes
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from segmeter.errors import RunError

# malloc.h of glibc: parameters of mallopt
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX, _ARENA_MAX = -1, -2, -4, -8
_KEPT = {_MMAP_MAX: 0, _TRIM_THRESHOLD: 2**31 - 1, _TOP_PAD: 256 * 2**20, _ARENA_MAX: 1}

# Messages of torch's CPU allocator, CUDA and Apple GPUs; cuBLAS and cuDNN take memory beside torch's
_OUT_OF_MEMORY = ("can't allocate memory", "out of memory", "CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED")


def keep_freed_memory() -> bool:
    """Let freed memory stay in the process; glibc on Linux only. Returns whether the C library took the settings.

    By default each large tensor is mapped anew, page by page, and returned to the system when it is freed: on two cores
    that was a third of a training step. The memory that stays is the peak of one step, which the next step takes again.
    All threads share one heap: separate ones would grow with every thread, the longer a run takes.
    """
    mallopt = _c_function("mallopt")
    return mallopt is not None and all(mallopt(name, value) == 1 for name, value in _KEPT.items())


def give_back_freed_memory() -> bool:
    """Return freed pages to the system, wherever in the heap they lie; glibc on Linux only. Returns whether it could.

    Blocks of different sizes leave holes between others that stay, so that the memory of a long run grows slowly.
    """
    trim = _c_function("malloc_trim")
    return trim is not None and trim(0) == 1


def _c_function(name: str) -> Callable[..., int] | None:
    return getattr(ctypes.CDLL(None), name, None) if sys.platform.startswith("linux") else None


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error of torch or Python says that memory ran out, on a device or on the host."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    return isinstance(error, RuntimeError) and any(text in str(error) for text in _OUT_OF_MEMORY)


@contextmanager
def advised(where: str, remedy: str) -> Iterator[None]:
    """Turn a lack of memory within the block into a RunError of one line: where it was, and what to set."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        raise RunError(f"{where}: out of memory. {remedy}") from error
