"""Finds the largest channel of each pixel in one pass over the logits: by numba on the CPU, Triton on CUDA, or torch.

torch's own argmax over the channels goes pixel by pixel, which is slow on the CPU in either layout. On CUDA, torch
would read the logits three times and write int64 indices. The first call that needs numba or Triton imports it.
"""

from collections.abc import Callable
from functools import cache, partial
from importlib.util import find_spec

import numpy as np
import torch
from torch import Tensor

from segmeter.parallel import run_parts

SMALL = 1 << 16  # up to this many logits, torch's argmax ends before the numba kernels would be loaded
ALONE = 1 << 22  # up to this many logits, one thread takes a few milliseconds, and a second one may start later
PART = 1 << 18  # a thread takes this many logits at a time; as float32 they fit the L2 cache
_READ = (torch.float32, torch.float64)  # other dtypes are widened part by part, which is exact

MOST_CHANNELS = 1024
TILE = 2048  # logits that a Triton program holds in registers
OPTIONS = {"num_warps": 8, "enable_fp_fusion": True}
PROGRAMS_PER_PROCESSOR = 8  # enough to hide the latency of the memory; each adds once to the record
_NOWHERE = 2**62

Kernel = Callable[[np.ndarray, int, int, np.ndarray], bool]


def winners(logits: Tensor, dtype: torch.dtype) -> tuple[Tensor, tuple[Tensor, Tensor] | None]:
    """Find the largest channel of each pixel, the first one among equals.

    Parameters
    ----------
    logits
        (B, K, N), floating, K up to 65536.
    dtype
        torch.uint8 or torch.uint16, of the winners.

    Returns
    -------
    Winners (B, N) of `dtype`; and the lowest and highest channel of each pixel, (B, N) of the dtype of `logits`: NaN
    or infinite where a channel is. On the CPU this may be None, if all logits are known to be finite.
    """
    if logits.device.type != "cpu" or logits.numel() <= SMALL:
        highs, indices = logits.max(dim=1)
        return indices.to(dtype), (logits.amin(dim=1), highs)
    from segmeter.bridge import _argmax_numba as kernels  # numba: only where there is much to decode

    batch, channels, pixels = logits.shape
    labels = torch.empty(batch, pixels, dtype=dtype)
    finite: list[bool] = []
    size = max(1, PART // channels)
    parts = [(image, slice(start, start + size)) for image in range(batch) for start in range(0, pixels, size)]

    def decode(image: int, span: slice) -> None:
        part = logits[image, :, span]
        across = part.stride(0) == 1 and channels > 1
        kernel: Kernel = kernels.along_channels if across else kernels.along_pixels
        rows = part.t() if across else part  # adjacent along the last axis
        if rows.stride(1) != 1 or rows.dtype not in _READ:  # a copy, which is exact in a wider type
            wide = torch.promote_types(rows.dtype, torch.float32)
            rows = rows.to(wide, copy=True, memory_format=torch.contiguous_format)
        stride = rows.stride(0)
        values = rows.as_strided(((len(rows) - 1) * stride + rows.shape[1],), (1,))
        finite.append(kernel(values.numpy(), stride, channels, labels[image, span].numpy()))

    # in as many threads as torch would use; torch and the kernels release the GIL
    threads = 1 if logits.numel() <= ALONE else min(torch.get_num_threads(), len(parts))
    run_parts([partial(decode, *part) for part in parts], threads)
    return labels, None if all(finite) else torch.aminmax(logits.contiguous(), dim=1)


def fused_takes(logits: Tensor) -> bool:
    """Tell whether the Triton kernel decodes these (B, K, N): floats of at most 32 bits on CUDA, Triton installed."""
    narrow = logits.dtype in (torch.float32, torch.bfloat16, torch.float16)
    fits = narrow and logits.numel() > 0 and logits.shape[1] <= MOST_CHANNELS
    return logits.device.type == "cuda" and fits and has_triton()


def argmax_labels(logits: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Find the largest channel of each pixel, the first one among equals.

    Parameters
    ----------
    logits
        (B, K, N), which `fused_takes` accepts.
    dtype
        torch.uint8 or torch.uint16, of the labels.

    Returns
    -------
    Labels (B, N); and the record of the check for NaN and infinity, (6,) int64 as from `transfer.measure`, with min and
    max sortable.
    """
    from segmeter.bridge import _fused_triton as kernels

    batch, channels, pixels = logits.shape
    labels = torch.empty(batch, pixels, dtype=dtype, device=logits.device)
    record = _blank(logits.device).clone()
    block_k = 1 << (channels - 1).bit_length()
    block_p = max(1, TILE // block_k)
    on_gpu = logits.device.type == "cuda"
    processors = torch.cuda.get_device_properties(logits.device).multi_processor_count if on_gpu else 1
    programs = max(1, min(-(-pixels // block_p), processors * PROGRAMS_PER_PROCESSOR // batch))  # for each image
    sizes = (channels, pixels, *logits.stride())
    # Triton launches on the current device, whatever the tensors are on
    with torch.cuda.device_of(logits):  # type: ignore[no-untyped-call]
        kernels.argmax_labels[programs, batch](
            logits, labels, record, *sizes, BLOCK_P=block_p, BLOCK_K=block_k, **OPTIONS
        )
    return labels, record


@cache
def _blank(device: torch.device) -> Tensor:
    """Return an empty record. Cloning it on the device needs no wait, while an upload would."""
    largest = torch.iinfo(torch.int32).max
    with torch.inference_mode(False):
        return torch.tensor([0, 0, 0, _NOWHERE, largest, -largest - 1], dtype=torch.int64).to(device)


@cache
def has_triton() -> bool:
    """Tell whether Triton is installed, which torch does not bring on every system."""
    return find_spec("triton") is not None
