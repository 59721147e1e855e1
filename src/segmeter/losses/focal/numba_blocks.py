"""The arguments of the numba kernels, and what softmax and sigmoid share: incoming gradients, losses, sums."""

from typing import Any, NamedTuple

import numpy as np
from numba import carray

from segmeter.jit import fused_kernel, fused_part, fused_sums_part
from segmeter.losses.focal.numba_math import (
    ZERO,
    f32,
    float32_at,
    float64_at,
    i32,
)
from segmeter.losses.focal.params import FocalParams

PAD = 16  # added to each row, so that rows of a power of two do not all fall into the same cache sets


class Values(NamedTuple):
    """Where logits or their gradient lie: address, whether bfloat16 (else float32), strides in elements."""

    address: int
    bfloat: int
    image: int
    channel: int
    pixel: int


class Target(NamedTuple):
    """Where the labels lie: address, bytes per label, strides in elements; pixels are adjacent."""

    address: int
    width: int
    image: int
    channel: int


class Job(NamedTuple):
    """Sizes, and which blocks to do: pixels per image and per block, blocks first .. last - 1, and addresses.

    ``labels`` is the number of valid labels. ``weights`` is the address of float32 class weights; ``losses`` that of
    float32 losses or of the incoming gradient, one per element, with ``elementwise``, else of one float32.
    ``sums`` is the address of three float64 per block: loss, weight, bad labels.
    """

    channels: int
    labels: int
    ignore: int
    pixels: int
    block: int
    first: int
    last: int
    weights: int
    losses: int
    elementwise: int
    sums: int


class Options(NamedTuple):
    """float32 each: see `FocalParams`."""

    gamma: Any
    smoothing: Any
    negative: Any
    positive: Any


def options_of(terms: FocalParams) -> Options:
    """Narrow the options to float32, which is what the kernels are compiled for."""
    return Options(f32(terms.gamma), f32(terms.smoothing), f32(terms.negative), f32(terms.positive))


@fused_part
def read_scale(job: Any, start: Any, count: Any, scale: Any) -> None:
    """Read the incoming gradient: one per element from `start` on, or one for all."""
    if job.elementwise:
        arriving = carray(float32_at(job.losses + 4 * start), 1)
        for p in range(count):
            scale[p] = arriving[p]
    else:
        alone = carray(float32_at(job.losses), 1)[0]
        for p in range(count):
            scale[p] = alone


@fused_part
def keep_losses(job: Any, start: Any, count: Any, losses: Any, classes: Any) -> None:
    """Set the losses of excluded elements to 0, and write all from element `start` on if they are asked for."""
    for p in range(count):
        losses[p] = losses[p] if classes[p] >= i32(0) else ZERO
    if job.elementwise:
        kept = carray(float32_at(job.losses + 4 * start), 1)
        for p in range(count):
            kept[p] = losses[p]


@fused_sums_part
def store_sums(losses: Any, line: Any, classes: Any, job: Any, block: Any, count: Any) -> None:
    """Add one block's losses, weights and bad labels, in float64."""
    sums = carray(float64_at(job.sums + 24 * block), 3)
    total, weight, bad = 0.0, 0.0, i32(0)
    for p in range(count):
        total += np.float64(losses[p])
        weight += np.float64(line[p])
        bad += i32(classes[p] < i32(-1))
    sums[0] += total
    sums[1] += weight
    sums[2] += bad


@fused_kernel
def fold(sums: Any, blocks: Any, out: Any) -> None:
    """Add up the blocks' sums in order: the same bits for any number of threads."""
    parts, whole = carray(float64_at(sums), 1), carray(float64_at(out), 3)
    for block in range(blocks):
        for i in range(3):
            whole[i] += parts[3 * block + i]
