"""The numba kernels for multiclass: a block of pixels at a time, channels as rows, so that it stays in the cache.

A block's logits are read once, whatever their layout, into rows[k, p]; every loop over p is vector code.

Letters: k channel, p pixel within the block; e = exp(logit - largest logit); nll = -log p, q = 1 - p of the target.
"""

from typing import Any

import numpy as np
from numba import carray

from segmeter.jit import fused_kernel, fused_part
from segmeter.losses.focal.numba_blocks import PAD, keep_losses, read_scale, store_sums
from segmeter.losses.focal.numba_math import (
    LARGEST,
    ONE,
    ZERO,
    exp,
    f32,
    float32_at,
    i32,
    log1p,
    power,
    read_classes,
    read_rows,
    write_rows,
)


@fused_part
def find_largest(rows: Any, count: Any, top: Any) -> None:
    """Give each pixel's largest logit."""
    for p in range(count):
        top[p] = rows[0, p]
    for k in range(1, len(rows)):
        row = rows[k]
        for p in range(count):
            top[p] = row[p] if row[p] > top[p] else top[p]


@fused_part
def split_exp(rows: Any, classes: Any, count: Any, top: Any, others: Any, hot: Any, delta: Any) -> None:
    """Turn logits into e; give e and logit - largest of the class, and the sum of the other classes' e."""
    for p in range(count):
        others[p] = ZERO
        hot[p] = ZERO
        delta[p] = ZERO
    for k in range(len(rows)):
        row = rows[k]
        for p in range(count):
            below = row[p] - top[p]
            e = exp(below)
            row[p] = e
            own = classes[p] == i32(k)
            others[p] += ZERO if own else e
            hot[p] = e if own else hot[p]
            delta[p] = below if own else delta[p]


@fused_part
def hard_terms(others: Any, hot: Any, delta: Any, count: Any, nll: Any, q: Any) -> None:
    """Give nll and q of the class; hot is exactly 1 where it has the largest logit, so nothing cancels."""
    for p in range(count):
        nll[p] = log1p(others[p] + (hot[p] - ONE)) - delta[p]
        q[p] = others[p] / (others[p] + hot[p])


@fused_part
def slope_of(nll: Any, q: Any, prob: Any, raised: Any, gamma: Any) -> Any:
    """Give ``q^gamma (1 + gamma p nll / q)``; nll / q tends to 1."""
    ratio = min(nll, LARGEST) / q if q > ZERO else ONE
    return raised * (ONE + gamma * prob * ratio)


@fused_part
def read_weights(weights: Any, classes: Any, count: Any, line: Any) -> None:
    """Give each pixel's class weight, 0 where it does not count."""
    for p in range(count):
        line[p] = weights[classes[p]] if classes[p] >= i32(0) else ZERO


@fused_part
def split_mixture(rows: Any, count: Any, top: Any, found: Any, others: Any, deltas: Any) -> None:
    """Turn logits into e and logit - largest, and give the sum of e without the (first) largest."""
    for p in range(count):
        others[p] = ZERO
        found[p] = i32(0)
    for k in range(len(rows)):
        row, below = rows[k], deltas[k]
        for p in range(count):
            own = (row[p] == top[p]) & (found[p] == i32(0))
            found[p] = i32(1) if own else found[p]
            below[p] = row[p] - top[p]
            row[p] = exp(below[p])
            others[p] += ZERO if own else row[p]


@fused_part
def mixture_q(row: Any, others: Any, count: Any, q: Any) -> None:
    """Give 1 - p of one class; 1 - e is exactly 0 for the largest, so nothing cancels."""
    for p in range(count):
        q[p] = (others[p] + (ONE - row[p])) / (ONE + others[p])


@fused_part
def mixture_losses(
    rows: Any, deltas: Any, others: Any, weights: Any, classes: Any, options: Any, count: Any, losses: Any
) -> None:
    """Give the loss of each pixel with a smoothed target: the mixture over all classes."""
    share = options.smoothing / f32(len(rows))
    q, raised = np.empty_like(losses), np.empty_like(losses)
    for p in range(count):
        losses[p] = ZERO
    for k in range(len(rows)):
        below = deltas[k]
        mixture_q(rows[k], others, count, q)
        power(q, options.gamma, count, raised)
        for p in range(count):
            amount = weights[k] * (share + (ONE - options.smoothing if classes[p] == i32(k) else ZERO))
            losses[p] += amount * raised[p] * (log1p(others[p]) - below[p])


