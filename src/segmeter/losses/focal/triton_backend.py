"""The Triton backend: CUDA tensors -> the kernels. Nothing here waits for the device.

Triton is imported on the first call, as torch does not bring it on every system.
"""

from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch

from segmeter.losses.focal.params import FocalParams, LossSums
from segmeter.losses.strides import with_pixel_stride
from segmeter.losses.targets import LABEL_DTYPES

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
MOST_CHANNELS = 1024
TILE = 2048  # logits per program: 8 per thread with 8 warps, in 55 to 110 registers


def triton_takes(logits: torch.Tensor, target: torch.Tensor) -> bool:
    """Say whether the kernels take these: floats of at most 32 bits on CUDA, hard labels, Triton installed."""
    fits = logits.dtype in DTYPES and target.dtype in LABEL_DTYPES and logits.shape[1] <= MOST_CHANNELS
    return logits.device.type == "cuda" and fits and logits.numel() > 0 and _installed()


def triton_sums(
    logits: torch.Tensor, target: torch.Tensor, weights: torch.Tensor | None, terms: FocalParams
) -> LossSums:
    """Sum the losses; arguments as in `reference_sums`."""
    logits, stride = with_pixel_stride(logits)
    grid, blocks = _tiles(logits)
    options = _options(terms, weights) | blocks
    parts = torch.empty((grid[0] * grid[1], 3), dtype=torch.float32, device=logits.device)
    elements = logits[:, 0] if terms.softmax else logits
    shape = elements.shape if terms.elementwise else ()
    losses = torch.empty(shape, dtype=torch.float32, device=logits.device)
    sizes = _sizes(logits, stride)
    if terms.softmax:
        _launch("softmax_sums", grid, logits, target.contiguous(), weights, losses, parts, *sizes, **options)
    else:
        _launch("sigmoid_sums", grid, logits, target.contiguous(), losses, parts, *sizes, **options)
    whole = parts.sum(0, dtype=torch.float64)
    return LossSums(losses if terms.elementwise else whole[0].float(), whole[1].float(), whole[2].long())


def triton_gradient(
    logits: torch.Tensor, target: torch.Tensor, weights: torch.Tensor | None, *, terms: FocalParams, scale: torch.Tensor
) -> torch.Tensor:
    """Gradient of the total, as `torch_gradient` gives it."""
    spaced, stride = with_pixel_stride(logits)
    grid, blocks = _tiles(spaced)
    options = _options(terms, weights) | blocks
    result = torch.empty_like(logits)  # dense, so it has strides of its own where the logits are a view
    gradient, step = with_pixel_stride(result)
    arriving = scale.float().contiguous()
    sizes = (*_sizes(spaced, stride), gradient.stride(0), gradient.stride(1), step)
    if terms.softmax:
        _launch("softmax_gradient", grid, spaced, target.contiguous(), weights, arriving, gradient, *sizes, **options)
    else:
        _launch("sigmoid_gradient", grid, spaced, target.contiguous(), arriving, gradient, *sizes, **options)
    return result if gradient is result else result.copy_(gradient)


def _launch(kernel: str, grid: tuple[int, int], logits: torch.Tensor, *arguments: Any, **options: Any) -> None:
    """Run a kernel where the logits are: Triton takes the current device, which `cuda:1` need not be."""
    with torch.cuda.device_of(logits):  # type: ignore[no-untyped-call]
        getattr(_kernels(), kernel)[grid](logits, *arguments, **options)


def _tiles(logits: torch.Tensor) -> tuple[tuple[int, int], dict[str, int]]:
    """Give the grid (blocks of pixels, images) and the tile's sides."""
    channels, pixels = logits.shape[1], logits[0, 0].numel()
    block_k = 1 << (channels - 1).bit_length()
    block_p = max(1, TILE // block_k)
    options = {"BLOCK_P": block_p, "BLOCK_K": block_k, "num_warps": 8, "enable_fp_fusion": True}
    return (-(-pixels // block_p), logits.shape[0]), options


def _sizes(logits: torch.Tensor, stride: int) -> tuple[int, ...]:
    return logits.shape[1], logits[0, 0].numel(), logits.stride(0), logits.stride(1), stride


def _options(terms: FocalParams, weights: torch.Tensor | None = None) -> dict[str, Any]:
    options: dict[str, Any] = {
        "ignore": 0 if terms.ignore_index is None else terms.ignore_index,
        "smoothing": terms.smoothing,
        "GAMMA": terms.gamma,
        "SMOOTH": terms.smoothing > 0,
        "HAS_IGNORE": terms.ignore_index is not None,
        "ELEMENTWISE": terms.elementwise,
    }
    if terms.softmax:
        return options | {"HAS_WEIGHTS": weights is not None}
    return options | {"negative": terms.negative, "positive": terms.positive}


@cache
def _installed() -> bool:
    return find_spec("triton") is not None


@cache
def _kernels() -> Any:
    return import_module("segmeter.losses.focal.triton_kernels")
