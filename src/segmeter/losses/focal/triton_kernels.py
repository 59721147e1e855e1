"""The Triton backend's kernels: a tile of pixels and all their channels per program, held in registers.

The forward reads the logits once and writes three numbers per tile; the backward reads them once and writes the
gradient once. The tiles' sums are added by a later, ordered reduction, so a run gives the same bits every time.
Formulas as in `torch_closed_form`; tiles are [P, K], P pixels and K channels, padded to a power of two.
"""

# Triton reads annotations as types of its own, so arguments and results have none here.
# ruff: noqa: ANN001, ANN201
# mypy: disable-error-code="untyped-decorator, no-untyped-def, no-untyped-call"
import triton
import triton.language as tl

LARGEST = tl.constexpr(3.4028234663852886e38)


@triton.jit
def log1p(x):
    """ln(1 + x) for x >= 0, with what 1 + x rounds away put back."""
    whole = 1.0 + x
    return tl.log(whole) + (x - (whole - 1.0)) / whole


@triton.jit
def power(q, GAMMA: tl.constexpr):
    """q^gamma for 0 <= q <= 1; 0^0 = 1."""
    if GAMMA == 0.0:
        return tl.where(q >= 0.0, 1.0, q)
    if GAMMA == 1.0:
        return q
    if GAMMA == 2.0:
        return q * q
    return tl.where(q == 0.0, 0.0, tl.exp(GAMMA * tl.log(tl.maximum(q, 1e-38, propagate_nan=tl.PropagateNan.ALL))))


@triton.jit
def slope_of(nll, q, prob, GAMMA: tl.constexpr):
    """Give ``q^gamma (1 + gamma p nll / q)``; nll / q tends to 1."""
    ratio = tl.where(q > 0.0, tl.minimum(nll, LARGEST) / tl.where(q > 0.0, q, 1.0), 1.0)
    return power(q, GAMMA) * (1.0 + GAMMA * prob * ratio)


@triton.jit
def places_of(s_image, s_channel, s_pixel, BLOCK_P: tl.constexpr, BLOCK_K: tl.constexpr):
    """Give where the tile's elements lie in a tensor of these strides, in 64 bits."""
    p = tl.program_id(0).to(tl.int64) * BLOCK_P + tl.arange(0, BLOCK_P)
    k = tl.arange(0, BLOCK_K).to(tl.int64)
    return tl.program_id(1).to(tl.int64) * s_image + p[:, None] * s_pixel + k[None, :] * s_channel