@fused_part
def mixture_gradient(
    rows: Any, deltas: Any, others: Any, weights: Any, classes: Any, options: Any, count: Any, scale: Any
) -> None:
    """Turn e into the gradient of the mixture, times each pixel's `scale`; uses up `deltas`."""
    share = options.smoothing / f32(len(rows))
    q, raised, pull = np.empty_like(scale), np.empty_like(scale), np.zeros_like(scale)
    for k in range(len(rows)):
        row, slopes = rows[k], deltas[k]
        mixture_q(row, others, count, q)
        power(q, options.gamma, count, raised)
        for p in range(count):
            amount = weights[k] * (share + (ONE - options.smoothing if classes[p] == i32(k) else ZERO))
            nll, prob = log1p(others[p]) - slopes[p], row[p] / (ONE + others[p])
            slopes[p] = amount * slope_of(nll, q[p], prob, raised[p], options.gamma)
            pull[p] += slopes[p]
    for k in range(len(rows)):
        row, slopes = rows[k], deltas[k]
        mixture_q(row, others, count, q)
        for p in range(count):
            slope = row[p] / (ONE + others[p]) * (pull[p] - slopes[p]) - slopes[p] * q[p]
            row[p] = scale[p] * slope if classes[p] >= i32(0) else ZERO


@fused_part
def hard_gradient(rows: Any, classes: Any, weights: Any, lines: Any, options: Any, count: Any, scale: Any) -> None:
    """Turn e into the gradient of one class's loss, times each pixel's `scale`; `lines` as in `softmax_gradient`."""
    others, hot, own, nll, q, pull = lines[1], lines[2], lines[3], lines[4], lines[5], lines[6]
    power(q, options.gamma, count, pull)
    for p in range(count):
        weight = scale[p] * weights[classes[p]] if classes[p] >= i32(0) else ZERO
        share = ONE / (others[p] + hot[p])
        slope = weight * slope_of(nll[p], q[p], hot[p] * share, pull[p], options.gamma)
        pull[p] = slope * share
        own[p] = -slope * q[p]
    for k in range(len(rows)):
        row = rows[k]
        for p in range(count):
            slope = own[p] if classes[p] == i32(k) else row[p] * pull[p]
            row[p] = slope if classes[p] >= i32(0) else ZERO


@fused_kernel
def softmax_sums(values: Any, target: Any, job: Any, options: Any) -> None:
    """Sum the losses of the job's blocks, multiclass."""
    width = job.block + PAD
    smooth = options.smoothing > ZERO
    weights = carray(float32_at(job.weights), 1)
    rows = np.empty((job.channels, width), np.float32)
    deltas = np.empty((job.channels if smooth else 1, width), np.float32)
    classes, found = np.empty(width, np.int32), np.empty(width, np.int32)
    lines = np.empty((8, width), np.float32)
    top, others, hot, delta, losses, q, raised, line = (
        lines[0], lines[1], lines[2], lines[3], lines[4], lines[5], lines[6], lines[7],
    )  # fmt: skip
    per_image = (job.pixels + job.block - 1) // job.block
    for block in range(job.first, job.last):
        image, start = block // per_image, block % per_image * job.block
        count = min(job.block, job.pixels - start)
        read_rows(values, image * values.image + start * values.pixel, job, count, rows)
        read_classes(target, image * target.image + start, job, count, classes)
        read_weights(weights, classes, count, line)
        find_largest(rows, count, top)
        if smooth:
            split_mixture(rows, count, top, found, others, deltas)
            mixture_losses(rows, deltas, others, weights, classes, options, count, losses)
        else:
            split_exp(rows, classes, count, top, others, hot, delta)
            hard_terms(others, hot, delta, count, losses, q)
            power(q, options.gamma, count, raised)
            for p in range(count):
                losses[p] *= raised[p] * line[p]
        keep_losses(job, image * job.pixels + start, count, losses, classes)
        store_sums(losses, line, classes, job, block, count)


@fused_kernel
def softmax_gradient(values: Any, target: Any, job: Any, options: Any, gradient: Any) -> None:
    """Write the gradient of the job's blocks, multiclass."""
    width = job.block + PAD
    smooth = options.smoothing > ZERO
    weights = carray(float32_at(job.weights), 1)
    rows = np.empty((job.channels, width), np.float32)
    deltas = np.empty((job.channels if smooth else 1, width), np.float32)
    classes, found = np.empty(width, np.int32), np.empty(width, np.int32)
    lines = np.empty((8, width), np.float32)
    top, others, hot, delta, nll, q, scale = (
        lines[0], lines[1], lines[2], lines[3], lines[4], lines[5], lines[7],
    )  # fmt: skip
    per_image = (job.pixels + job.block - 1) // job.block
    for block in range(job.first, job.last):
        image, start = block // per_image, block % per_image * job.block
        count = min(job.block, job.pixels - start)
        read_rows(values, image * values.image + start * values.pixel, job, count, rows)
        read_classes(target, image * target.image + start, job, count, classes)
        read_scale(job, image * job.pixels + start, count, scale)
        find_largest(rows, count, top)
        if smooth:
            split_mixture(rows, count, top, found, others, deltas)
            mixture_gradient(rows, deltas, others, weights, classes, options, count, scale)
        else:
            split_exp(rows, classes, count, top, others, hot, delta)
            hard_terms(others, hot, delta, count, nll, q)
            hard_gradient(rows, classes, weights, lines, options, count, scale)
        write_rows(rows, gradient, image * gradient.image + start * gradient.pixel, job, count)
