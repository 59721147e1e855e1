"""Picks the device that a model runs on and the number format it computes in, and handles a lack of memory."""

import ctypes
import re
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch

from segmeter.bridge.transfer import check_device
from segmeter.checks import expected, shown
from segmeter.errors import ConfigError, InputError, RunError
from segmeter.inference.config import Precision

_NAME = re.compile(r"cpu|mps|cuda(:\d+)?")


def pick_device(name: str = "auto") -> torch.device:
    """Choose where a model runs.

    Parameters
    ----------
    name
        "cpu", "cuda", "cuda:1", "mps" (an Apple GPU), or "auto": the first CUDA GPU, else the CPU.

    Raises
    ------
    ConfigError
        The name is unknown, or there is no such device here.
    """
    if not (isinstance(name, str) and (name == "auto" or _NAME.fullmatch(name))):
        raise ConfigError(expected("config", "device", 'to be "auto", "cpu", "cuda", "cuda:N" or "mps"', shown(name)))
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = check_device("config", name)
    except InputError as error:
        raise ConfigError(error.problems) from error
    if device.type == "mps" and not torch.backends.mps.is_available():
        remedy = f"This torch ({torch.__version__}) sees no Apple GPU: set device=cpu."
        raise ConfigError(expected("config", "device", "to be here", "'mps'", remedy))
    return device


_LIBC = ctypes.CDLL(None) if sys.platform.startswith("linux") else None
# malloc.h of glibc: parameters of mallopt
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX, _ARENA_MAX = -1, -2, -4, -8
_KEPT = {_MMAP_MAX: 0, _TRIM_THRESHOLD: 2**31 - 1, _TOP_PAD: 256 * 2**20, _ARENA_MAX: 1}

# Messages of torch's CPU allocator, CUDA and Apple GPUs; cuBLAS and cuDNN take memory beside torch's
_OUT_OF_MEMORY = ("can't allocate memory", "out of memory", "CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED")


def keep_freed_memory() -> bool:
    """Let freed memory stay in the process; glibc on Linux only. Returns whether the C library took the settings.

    By default each large tensor is mapped again, page by page, and returned to the system when it is freed. On two
    cores that took a third of a training step. The memory that stays is the peak of one step, which the next step needs
    again. All threads share one heap, as separate heaps would grow with every thread, the longer a run takes.
    """
    mallopt = getattr(_LIBC, "mallopt", None)
    return mallopt is not None and all(mallopt(name, value) == 1 for name, value in _KEPT.items())


def give_back_freed_memory() -> bool:
    """Return freed pages to the system, wherever in the heap they lie; glibc on Linux only. Returns whether it could.

    Blocks of different sizes leave holes between blocks that stay, so the memory of a long run would grow slowly.
    """
    trim = getattr(_LIBC, "malloc_trim", None)
    return trim is not None and trim(0) == 1


def is_out_of_memory(error: BaseException) -> bool:
    """Tell whether an error of torch or Python means that memory ran out, on a device or on the host."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    return isinstance(error, RuntimeError) and any(text in str(error) for text in _OUT_OF_MEMORY)


@contextmanager
def advised(where: str, remedy: str) -> Iterator[None]:
    """Turn a lack of memory within the block into a RunError of one line that names the place and the remedy."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        raise RunError(f"{where}: out of memory. {remedy}") from error


_CPU_BFLOAT16 = ("avx512_bf16", "amx_bf16")
_REFUSED = {"cpu": ("float16", "bfloat16"), "mps": ("bfloat16", "float16")}  # the refused dtype, and its alternative


def pick_dtype(device: torch.device, precision: Precision) -> torch.dtype:
    """Return the dtype that `precision` means on `device`.

    "auto" is bfloat16 if the device computes in it (a CPU with avx512_bf16 or amx_bf16, a GPU since Ampere),
    float16 on older GPUs, else float32.

    Raises
    ------
    ConfigError
        float16 on a CPU, bfloat16 on an Apple GPU.
    """
    if precision == "auto":
        if device.type == "cuda":
            return torch.bfloat16 if torch.cuda.is_bf16_supported(including_emulation=False) else torch.float16
        capable = torch.cpu.get_capabilities() if device.type == "cpu" else {}
        return torch.bfloat16 if any(capable.get(name) for name in _CPU_BFLOAT16) else torch.float32
    refused, instead = _REFUSED.get(device.type, ("", ""))
    if precision == refused:
        remedy = f"Use {instead} or float32."
        raise ConfigError(expected("inference", "precision", f"that {device.type} computes in", f"'{refused}'", remedy))
    dtype: torch.dtype = getattr(torch, precision)
    return dtype


def pick_training_dtype(device: torch.device, precision: Precision) -> torch.dtype:
    """Return the dtype that `precision` means for training: "auto" is float32 on Intel CPUs without AMX.

    Those that have bfloat16 nonetheless take a quarter to a third less time for a step in float32. Inference keeps
    bfloat16 there, in which the labels of an image do not depend on how many others are in its batch.
    """
    capable = torch.cpu.get_capabilities() if device.type == "cpu" else {}
    slow = str(capable.get("cpu_name")).startswith("Intel") and not capable.get("amx_bf16")
    return pick_dtype(device, "float32" if precision == "auto" and slow else precision)


def autocast(device: torch.device, dtype: torch.dtype) -> AbstractContextManager[object]:
    """Return the context for forward passes (and losses) in `dtype`. float32 never means TF32, not even on a GPU."""
    if dtype is not torch.float32:
        return torch.autocast(device.type, dtype=dtype)
    return without_tf32() if device.type == "cuda" else nullcontext()


@contextmanager
def without_tf32() -> Iterator[None]:
    """Keep all 23 bits of float32's mantissa. TF32, cuDNN's default on GPUs since Ampere, drops 13 of them."""
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    before = cudnn.allow_tf32, matmul.allow_tf32
    try:
        cudnn.allow_tf32 = matmul.allow_tf32 = False
        yield
    finally:
        cudnn.allow_tf32, matmul.allow_tf32 = before