@triton.jit
def read_softmax(
    logits,
    target,
    channels,
    pixels,
    s_image,
    s_channel,
    s_pixel,
    ignore,
    HAS_IGNORE: tl.constexpr,
    BLOCK_P: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Give the tile's pixel numbers, masks, logits and labels."""
    image = tl.program_id(1).to(tl.int64)
    p = tl.program_id(0).to(tl.int64) * BLOCK_P + tl.arange(0, BLOCK_P)
    k = tl.arange(0, BLOCK_K)
    inside = p < pixels
    kept = inside[:, None] & (k < channels)[None, :]
    places = places_of(s_image, s_channel, s_pixel, BLOCK_P, BLOCK_K)
    x = tl.load(logits + places, mask=kept, other=0.0).to(tl.float32)
    x = tl.where((k < channels)[None, :], x, float("-inf"))
    labels = tl.load(target + image * pixels + p, mask=inside, other=0).to(tl.int64)
    valid = inside
    if HAS_IGNORE:
        valid = inside & (labels != ignore)
    known = (labels >= 0) & (labels < channels)
    return image * pixels + p, kept, x, labels, valid, known


@triton.jit
def split_softmax(x, own):
    """Give logit - largest, e, and the sum of e without the class or channel that `own` marks."""
    delta = x - tl.max(x, axis=1)[:, None]
    e = tl.exp(delta)
    return delta, e, tl.sum(tl.where(own, 0.0, e), axis=1)


@triton.jit
def first_largest(x, BLOCK_K: tl.constexpr):
    return tl.arange(0, BLOCK_K)[None, :] == tl.argmax(x, axis=1)[:, None]


@triton.jit
def class_weights(weights, labels, counted, HAS_WEIGHTS: tl.constexpr):
    """Give each pixel's class weight, 0 where it does not count."""
    if HAS_WEIGHTS:
        return tl.load(weights + labels, mask=counted, other=0.0)
    return tl.where(counted, 1.0, 0.0)


@triton.jit
def amounts_of(weights, labels, channels, smoothing, HAS_WEIGHTS: tl.constexpr, BLOCK_K: tl.constexpr):
    """Give how much each class's loss counts with a smoothed target, [P, K]."""
    k = tl.arange(0, BLOCK_K)
    mixed = smoothing / channels + tl.where(k[None, :] == labels[:, None], 1.0 - smoothing, 0.0)
    if HAS_WEIGHTS:
        mixed = mixed * tl.load(weights + k, mask=k < channels, other=0.0)[None, :]
    return tl.where((k < channels)[None, :], mixed, 0.0)


@triton.jit
def store_sums(sums, losses, weight, bad):
    place = sums + 3 * (tl.program_id(1).to(tl.int64) * tl.num_programs(0) + tl.program_id(0))
    tl.store(place, tl.sum(losses))
    tl.store(place + 1, tl.sum(weight))
    tl.store(place + 2, tl.sum(bad.to(tl.float32)))


@triton.jit
def softmax_sums(
    logits,
    target,
    weights,
    losses,
    sums,
    channels,
    pixels,
    s_image,
    s_channel,
    s_pixel,
    ignore,
    smoothing,
    GAMMA: tl.constexpr,
    SMOOTH: tl.constexpr,
    HAS_IGNORE: tl.constexpr,
    HAS_WEIGHTS: tl.constexpr,
    ELEMENTWISE: tl.constexpr,
    BLOCK_P: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Loss, weight and bad labels of each tile, multiclass."""
    element, _, x, labels, valid, known = read_softmax(
        logits, target, channels, pixels, s_image, s_channel, s_pixel, ignore, HAS_IGNORE, BLOCK_P, BLOCK_K
    )
    counted = valid & known
    weight = class_weights(weights, labels, counted, HAS_WEIGHTS)
    if SMOOTH:
        delta, e, others = split_softmax(x, first_largest(x, BLOCK_K))
        nll = tl.where((tl.arange(0, BLOCK_K) < channels)[None, :], log1p(others)[:, None] - delta, 0.0)
        q = (others[:, None] + (1.0 - e)) / (1.0 + others)[:, None]
        amounts = amounts_of(weights, labels, channels, smoothing, HAS_WEIGHTS, BLOCK_K)
        loss = tl.sum(amounts * power(q, GAMMA) * nll, axis=1)
    else:
        own = tl.arange(0, BLOCK_K)[None, :] == labels[:, None]
        delta, e, others = split_softmax(x, own)
        hot = tl.sum(tl.where(own, e, 0.0), axis=1)
        nll = log1p(others + (hot - 1.0)) - tl.sum(tl.where(own, delta, 0.0), axis=1)
        loss = weight * power(others / (others + hot), GAMMA) * nll
    loss = tl.where(counted, loss, 0.0)
    if ELEMENTWISE:
        tl.store(losses + element, loss, mask=tl.program_id(0) * BLOCK_P + tl.arange(0, BLOCK_P) < pixels)
    store_sums(sums, loss, weight, valid & ~known)


@triton.jit
def softmax_gradient(
    logits,
    target,
    weights,
    scales,
    gradient,
    channels,
    pixels,
    s_image,
    s_channel,
    s_pixel,
    g_image,
    g_channel,
    g_pixel,
    ignore,
    smoothing,
    GAMMA: tl.constexpr,
    SMOOTH: tl.constexpr,
    HAS_IGNORE: tl.constexpr,
    HAS_WEIGHTS: tl.constexpr,
    ELEMENTWISE: tl.constexpr,
    BLOCK_P: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Gradient of each tile, multiclass; its strides are `g_image`, `g_channel` and `g_pixel`."""
    element, kept, x, labels, valid, known = read_softmax(
        logits, target, channels, pixels, s_image, s_channel, s_pixel, ignore, HAS_IGNORE, BLOCK_P, BLOCK_K
    )
    counted = valid & known
    if ELEMENTWISE:
        scale = tl.load(scales + element, mask=counted, other=0.0)
    else:
        scale = tl.where(counted, tl.load(scales), 0.0)
    if SMOOTH:
        delta, e, others = split_softmax(x, first_largest(x, BLOCK_K))
        whole = (1.0 + others)[:, None]
        nll = tl.where((tl.arange(0, BLOCK_K) < channels)[None, :], log1p(others)[:, None] - delta, 0.0)
        q = (others[:, None] + (1.0 - e)) / whole
        slopes = amounts_of(weights, labels, channels, smoothing, HAS_WEIGHTS, BLOCK_K)
        slopes = slopes * slope_of(nll, q, e / whole, GAMMA)
        slope = e / whole * (tl.sum(slopes, axis=1)[:, None] - slopes) - slopes * q
        slope = scale[:, None] * slope
    else:
        own = tl.arange(0, BLOCK_K)[None, :] == labels[:, None]
        delta, e, others = split_softmax(x, own)
        hot = tl.sum(tl.where(own, e, 0.0), axis=1)
        nll = log1p(others + (hot - 1.0)) - tl.sum(tl.where(own, delta, 0.0), axis=1)
        q = others / (others + hot)
        share = scale * class_weights(weights, labels, counted, HAS_WEIGHTS)
        share = share * slope_of(nll, q, hot / (others + hot), GAMMA)
        slope = tl.where(own, -(share * q)[:, None], e * (share / (others + hot))[:, None])
    slope = tl.where(counted[:, None], slope, 0.0)
    places = places_of(g_image, g_channel, g_pixel, BLOCK_P, BLOCK_K)
    tl.store(gradient + places, slope.to(gradient.dtype.element_ty), mask=kept)


@triton.jit
def read_sigmoid(
    logits,
    target,
    channels,
    pixels,
    s_image,
    s_channel,
    s_pixel,
    ignore,
    HAS_IGNORE: tl.constexpr,
    BLOCK_P: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Give the tile's element numbers, masks, logits and labels."""
    image = tl.program_id(1).to(tl.int64)
    p = tl.program_id(0).to(tl.int64) * BLOCK_P + tl.arange(0, BLOCK_P)
    k = tl.arange(0, BLOCK_K)
    kept = (p < pixels)[:, None] & (k < channels)[None, :]
    places = places_of(s_image, s_channel, s_pixel, BLOCK_P, BLOCK_K)
    x = tl.load(logits + places, mask=kept, other=0.0).to(tl.float32)
    element = (image * channels + k[None, :]) * pixels + p[:, None]
    labels = tl.load(target + element, mask=kept, other=0)
    if target.dtype.element_ty != tl.int64:  # 32 bits would cut 2^32 + 1 down to 1
        labels = labels.to(tl.int32)
    valid = kept
    if HAS_IGNORE:
        valid = kept & (labels != ignore)
    return element, kept, x, labels, valid, (labels == 0) | (labels == 1)


@triton.jit
def split_sigmoid(x, labels):
    """Give p, q and -log p of each element's target, and -log q; none of them by a subtraction."""
    z = tl.where(labels == 1, x, -x)
    e = tl.exp(-tl.abs(z))
    large = 1.0 / (1.0 + e)
    tail = log1p(e)
    up = z >= 0.0
    prob, q = tl.where(up, large, e * large), tl.where(up, e * large, large)
    return prob, q, tail + tl.where(up, 0.0, -z), tail + tl.where(up, z, 0.0)


@triton.jit
def sigmoid_sums(
    logits,
    target,
    losses,
    sums,
    channels,
    pixels,
    s_image,
    s_channel,
    s_pixel,
    ignore,
    smoothing,
    negative,
    positive,
    GAMMA: tl.constexpr,
    SMOOTH: tl.constexpr,
    HAS_IGNORE: tl.constexpr,
    ELEMENTWISE: tl.constexpr,
    BLOCK_P: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Loss, count and bad labels of each tile, one sigmoid per channel."""
    element, kept, x, labels, valid, known = read_sigmoid(
        logits, target, channels, pixels, s_image, s_channel, s_pixel, ignore, HAS_IGNORE, BLOCK_P, BLOCK_K
    )
    prob, q, nll, other_nll = split_sigmoid(x, labels)
    loss = tl.where(labels == 1, positive, negative) * power(q, GAMMA) * nll
    if SMOOTH:
        other = tl.where(labels == 1, negative, positive) * power(prob, GAMMA) * other_nll
        loss = (1.0 - smoothing / 2) * loss + smoothing / 2 * other
    loss = tl.where(valid & known, loss, 0.0)
    if ELEMENTWISE:
        tl.store(losses + element, loss, mask=kept)
    store_sums(sums, loss, (valid & known).to(tl.float32), valid & ~known)


@triton.jit
def sigmoid_gradient(
    logits,
    target,
    scales,
    gradient,
    channels,
    pixels,
    s_image,
    s_channel,
    s_pixel,
    g_image,
    g_channel,
    g_pixel,
    ignore,
    smoothing,
    negative,
    positive,
    GAMMA: tl.constexpr,
    SMOOTH: tl.constexpr,
    HAS_IGNORE: tl.constexpr,
    ELEMENTWISE: tl.constexpr,
    BLOCK_P: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Gradient of each tile, one sigmoid per channel; its strides are `g_image`, `g_channel` and `g_pixel`."""
    element, kept, x, labels, valid, known = read_sigmoid(
        logits, target, channels, pixels, s_image, s_channel, s_pixel, ignore, HAS_IGNORE, BLOCK_P, BLOCK_K
    )
    scale = tl.load(scales + element, mask=kept, other=0.0) if ELEMENTWISE else tl.load(scales)
    prob, q, nll, other_nll = split_sigmoid(x, labels)
    slope = -tl.where(labels == 1, positive, negative) * power(q, GAMMA) * (q + GAMMA * prob * nll)
    if SMOOTH:
        other = tl.where(labels == 1, negative, positive) * power(prob, GAMMA) * (prob + GAMMA * q * other_nll)
        slope = (1.0 - smoothing / 2) * slope + smoothing / 2 * other
    slope = tl.where(valid & known, scale * tl.where(labels == 1, slope, -slope), 0.0)
    places = places_of(g_image, g_channel, g_pixel, BLOCK_P, BLOCK_K)
    tl.store(gradient + places, slope.to(gradient.dtype.element_ty), mask=kept)
