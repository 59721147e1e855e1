"""The C library's heap, told to keep what a step frees, as the next step wants it back; and to give it back at last."""

import ctypes
import sys

# malloc.h of glibc: parameters of mallopt
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX, _ARENA_MAX = -1, -2, -4, -8
_LARGEST = 2**31 - 1
_PAD = 256 * 2**20  # bytes that the heap grows by


def keep_freed_memory() -> bool:
    """Let freed memory stay in the process; glibc on Linux only.

    By default each large tensor is mapped anew, page by page, and given back when it is freed: on two cores that was a
    third of a training step. What stays is the peak of one step, which the next one would take again. All threads share
    one heap: with one for each of them, what they freed would add up, the more the longer a run takes.

    Returns
    -------
    Whether the C library took the settings.
    """
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    settings = {_MMAP_MAX: 0, _TRIM_THRESHOLD: _LARGEST, _TOP_PAD: _PAD, _ARENA_MAX: 1}
    return all(mallopt(name, value) == 1 for name, value in settings.items())


def give_back_freed_memory() -> bool:
    """Give freed pages back to the system, wherever in the heap they lie; glibc on Linux only.

    Blocks of different sizes leave holes between others that stay, so that the memory of a long run grows slowly.

    Returns
    -------
    Whether the C library could.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform.startswith("linux") else None
    return trim is not None and trim(0) == 1
