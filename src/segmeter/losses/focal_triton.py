"""Computes the focal loss on a GPU: one kernel for the sums or the gradient. Nothing here waits for the device.

A program holds a tile of pixels with all their channels in registers. The forward pass reads the logits once and writes
three numbers per tile; the backward pass reads them once and writes the gradient once. The tiles' sums are added by a
later, ordered reduction, so a run gives the same bits every time. Tiles are [P, K], P pixels and K channels, padded to
powers of two; values per pixel are [P, 1]. Importing this module loads Triton.
"""

# Triton reads annotations as types of its own, so a kernel's arguments and results have none.
# ruff: noqa: ANN001, ANN201
# mypy: disable-error-code="untyped-decorator, no-untyped-def, no-untyped-call"
import torch
import triton
import triton.language as tl

from segmeter.losses.focal_torch import FocalOptions
from segmeter.losses.targets import with_pixel_stride

TILE = 2048  # logits per program: 8 per thread with 8 warps, in 55 to 110 registers
LARGEST = tl.constexpr(3.4028234663852886e38)


def compute(
    logits: torch.Tensor, target: torch.Tensor, options: FocalOptions, scale: torch.Tensor | None = None
) -> list[torch.Tensor]:
    """Compute what `focal_numba.compute` does, for floating logits of at most 32 bits on CUDA."""
    spaced, step = with_pixel_stride(logits)
    channels, pixels, weights = logits.shape[1], logits[0, 0].numel(), options.class_weights
    images, block_k = logits.shape[0], 1 << (channels - 1).bit_length()  # Triton takes powers of two
    block_p = max(1, TILE // block_k)
    blocks = -(-pixels // block_p)
    sums = torch.empty((blocks * images, 3), dtype=torch.float32, device=logits.device)
    result, gradient, strides = sums, sums, (0, 0, 0)
    if scale is not None:
        result = torch.empty_like(logits)  # dense, so it has strides of its own where the logits are a view
        gradient, distance = with_pixel_stride(result)
        strides = (gradient.stride(0), gradient.stride(1), distance)
    with torch.cuda.device_of(logits):  # Triton takes the current device, which `cuda:1` need not be
        focal[(blocks, images)](
            *(spaced, target.contiguous(), weights, sums if scale is None else scale.float(), sums, gradient),
            *(channels, pixels, *spaced.stride()[:2], step, *strides),
            *(0 if options.ignore_index is None else options.ignore_index, *options.sides),
            GAMMA=options.gamma,
            SOFTMAX=options.softmax,
            BACKWARD=scale is not None,
            HAS_IGNORE=options.ignore_index is not None,
            HAS_WEIGHTS=weights is not None,
            num_warps=8,
            enable_fp_fusion=True,
            BLOCK_P=block_p,
            BLOCK_K=block_k,
        )
    if scale is not None:
        return [result if gradient is result else result.copy_(gradient)]
    whole = sums.sum(0, dtype=torch.float64)
    return [whole[0].float(), whole[1].float(), whole[2].long()]


@triton.jit
def log1p(x):
    """Compute ln(1 + x) for x >= 0, corrected for the rounding of 1 + x."""
    whole = 1.0 + x
    return tl.log(whole) + (x - (whole - 1.0)) / whole


@triton.jit
def power(q, GAMMA: tl.constexpr):
    """Compute q^gamma for 0 <= q <= 1; 0^0 = 1."""
    if GAMMA == 0.0:
        return tl.where(q >= 0.0, 1.0, q)
    if GAMMA == 2.0:
        return q * q
    least = 1.2e-38  # below the normal float32 numbers Triton 3.6 would compute in float64
    return tl.where(q == 0.0, 0.0, tl.exp(GAMMA * tl.log(tl.maximum(q, least, propagate_nan=tl.PropagateNan.ALL))))


@triton.jit
def softmax_terms(x, labels, k, channels, weight, GAMMA: tl.constexpr, BACKWARD: tl.constexpr):
    """Return the loss [P, 1], or its slopes [P, K]; the sum of e leaves out the class, so that nothing cancels."""
    x = tl.where(k < channels, x, float("-inf"))
    delta = x - tl.max(x, axis=1, keep_dims=True)
    e, own = tl.exp(delta), k == labels
    others = tl.sum(tl.where(own, 0.0, e), axis=1, keep_dims=True)
    hot = tl.sum(tl.where(own, e, 0.0), axis=1, keep_dims=True)
    nll = log1p(others + (hot - 1.0)) - tl.sum(tl.where(own, delta, 0.0), axis=1, keep_dims=True)
    q = others / (others + hot)
    # one return: Triton compares the types of all of them, also of those that are not reached
    if BACKWARD:
        ratio = tl.where(q > 0.0, tl.minimum(nll, LARGEST) / tl.where(q > 0.0, q, 1.0), 1.0)  # tends to 1
        share = weight * (power(q, GAMMA) * (1.0 + GAMMA * (hot / (others + hot)) * ratio))
        found = tl.where(own, -(share * q), e * (share / (others + hot)))
    else:
        found = weight * power(q, GAMMA) * nll
    return found


@triton.jit
def sigmoid_terms(x, labels, negative, positive, GAMMA: tl.constexpr, BACKWARD: tl.constexpr):
    """Return the loss of each element, or its slope; p, q and their logarithms need no subtraction."""
    hot = labels == 1
    z = tl.where(hot, x, -x)
    e = tl.exp(-tl.abs(z))
    large = 1.0 / (1.0 + e)
    up = z >= 0.0
    prob, q = tl.where(up, large, e * large), tl.where(up, e * large, large)
    nll = log1p(e) + tl.where(up, 0.0, -z)
    raised = tl.where(hot, positive, negative) * power(q, GAMMA)
    if BACKWARD:
        slope = -raised * (q + GAMMA * prob * nll)
        return tl.where(hot, slope, -slope)
    return raised * nll


@triton.jit
def focal(
    logits, target, weights, scale, sums, gradient, channels, pixels, s_image, s_channel, s_pixel, g_image, g_channel,
    g_pixel, ignore, negative, positive, GAMMA: tl.constexpr, SOFTMAX: tl.constexpr, BACKWARD: tl.constexpr,
    HAS_IGNORE: tl.constexpr, HAS_WEIGHTS: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Sum loss, weight and bad labels of a tile, or write its gradient; `scale` is then the incoming gradient."""
    image = tl.program_id(1).to(tl.int64)
    p = (tl.program_id(0).to(tl.int64) * BLOCK_P + tl.arange(0, BLOCK_P))[:, None]
    k = tl.arange(0, BLOCK_K)[None, :]
    kept = (p < pixels) & (k < channels)
    x = tl.load(logits + (image * s_image + p * s_pixel + k.to(tl.int64) * s_channel), mask=kept, other=0.0)
    x = x.to(tl.float32)
    if SOFTMAX:
        element, inside, kinds = image * pixels + p, p < pixels, channels
    else:
        element, inside, kinds = (image * channels + k) * pixels + p, kept, 2
    labels = tl.load(target + element, mask=inside, other=0)
    if target.dtype.element_ty != tl.int64:  # 32 bits would cut 2^32 + 1 down to 1
        labels = labels.to(tl.int32)
    known = (labels >= 0) & (labels < kinds)
    valid = inside
    if HAS_IGNORE:
        valid = inside & (labels != ignore)
    counted = valid & known
    weight = tl.where(counted, 1.0, 0.0)
    if HAS_WEIGHTS:
        weight = tl.load(weights + labels, mask=counted, other=0.0)
    if SOFTMAX:
        found = softmax_terms(x, labels, k, channels, weight, GAMMA, BACKWARD)
    else:
        found = sigmoid_terms(x, labels, negative, positive, GAMMA, BACKWARD)
    if BACKWARD:
        slopes = tl.where(counted, tl.load(scale) * found, 0.0)
        places = image * g_image + p * g_pixel + k.to(tl.int64) * g_channel
        tl.store(gradient + places, slopes.to(gradient.dtype.element_ty), mask=kept)
    else:
        place = sums + 3 * (image * tl.num_programs(0) + tl.program_id(0))
        tl.store(place, tl.sum(tl.where(counted, found, 0.0)))
        tl.store(place + 1, tl.sum(weight))
        tl.store(place + 2, tl.sum((valid & ~known).to(tl.float32)))
