"""Compiles the focal loss's loops for a CPU, which copy blocks of pixels into rows that fit the first-level cache.

Letters: k channel, p pixel within the block; e = exp(logit - largest logit); nll = -log p, q = 1 - p of the target.
"""

from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import carray, types
from numba.extending import intrinsic

from segmeter.jit import fused_kernel, fused_part, fused_sums_part

PAD = 16  # added to each row, so that rows of a power of two do not all fall into the same cache sets

# numba widens a bare Python number to 64 bits, which would halve the vectors.
f32, i32 = np.float32, np.int32
ZERO, HALF, ONE, TWO, LARGEST = f32(0), f32(0.5), f32(1), f32(2), np.finfo(np.float32).max
LOG2E, LN2_HIGH, LN2_LOW = f32(1.4426950408889634), f32(0.693359375), f32(-2.12194440e-4)
# ROUNDER is 1.5 * 2^23: adding it rounds to an integer, which then lies in the low bits
ROUNDER, ROUNDER_BITS = f32(12582912.0), i32(0x4B400000 - 127)
LEAST_EXP = f32(-87.3)  # below it exp is under the smallest normal float32 and is 0
SQRT_HALF, MANTISSA = i32(0x3F3504F3), i32(23)
# bfloat16 is the upper half of a float32
LOWER, BELOW_HALF, LAST, NOT_A_NUMBER = i32(16), i32(0x7FFF), i32(1), i32(0x7FC0)
E0, E1, E2 = f32(1.9875691500e-4), f32(1.3981999507e-3), f32(8.3334519073e-3)
E3, E4, E5 = f32(4.1665795894e-2), f32(1.6666665459e-1), f32(5.0000001201e-1)
L0, L1, L2 = f32(7.0376836292e-2), f32(-1.1514610310e-1), f32(1.1676998740e-1)
L3, L4, L5 = f32(-1.2420140846e-1), f32(1.4249322787e-1), f32(-1.6668057665e-1)
L6, L7, L8 = f32(2.0000714765e-1), f32(-2.4999993993e-1), f32(3.3333331174e-1)
# log1p(x) / x on [0, 1]: a Chebyshev fit
U1, U2, U3 = f32(-0.4999990463256836), f32(0.33330005407333374), f32(-0.24954558908939362)
U4, U5, U6 = f32(0.19678117334842682), f32(-0.15311862528324127), f32(0.10614264756441116)
U7, U8, U9 = f32(-0.057064201682806015), f32(0.019907161593437195), f32(-0.003256378462538123)


class KernelJob(NamedTuple):
    """One call: addresses in torch's memory, sizes, strides in elements, and which blocks to do.

    If `gradient` is 0, three float64 per block are written to `sums` instead. `scale` is the incoming gradient, one
    float32. If `halved`, logits and gradient are bfloat16, otherwise float32. `width` is a label's size in bytes, 1 or
    4.
    """

    logits: int
    target: int
    weights: int
    scale: int
    sums: int
    gradient: int
    strides: tuple[int, int, int]
    gradient_strides: tuple[int, int, int]
    halved: bool
    width: int
    channels: int
    labels: int
    ignore: int
    pixels: int
    block: int
    first: int
    last: int
    gamma: Any
    negative: Any
    positive: Any


@intrinsic  # type: ignore[untyped-decorator]
def pointer(_: Any, address: Any) -> Any:
    """Turn an address into a pointer, so that torch's memory is used in place."""
    return types.voidptr(types.int64), lambda context, builder, signature, arguments: builder.inttoptr(
        arguments[0], context.get_value_type(signature.return_type)
    )


@intrinsic  # type: ignore[untyped-decorator]
def bits_of(_: Any, value: Any) -> Any:
    """Return the int32 with the bits of a float32."""
    return types.int32(types.float32), lambda _, builder, __, arguments: builder.bitcast(arguments[0], ir.IntType(32))


@intrinsic  # type: ignore[untyped-decorator]
def float_of(_: Any, bits: Any) -> Any:
    """Return the float32 with the bits of an int32."""
    return types.float32(types.int32), lambda _, builder, __, arguments: builder.bitcast(arguments[0], ir.FloatType())


@fused_part
def exp(x: Any) -> Any:
    """Compute e^x for x <= 0; NaN stays NaN. numba's own calls a scalar function per element: no vector code."""
    rounded = x * LOG2E + ROUNDER
    n = rounded - ROUNDER
    r = x - n * LN2_HIGH - n * LN2_LOW
    tail = ((((E0 * r + E1) * r + E2) * r + E3) * r + E4) * r + E5
    scale = float_of((bits_of(rounded) - ROUNDER_BITS) << MANTISSA)
    return ZERO if x < LEAST_EXP else (tail * r * r + r + ONE) * scale


@fused_part
def log(x: Any) -> Any:
    """Compute ln(x) of a normal x > 0, with the coefficients of Cephes (S. Moshier), as in `exp`."""
    bits = bits_of(x)
    exponent = (bits - SQRT_HALF) >> MANTISSA
    f = float_of(bits - (exponent << MANTISSA)) - ONE
    tail = (((L0 * f + L1) * f + L2) * f + L3) * f + L4
    tail = (((tail * f + L5) * f + L6) * f + L7) * f + L8
    square, n = f * f, f32(exponent)
    return f + (tail * f * square + n * LN2_LOW - HALF * square) + n * LN2_HIGH


