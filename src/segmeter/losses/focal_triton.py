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

TILE = 2048  # logits per program: 8 per thread with 8 warps, which take 55 to 110 registers
LARGEST = tl.constexpr(3.4028234663852886e38)


def forward_sums(
    logits: torch.Tensor, target: torch.Tensor, options: FocalOptions
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Compute the same as `focal_numba.forward_sums`, for floating logits of at most 32 bits on CUDA."""
    totals = _run(logits, target, options, scale=None, gradient=None).sum(0, dtype=torch.float64)
    return totals[0].float(), totals[1].float(), totals[2].long()


def gradient(logits: torch.Tensor, target: torch.Tensor, options: FocalOptions, scale: torch.Tensor) -> torch.Tensor:
    """Compute the gradient of the summed loss times `scale`, the incoming gradient, 0-d."""
    result = torch.empty_like(logits)  # dense, so it has strides of its own where the logits are a view
    spaced, _ = with_pixel_stride(result)
    _run(logits, target, options, scale=scale.float(), gradient=spaced)
    return result if spaced is result else result.copy_(spaced)


def _run(
    logits: torch.Tensor,
    target: torch.Tensor,
    options: FocalOptions,
    *,
    scale: torch.Tensor | None,
    gradient: torch.Tensor | None,
) -> torch.Tensor:
    """Fill the gradient if there is one, else return loss, weight and bad labels per tile, (tiles, 3) float32."""
    spaced, step = with_pixel_stride(logits)
    images, channels = logits.shape[:2]
    pixels = logits[0, 0].numel()
    weights = options.class_weights
    block_k = 1 << (channels - 1).bit_length()  # Triton takes powers of two
    block_p = max(1, TILE // block_k)
    blocks = -(-pixels // block_p)
    sums = torch.empty((blocks * images, 3), dtype=torch.float32, device=logits.device)
    strides = (0, 0, 0)
    if gradient is not None:
        strides = (gradient.stride(0), gradient.stride(1), with_pixel_stride(gradient)[1])
    with torch.cuda.device_of(logits):  # Triton takes the current device, which `cuda:1` need not be
        focal[(blocks, images)](
            *(spaced, target.contiguous(), weights, sums if scale is None else scale),
            *(sums, sums if gradient is None else gradient),
            *(channels, pixels, *spaced.stride()[:2], step, *strides),
            *(0 if options.ignore_index is None else options.ignore_index, *options.sides),
            GAMMA=options.gamma,
            SOFTMAX=options.softmax,
            BACKWARD=gradient is not None,
            HAS_IGNORE=options.ignore_index is not None,
            HAS_WEIGHTS=weights is not None,
            num_warps=8,
            enable_fp_fusion=True,
            BLOCK_P=block_p,
            BLOCK_K=block_k,
        )
    return sums


@triton.jit
def log1p(x):
    """Compute ln(1 + x) for x >= 0, corrected for the rounding of 1 + x."""
    rounded = 1.0 + x
    return tl.log(rounded) + (x - (rounded - 1.0)) / rounded


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
    """Return the loss [P, 1], or its slopes [P, K]. The sum of e leaves out the class, so that nothing cancels."""
    x = tl.where(k < channels, x, float("-inf"))
    delta = x - tl.max(x, axis=1, keep_dims=True)
    e, own = tl.exp(delta), k == labels
    others = tl.sum(tl.where(own, 0.0, e), axis=1, keep_dims=True)
    hot = tl.sum(tl.where(own, e, 0.0), axis=1, keep_dims=True)
    nll = log1p(others + (hot - 1.0)) - tl.sum(tl.where(own, delta, 0.0), axis=1, keep_dims=True)
    q = others / (others + hot)
    # a single return, as Triton compares the types of all returns, even of unreachable ones
    if BACKWARD:
        ratio = tl.where(q > 0.0, tl.minimum(nll, LARGEST) / tl.where(q > 0.0, q, 1.0), 1.0)  # tends to 1
        share = weight * (power(q, GAMMA) * (1.0 + GAMMA * (hot / (others + hot)) * ratio))
        terms = tl.where(own, -(share * q), e * (share / (others + hot)))
    else:
        terms = weight * power(q, GAMMA) * nll
    return terms


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
    exists = (p < pixels) & (k < channels)
    x = tl.load(logits + (image * s_image + p * s_pixel + k.to(tl.int64) * s_channel), mask=exists, other=0.0)
    x = x.to(tl.float32)
    if SOFTMAX:
        element, inside, kinds = image * pixels + p, p < pixels, channels
    else:
        element, inside, kinds = (image * channels + k) * pixels + p, exists, 2
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
        terms = softmax_terms(x, labels, k, channels, weight, GAMMA, BACKWARD)
    else:
        terms = sigmoid_terms(x, labels, negative, positive, GAMMA, BACKWARD)
    if BACKWARD:
        slopes = tl.where(counted, tl.load(scale) * terms, 0.0)
        offsets = image * g_image + p * g_pixel + k.to(tl.int64) * g_channel
        tl.store(gradient + offsets, slopes.to(gradient.dtype.element_ty), mask=exists)
    else:
        record = sums + 3 * (image * tl.num_programs(0) + tl.program_id(0))
        tl.store(record, tl.sum(tl.where(counted, terms, 0.0)))
        tl.store(record + 1, tl.sum(weight))
        tl.store(record + 2, tl.sum((valid & ~known).to(tl.float32)))
