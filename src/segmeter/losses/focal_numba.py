"""Computes the focal loss on a CPU by compiled loops, which read the logits once per pass and only allocate the
gradient.

Importing this module loads numba, so it is imported on the first large call.
"""

import math
from functools import partial
from itertools import pairwise

import numpy as np
import torch

from segmeter.losses.focal_kernels import Job, sigmoid, softmax
from segmeter.losses.focal_torch import FocalOptions
from segmeter.losses.targets import with_pixel_stride
from segmeter.parallel import run_parts

BLOCK_FLOATS = 6144  # a block's rows take 24 KiB, so that they stay in a first-level cache of 32 KiB
MOST_PIXELS = 1024
# Pieces per thread. torch's threads spin for milliseconds after an operation. A thread of ours that shares a core with
# one of them takes fewer pieces, so nobody waits for it.
PIECES = 8
SMALL_JOB = 1 << 16  # below so many logits a second thread costs more than it saves
INT32 = 2**31 - 1


def compute(
    logits: torch.Tensor, target: torch.Tensor, options: FocalOptions, scale: torch.Tensor | None = None
) -> list[torch.Tensor]:
    """Compute the total, the weight and the bad labels; with `scale`, the gradient of the total times `scale`.

    Parameters
    ----------
    logits : (B, K, N...), float32 or bfloat16
    target
        Labels, (B, N...) for softmax and (B, K, N...) for sigmoid.
    scale
        The incoming gradient, 0-d.
    """
    spaced, step = with_pixel_stride(logits)
    channels, pixels = logits.shape[1], logits[0, 0].numel() if logits.shape[0] else 0
    labels, ignore = channels if options.softmax else 2, options.ignore_index
    narrow = (target if target.dtype == torch.uint8 else target.long().clamp(-INT32, INT32).int()).contiguous()
    weights = torch.ones(labels) if options.class_weights is None else options.class_weights
    negative, positive = options.sides
    block = max(16, min(MOST_PIXELS, BLOCK_FLOATS // channels // 16 * 16))
    blocks = logits.shape[0] * -(-pixels // block)
    sums = torch.zeros(blocks, 3, dtype=torch.float64)
    arriving, result, gradient, strides = torch.ones(()), sums, sums, (0, 0, 0)
    if scale is not None:
        arriving, result = scale.float(), torch.empty_like(logits)
        gradient, distance = with_pixel_stride(result)  # dense, with strides of its own where the logits are a view
        strides = (gradient.stride(0), gradient.stride(1), distance)
    job = Job(
        logits=spaced.data_ptr(),
        target=narrow.data_ptr(),
        weights=weights.data_ptr(),
        scale=arriving.data_ptr(),
        sums=sums.data_ptr(),
        gradient=0 if scale is None else gradient.data_ptr(),
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
    edges, kernel = [blocks * i // pieces for i in range(pieces + 1)], softmax if options.softmax else sigmoid
    run_parts([partial(kernel, job._replace(first=first, last=last)) for first, last in pairwise(edges)], threads)
    if scale is not None:
        return [result if gradient is result else result.copy_(gradient)]
    total, weight, bad = (math.fsum(column) for column in sums.T.tolist())  # the same for any number of threads
    return [torch.tensor(total), torch.tensor(weight), torch.tensor(int(bad))]
