"""The numba kernels for binary and multilabel: a block of pixels at a time, channels as rows.

Letters: k channel, p pixel within the block; nll = -log p, q = 1 - p of the element's target.
"""

from typing import Any

import numpy as np

from segmeter.jit import fused_kernel, fused_part
from segmeter.losses.focal.numba_blocks import PAD, keep_losses, read_scale, store_sums
from segmeter.losses.focal.numba_math import (
    ONE,
    ZERO,
    exp,
    f32,
    i32,
    log1p_unit,
    power,
    read_classes,
    read_rows,
    write_rows,
)


@fused_part
def split_sigmoid(row: Any, classes: Any, count: Any, prob: Any, q: Any, nll: Any, other_nll: Any) -> None:
    """Give p, q and -log p of each element's target, and -log q; none of them by a subtraction."""
    for p in range(count):
        z = row[p] if classes[p] == i32(1) else -row[p]
        e = exp(-abs(z))
        large = ONE / (ONE + e)
        small, tail = e * large, log1p_unit(e)
        prob[p] = large if z >= ZERO else small
        q[p] = small if z >= ZERO else large
        nll[p] = tail + max(-z, ZERO)
        other_nll[p] = tail + max(z, ZERO)


@fused_part
def sigmoid_losses(classes: Any, lines: Any, options: Any, count: Any) -> None:
    """Give each element's loss in lines[2]; `lines` as in `sigmoid_sums`."""
    prob, q, nll, other_nll, raised = lines[0], lines[1], lines[2], lines[3], lines[4]
    spread = options.smoothing / f32(2)
    power(q, options.gamma, count, raised)
    for p in range(count):
        weight = options.positive if classes[p] == i32(1) else options.negative
        nll[p] *= (ONE - spread) * weight * raised[p]
    if spread > ZERO:
        power(prob, options.gamma, count, raised)
        for p in range(count):
            weight = options.negative if classes[p] == i32(1) else options.positive
            nll[p] += spread * weight * raised[p] * other_nll[p]


@fused_part
def sigmoid_slopes(row: Any, classes: Any, lines: Any, options: Any, count: Any, scale: Any) -> None:
    """Turn logits into their gradient, times each element's `scale`."""
    prob, q, nll, other_nll, raised = lines[0], lines[1], lines[2], lines[3], lines[4]
    spread, gamma = options.smoothing / f32(2), options.gamma
    power(q, gamma, count, raised)
    for p in range(count):
        weight = options.positive if classes[p] == i32(1) else options.negative
        row[p] = (spread - ONE) * weight * raised[p] * (q[p] + gamma * prob[p] * nll[p])
    if spread > ZERO:
        power(prob, gamma, count, raised)
        for p in range(count):
            weight = options.negative if classes[p] == i32(1) else options.positive
            row[p] += spread * weight * raised[p] * (prob[p] + gamma * q[p] * other_nll[p])
    for p in range(count):
        slope = scale[p] * (row[p] if classes[p] == i32(1) else -row[p])
        row[p] = slope if classes[p] >= i32(0) else ZERO


@fused_kernel
def sigmoid_sums(values: Any, target: Any, job: Any, options: Any) -> None:
    """Sum the losses of the job's blocks, one sigmoid per channel."""
    width = job.block + PAD
    rows = np.empty((job.channels, width), np.float32)
    classes = np.empty(width, np.int32)
    lines = np.empty((5, width), np.float32)
    per_image = (job.pixels + job.block - 1) // job.block
    for block in range(job.first, job.last):
        image, start = block // per_image, block % per_image * job.block
        count = min(job.block, job.pixels - start)
        read_rows(values, image * values.image + start * values.pixel, job, count, rows)
        for k in range(job.channels):
            read_classes(target, image * target.image + k * target.channel + start, job, count, classes)
            split_sigmoid(rows[k], classes, count, lines[0], lines[1], lines[2], lines[3])
            sigmoid_losses(classes, lines, options, count)
            keep_losses(job, (image * job.channels + k) * job.pixels + start, count, lines[2], classes)
            for p in range(count):
                lines[0][p] = ONE if classes[p] >= i32(0) else ZERO
            store_sums(lines[2], lines[0], classes, job, block, count)


@fused_kernel
def sigmoid_gradient(values: Any, target: Any, job: Any, options: Any, gradient: Any) -> None:
    """Write the gradient of the job's blocks, one sigmoid per channel."""
    width = job.block + PAD
    rows = np.empty((job.channels, width), np.float32)
    classes = np.empty(width, np.int32)
    lines = np.empty((6, width), np.float32)
    per_image = (job.pixels + job.block - 1) // job.block
    for block in range(job.first, job.last):
        image, start = block // per_image, block % per_image * job.block
        count = min(job.block, job.pixels - start)
        read_rows(values, image * values.image + start * values.pixel, job, count, rows)
        for k in range(job.channels):
            read_classes(target, image * target.image + k * target.channel + start, job, count, classes)
            read_scale(job, (image * job.channels + k) * job.pixels + start, count, lines[5])
            split_sigmoid(rows[k], classes, count, lines[0], lines[1], lines[2], lines[3])
            sigmoid_slopes(rows[k], classes, lines, options, count, lines[5])
        write_rows(rows, gradient, image * gradient.image + start * gradient.pixel, job, count)
