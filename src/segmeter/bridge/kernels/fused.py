"""CUDA logits -> labels and the record of their check, each logit read once where it lies.

torch's own operations would read the logits three times, after a float32 copy, and write int64 indices.
Triton is imported on the first call, as torch does not bring it on every system.
"""

from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
MOST_CHANNELS = 1024
TILE = 2048  # logits that a program holds in registers
OPTIONS = {"num_warps": 8, "enable_fp_fusion": True}
PROGRAMS_PER_PROCESSOR = 8  # enough to hide the latency of the memory; each adds once to the record
_NOWHERE = 2**62


def takes(logits: Tensor, *, channels: int = 1) -> bool:
    """Say whether the kernels decode these: floats of at most 32 bits on CUDA, Triton installed."""
    fits = logits.dtype in DTYPES and logits.numel() > 0 and channels <= MOST_CHANNELS
    return logits.device.type == "cuda" and fits and _installed()


def argmax_labels(logits: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Find the largest channel of each pixel, the first one among equals.

    Parameters
    ----------
    logits
        (B, K, N), as `takes` wants them.
    dtype
        torch.uint8 or torch.uint16, of the labels.

    Returns
    -------
    Labels (B, N); and the record of the check for NaN and infinity, (6,) int64 as in `device_check`, with min and max
    sortable.
    """
    batch, channels, pixels = logits.shape
    labels = torch.empty(batch, pixels, dtype=dtype, device=logits.device)
    record = _blank(logits.device).clone()
    block_k = 1 << (channels - 1).bit_length()
    block_p = max(1, TILE // block_k)
    grid = (_programs(logits.device, tiles=-(-pixels // block_p), share=batch), batch)
    sizes = (channels, pixels, *logits.stride())
    # Triton launches on the current device, whatever the tensors are on
    with torch.cuda.device_of(logits):  # type: ignore[no-untyped-call]
        _kernels().argmax_labels[grid](logits, labels, record, *sizes, BLOCK_P=block_p, BLOCK_K=block_k, **OPTIONS)
    return labels, record


def threshold_labels(logits: Tensor, level: float, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Give 1 where a logit is above `level`; any shape. Returns as `argmax_labels` does."""
    dense = logits.contiguous()
    labels = torch.empty(dense.shape, dtype=dtype, device=dense.device)
    record = _blank(dense.device).clone()
    grid = (_programs(dense.device, tiles=-(-dense.numel() // TILE), share=1),)
    with torch.cuda.device_of(dense):  # type: ignore[no-untyped-call]
        _kernels().threshold_labels[grid](dense, labels, record, level, dense.numel(), BLOCK=TILE, **OPTIONS)
    return labels, record


def _programs(device: torch.device, *, tiles: int, share: int) -> int:
    """Programs for one of `share` images."""
    return max(1, min(tiles, _processors(device) * PROGRAMS_PER_PROCESSOR // share))


@cache
def _processors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1


@cache
def _blank(device: torch.device) -> Tensor:
    """A record that nothing was added to. Copying it on the device costs no wait, as an upload would."""
    largest = torch.iinfo(torch.int32).max
    with torch.inference_mode(False):
        return torch.tensor([0, 0, 0, _NOWHERE, largest, -largest - 1], dtype=torch.int64).to(device)


@cache
def _installed() -> bool:
    return find_spec("triton") is not None


@cache
def _kernels() -> Any:
    return import_module("segmeter.bridge.kernels._fused_triton")
