"""Computes the focal loss on a CPU by compiled loops, which read the logits once per pass and only allocate the
gradient.

Importing this module loads numba, so it is imported on the first large call.
"""

import math
from functools import partial
from itertools import pairwise

import numpy as np
import torch

from segmeter.losses.focal_kernels import KernelJob, sigmoid, softmax
from segmeter.losses.focal_torch import FocalOptions
from segmeter.losses.targets import with_pixel_stride
from segmeter.parallel import run_parts

BLOCK_FLOATS = 6144  # a block's rows take 24 KiB, so that they stay in a first-level cache of 32 KiB
MOST_PIXELS = 1024  # a block has at most this many pixels
# Pieces per thread. torch's threads spin for milliseconds after an operation. A thread of ours that shares a core with
# one of them takes fewer pieces, so nobody waits for it.
PIECES = 8
SMALL_JOB = 1 << 16  # with fewer logits, a second thread costs more than it saves
INT32 = 2**31 - 1


def forward_sums(
    logits: torch.Tensor, target: torch.Tensor, options: FocalOptions
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Compute the summed loss, the summed weight and the number of bad labels.

    Parameters
    ----------
    logits : (B, K, N...), float32 or bfloat16
    target
        Labels, (B, N...) for softmax and (B, K, N...) for sigmoid.
    """
    sums = _run(logits, target, options, scale=torch.ones(()), gradient=None)
    total, weight, bad = (math.fsum(column) for column in sums.T.tolist())  # the same for any number of threads
    return torch.tensor(total), torch.tensor(weight), torch.tensor(int(bad))


def gradient(logits: torch.Tensor, target: torch.Tensor, options: FocalOptions, scale: torch.Tensor) -> torch.Tensor:
    """Compute the gradient of the summed loss times `scale`, the incoming gradient, 0-d."""
    result = torch.empty_like(logits)  # dense, with strides of its own where the logits are a view
    spaced, _ = with_pixel_stride(result)
    _run(logits, target, options, scale=scale.float(), gradient=spaced)
    return result if spaced is result else result.copy_(spaced)


def _run(
    logits: torch.Tensor,
    target: torch.Tensor,
    options: FocalOptions,
    *,
    scale: torch.Tensor,
    gradient: torch.Tensor | None,
) -> torch.Tensor:
    """Fill the gradient if there is one, else return loss, weight and bad labels per block, (blocks, 3) float64."""
    spaced, step = with_pixel_stride(logits)
    channels = logits.shape[1]
    pixels = logits[0, 0].numel() if logits.shape[0] else 0
    labels = channels if options.softmax else 2
    ignore = options.ignore_index
    narrow = (target if target.dtype == torch.uint8 else target.long().clamp(-INT32, INT32).int()).contiguous()
    weights = torch.ones(labels) if options.class_weights is None else options.class_weights
    negative, positive = options.sides
    block = max(16, min(MOST_PIXELS, BLOCK_FLOATS // channels // 16 * 16))
    blocks = logits.shape[0] * -(-pixels // block)
    sums = torch.zeros(blocks, 3, dtype=torch.float64)
    strides = (0, 0, 0)
    if gradient is not None:
        strides = (gradient.stride(0), gradient.stride(1), with_pixel_stride(gradient)[1])
    job = KernelJob(
        logits=spaced.data_ptr(),
        target=narrow.data_ptr(),
        weights=weights.data_ptr(),
        scale=scale.data_ptr(),
        sums=sums.data_ptr(),
        gradient=0 if gradient is None else gradient.data_ptr(),
        strides=(spaced.stride(0), spaced.stride(1), step),
        gradient_strides=strides,
        halved=logits.dtype == torch.bfloat16,
        width=narrow.element_size(),
        channels=channels,
        labels=labels,
        ignore=-INT32 - 1 if ignore is None or abs(ignore) > INT32 else ignore,
        pixels=pixels,
        block=block,
        first=0,
        last=blocks,
        gamma=np.float32(options.gamma),
        negative=np.float32(negative),
        positive=np.float32(positive),
    )
    threads = 1 if logits.numel() < SMALL_JOB or not blocks else min(torch.get_num_threads(), blocks)
    pieces = 1 if threads == 1 else min(blocks, threads * PIECES)
    edges = [blocks * i // pieces for i in range(pieces + 1)]
    kernel = softmax if options.softmax else sigmoid
    run_parts([partial(kernel, job._replace(first=first, last=last)) for first, last in pairwise(edges)], threads)
    return sums