@fused_part
def log1p(x: Any) -> Any:
    """Compute ln(1 + x) for x >= 0, corrected for the rounding of 1 + x."""
    rounded = ONE + x
    return log(rounded) + (x - (rounded - ONE)) / rounded


@fused_part
def log1p_unit(x: Any) -> Any:
    """Compute ln(1 + x) for 0 <= x <= 1, in a third of the operations of `log1p`."""
    tail = (((U9 * x + U8) * x + U7) * x + U6) * x + U5
    tail = (((tail * x + U4) * x + U3) * x + U2) * x + U1
    return x * (tail * x + ONE)


@fused_part
def power(base: Any, gamma: Any, count: Any, out: Any) -> None:
    """Compute base^gamma for 0 <= base <= 1, by multiplication if gamma is 0 or 2, as it mostly is; 0^0 = 1."""
    if gamma == ZERO:
        for p in range(count):
            out[p] = ONE
    elif gamma == TWO:
        for p in range(count):
            out[p] = base[p] * base[p]
    else:
        for p in range(count):
            out[p] = ZERO if base[p] == ZERO else exp(gamma * log(base[p]))


@fused_part
def half_of(x: Any) -> Any:
    """Return the bits of the nearest bfloat16; of two that are equally near, the even one."""
    bits = bits_of(x)
    rounded = (bits + BELOW_HALF + ((bits >> LOWER) & LAST)) >> LOWER
    return np.uint16(NOT_A_NUMBER if np.isnan(x) else rounded)


@fused_part
def read_rows(job: Any, image: Any, start: Any, count: Any, rows: Any) -> None:
    """Copy `count` pixels of each channel into rows[k, p], whatever their layout."""
    step = job.strides[2]
    for k in range(job.channels):
        row = rows[k]
        offset = image * job.strides[0] + k * job.strides[1] + start * step
        lane = carray(pointer(job.logits + 4 * offset), 1, np.float32)
        halves = carray(pointer(job.logits + 2 * offset), 1, np.uint16)
        if job.halved:
            for p in range(count):
                row[p] = float_of(i32(halves[p * step]) << LOWER)
        elif step == 1:
            for p in range(count):
                row[p] = lane[p]
        else:
            for p in range(count):
                row[p] = lane[p * step]


@fused_part
def write_rows(job: Any, image: Any, start: Any, count: Any, rows: Any) -> None:
    """Copy rows[k, p] to the gradient, which has strides of its own."""
    step = job.gradient_strides[2]
    for k in range(job.channels):
        row = rows[k]
        offset = image * job.gradient_strides[0] + k * job.gradient_strides[1] + start * step
        lane = carray(pointer(job.gradient + 4 * offset), 1, np.float32)
        halves = carray(pointer(job.gradient + 2 * offset), 1, np.uint16)
        if job.halved:
            for p in range(count):
                halves[p * step] = half_of(row[p])
        elif step == 1:
            for p in range(count):
                lane[p] = row[p]
        else:
            for p in range(count):
                lane[p * step] = row[p]


@fused_part
def class_of(label: Any, ignore: Any, labels: Any) -> Any:
    """Return the class of a label, -1 if it is ignored, -2 if it is bad."""
    known = (label >= i32(0)) & (label < labels)
    return i32(-1) if label == ignore else label if known else i32(-2)


@fused_part
def read_classes(job: Any, start: Any, count: Any, classes: Any) -> None:
    """Read the labels of `count` elements from element `start` on, as `class_of` gives them."""
    labels, ignore = i32(job.labels), i32(job.ignore)
    if job.width == 1:
        narrow = carray(pointer(job.target + start), 1, np.uint8)
        for p in range(count):
            classes[p] = class_of(i32(narrow[p]), ignore, labels)
    else:
        wide = carray(pointer(job.target + 4 * start), 1, np.int32)
        for p in range(count):
            classes[p] = class_of(wide[p], ignore, labels)


@fused_sums_part
def store_sums(job: Any, block: Any, count: Any, losses: Any, weights: Any, classes: Any) -> None:
    """Add the losses, weights and bad labels of one row to its block, in float64; excluded elements are 0."""
    sums = carray(pointer(job.sums + 24 * block), 3, np.float64)
    total, weight, bad = 0.0, 0.0, i32(0)
    for p in range(count):
        total += np.float64(losses[p] if classes[p] >= i32(0) else ZERO)
        weight += np.float64(weights[p])
        bad += i32(classes[p] < i32(-1))
    sums[0] += total
    sums[1] += weight
    sums[2] += bad


