"""The Triton kernel that turns logits into labels and the record of their check, in one pass over the logits.

A program takes every n-th tile of [P, K] logits, P pixels and their K channels. It keeps its record in registers and
adds it once to the common one. Smallest and largest logit are recorded as integers that sort as the floats do, because
integers have an atomic minimum.
"""

# Triton reads annotations as types of its own, so arguments and results have none here.
# ruff: noqa: ANN001, ANN202
# mypy: disable-error-code="untyped-decorator, no-untyped-def, no-untyped-call"
import triton
import triton.language as tl

NOWHERE = tl.constexpr(2**62)


@triton.jit
def sortable(x):
    """Map float32 to int32 that sort alike."""
    bits = x.to(tl.int32, bitcast=True)
    return tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits)


@triton.jit
def argmax_labels(
    logits, labels, record, channels, pixels, s_image, s_channel, s_pixel, BLOCK_P: tl.constexpr, BLOCK_K: tl.constexpr
):
    """Label each pixel with its largest channel, the first one among equals."""
    image = tl.program_id(1).to(tl.int64)
    k = tl.arange(0, BLOCK_K).to(tl.int64)  # as k * s_channel may exceed 32 bits
    nan, inf = tl.zeros([BLOCK_P], tl.int64), tl.zeros([BLOCK_P], tl.int64)
    first = tl.full([BLOCK_P], NOWHERE, tl.int64)
    low, high = tl.full([BLOCK_P], float("inf"), tl.float32), tl.full([BLOCK_P], float("-inf"), tl.float32)
    p = tl.program_id(0).to(tl.int64) * BLOCK_P + tl.arange(0, BLOCK_P)
    for _ in range(tl.program_id(0), tl.cdiv(pixels, BLOCK_P), tl.num_programs(0)):
        inside = p < pixels
        exists = inside[:, None] & (k < channels)[None, :]
        offsets = image * s_image + p[:, None] * s_pixel + k[None, :] * s_channel
        x = tl.load(logits + offsets, mask=exists, other=0.0).to(tl.float32)
        has_nan = tl.max(((x != x) & exists).to(tl.int32), axis=1) > 0
        number = exists & (x == x)
        largest, label = tl.max(
            tl.where(number, x, float("-inf")), axis=1, return_indices=True, return_indices_tie_break_left=True
        )
        smallest = tl.min(tl.where(number, x, float("inf")), axis=1)
        has_inf = inside & ~has_nan & ((largest == float("inf")) | (smallest == float("-inf")))
        tl.store(labels + image * pixels + p, label.to(labels.dtype.element_ty), mask=inside)
        nan += has_nan.to(tl.int64)
        inf += has_inf.to(tl.int64)
        first = tl.minimum(first, tl.where(has_nan | has_inf, image * pixels + p, NOWHERE))
        low = tl.where(inside, tl.minimum(low, smallest), low)
        high = tl.where(inside, tl.maximum(high, largest), high)
        p += tl.num_programs(0) * BLOCK_P
    nans, infs = tl.sum(nan), tl.sum(inf)
    if nans + infs > 0:
        tl.atomic_add(record, nans + infs)
        tl.atomic_add(record + 1, nans)
        tl.atomic_add(record + 2, infs)
        tl.atomic_min(record + 3, tl.min(first))
    tl.atomic_min(record + 4, tl.min(sortable(low)).to(tl.int64))
    tl.atomic_max(record + 5, tl.max(sortable(high)).to(tl.int64))