@fused_part
def split_softmax(
    rows: Any, classes: Any, count: Any, others: Any, hot: Any, delta: Any, nll: Any, q: Any, top: Any
) -> None:
    """Turn logits into e; give the other classes' e, e and logit - largest of the class, nll and q."""
    # The class's e is exactly 1 where it is the largest. Rows cut from one array in here would prevent vector code.
    for p in range(count):
        top[p] = rows[0, p]
        others[p] = hot[p] = delta[p] = ZERO
    for k in range(1, len(rows)):
        row = rows[k]
        for p in range(count):
            top[p] = row[p] if row[p] > top[p] else top[p]
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
    for p in range(count):
        nll[p] = log1p(others[p] + (hot[p] - ONE)) - delta[p]
        q[p] = others[p] / (others[p] + hot[p])


@fused_part
def softmax_slopes(
    rows: Any, classes: Any, gamma: Any, count: Any, others: Any, hot: Any, own: Any, nll: Any, q: Any, raised: Any,
    scale: Any,
) -> None:  # fmt: skip
    """Turn e into the gradient: w q^gamma (1 + gamma p nll / q) (p_k - [k is the class]); nll / q tends to 1."""
    for p in range(count):
        share = ONE / (others[p] + hot[p])
        ratio = min(nll[p], LARGEST) / q[p] if q[p] > ZERO else ONE
        slope = scale[p] * (raised[p] * (ONE + gamma * (hot[p] * share) * ratio))
        raised[p] = slope * share
        own[p] = -slope * q[p]
    for k in range(len(rows)):
        row = rows[k]
        for p in range(count):
            slope = own[p] if classes[p] == i32(k) else row[p] * raised[p]
            row[p] = slope if classes[p] >= i32(0) else ZERO


@fused_kernel
def softmax(job: Any) -> None:
    """Sum the losses of the job's blocks, or write their gradient, for one softmax over all channels."""
    rows = np.empty((job.channels, job.block + PAD), np.float32)
    lines = np.empty((7, job.block + PAD), np.float32)
    classes = np.empty(job.block + PAD, np.int32)
    table = carray(pointer(job.weights), job.channels, np.float32)
    others, hot, delta, nll = lines[0], lines[1], lines[2], lines[3]
    q, raised, weights = lines[4], lines[5], lines[6]
    per_image = (job.pixels + job.block - 1) // job.block
    for block in range(job.first, job.last):
        image, start = block // per_image, block % per_image * job.block
        count = min(job.block, job.pixels - start)
        read_rows(job, image, start, count, rows)
        read_classes(job, image * job.pixels + start, count, classes)
        for p in range(count):
            weights[p] = table[classes[p]] if classes[p] >= i32(0) else ZERO
        split_softmax(rows, classes, count, others, hot, delta, nll, q, raised)
        power(q, job.gamma, count, raised)
        if job.gradient:
            arriving = carray(pointer(job.scale), 1, np.float32)[0]
            for p in range(count):
                weights[p] *= arriving
            softmax_slopes(rows, classes, job.gamma, count, others, hot, delta, nll, q, raised, weights)
            write_rows(job, image, start, count, rows)
        else:
            for p in range(count):
                nll[p] *= raised[p] * weights[p]
            store_sums(job, block, count, nll, weights, classes)


@fused_part
def split_sigmoid(row: Any, classes: Any, count: Any, prob: Any, q: Any, nll: Any) -> None:
    """Compute p, q and -log p of each element's target, without a subtraction."""
    for p in range(count):
        z = row[p] if classes[p] == i32(1) else -row[p]
        e = exp(-abs(z))
        large = ONE / (ONE + e)
        small = e * large
        prob[p] = large if z >= ZERO else small
        q[p] = small if z >= ZERO else large
        nll[p] = log1p_unit(e) + max(-z, ZERO)


@fused_kernel
def sigmoid(job: Any) -> None:
    """Sum the losses of the job's blocks, or write their gradient, for one sigmoid per channel."""
    rows = np.empty((job.channels, job.block + PAD), np.float32)
    lines = np.empty((5, job.block + PAD), np.float32)
    classes = np.empty(job.block + PAD, np.int32)
    prob, q, nll, raised, valid = lines[0], lines[1], lines[2], lines[3], lines[4]
    per_image = (job.pixels + job.block - 1) // job.block
    for block in range(job.first, job.last):
        image, start = block // per_image, block % per_image * job.block
        count = min(job.block, job.pixels - start)
        read_rows(job, image, start, count, rows)
        for k in range(job.channels):
            row = rows[k]
            read_classes(job, (image * job.channels + k) * job.pixels + start, count, classes)
            split_sigmoid(row, classes, count, prob, q, nll)
            power(q, job.gamma, count, raised)
            for p in range(count):
                raised[p] *= job.positive if classes[p] == i32(1) else job.negative
            if job.gradient:
                arriving = carray(pointer(job.scale), 1, np.float32)[0]
                for p in range(count):
                    slope = -raised[p] * (q[p] + job.gamma * prob[p] * nll[p])
                    slope = arriving * (slope if classes[p] == i32(1) else -slope)
                    row[p] = slope if classes[p] >= i32(0) else ZERO
            else:
                for p in range(count):
                    nll[p] *= raised[p]
                    valid[p] = ONE if classes[p] >= i32(0) else ZERO
                store_sums(job, block, count, nll, valid, classes)
        if job.gradient:
            write_rows(job, image, start, count, rows)
