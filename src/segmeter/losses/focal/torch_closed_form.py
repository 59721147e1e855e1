"""Focal loss and its gradient in closed form, in plain torch, a block of rows at a time so that temporaries stay small.

Letters: B batch, K channels, H rows, N... the other spatial axes. With p the probability of the target, L = log p and
q = 1 - p, neither gradient needs q^(gamma - 1), so all is finite:

* sigmoid, s = 2 y - 1: ``dFL/dx = -s w q^gamma (q - gamma p L)``
* softmax: ``dFL_k/dx_j = w_k q_k^gamma (1 + gamma p_k r_k) (p_j - [j = k])``, ``r = -L / q``, and r = 1 at q = 0

The softmax subtracts the largest logit and sums the other exponentials apart (``others``), so that L and q keep all
their digits where p is next to 1.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch

from segmeter.losses.focal.params import FocalParams, LossSums, summed_weight
from segmeter.losses.targets import Labels, read_labels, widened

BLOCK_ELEMENTS = 1 << 17  # logits per block on the CPU: half a MiB of float32, so that a few temporaries fit in L2


class Softmax(NamedTuple):
    """For a block of logits: distance to the largest, its exponential, and the sum of the other exponentials."""

    delta: torch.Tensor
    exp: torch.Tensor
    others: torch.Tensor


class Block(NamedTuple):
    """Some rows of some images, widened, with their target, labels and class weights; and their place in the whole."""

    x: torch.Tensor
    target: torch.Tensor
    labels: Labels
    weights: torch.Tensor | None
    place: tuple[slice, ...]
    element_place: tuple[slice, ...]


def torch_sums(
    logits: torch.Tensor, target: torch.Tensor, weights: torch.Tensor | None, terms: FocalParams
) -> LossSums:
    """Sum the losses; arguments as in `reference_sums`."""
    soft = target.is_floating_point()
    dtype = torch.float64 if logits.dtype == torch.float64 else torch.float32
    elements = logits[:, 0] if terms.softmax else logits
    every = torch.empty_like(elements, dtype=dtype) if terms.elementwise else None
    totals, summed, bad = [], [], []
    for block in _blocks(logits, target, weights, terms):
        losses = _softmax_losses(block, terms) if terms.softmax else _sigmoid_losses(block, terms)
        losses = torch.where(block.labels.counted, losses, 0)
        if every is None:
            totals.append(losses.sum())
        else:
            every[block.element_place] = losses
        summed.append(summed_weight(block.labels, weights, soft=soft, dtype=dtype))
        bad.append(block.labels.bad.sum())
    total = torch.stack(totals).sum() if every is None else every
    return LossSums(total, torch.stack(summed).sum(), torch.stack(bad).sum())


def torch_gradient(
    logits: torch.Tensor, target: torch.Tensor, weights: torch.Tensor | None, *, terms: FocalParams, scale: torch.Tensor
) -> torch.Tensor:
    """Gradient of the total with respect to the logits, in their dtype and layout, times `scale`.

    `scale` is the incoming gradient of the total: 0-d, or one per element with ``terms.elementwise``.
    """
    gradient = torch.empty_like(logits)
    for block in _blocks(logits, target, weights, terms):
        part = _softmax_gradient(block, terms) if terms.softmax else _sigmoid_gradient(block, terms)
        factor = scale[block.element_place] if terms.elementwise else scale
        counted = block.labels.counted
        if terms.softmax:
            counted, factor = counted.unsqueeze(1), factor.unsqueeze(1) if terms.elementwise else factor
        gradient[block.place] = torch.where(counted, part * factor, 0).to(logits.dtype)
    return gradient


def _blocks(
    logits: torch.Tensor, target: torch.Tensor, weights: torch.Tensor | None, terms: FocalParams
) -> Iterator[Block]:
    """Cut along the rows of each image; one block where a compiler fuses the temporaries away."""
    batch, rows = logits.shape[0], logits.shape[2] if logits.ndim > 2 else 1
    step = max(1, BLOCK_ELEMENTS // max(1, logits.shape[1] * math.prod(logits.shape[3:])))
    whole = torch.compiler.is_compiling() or logits.numel() <= BLOCK_ELEMENTS
    pixels_only = terms.softmax and not target.is_floating_point()
    for image in [slice(None)] if whole else [slice(b, b + 1) for b in range(batch)]:
        for row in [slice(None)] if whole else [slice(r, r + step) for r in range(0, rows, step)]:
            place = (image, slice(None), row) if logits.ndim > 2 else (image,)
            pixel_place = (image, row) if logits.ndim > 2 else (image,)
            x = widened(logits[place])
            t = target[pixel_place if pixels_only else place]
            labels = read_labels(x, t, softmax=terms.softmax, ignore_index=terms.ignore_index)
            yield Block(x, t, labels, weights, place, pixel_place if terms.softmax else place)


def _softmax(x: torch.Tensor) -> Softmax:
    top, argmax = x.max(dim=1, keepdim=True)
    delta = x - top
    exp = delta.exp()
    return Softmax(delta, exp, exp.scatter(1, argmax, 0).sum(1, keepdim=True))


def _power_terms(delta: torch.Tensor, exp: torch.Tensor, others: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Give -L and q of classes at distance `delta` from the largest; 1 - exp is exactly 0 for the largest."""
    return torch.log1p(others) - delta, (others + (1 - exp)) / (1 + others)


def _slope(minus_log: torch.Tensor, q: torch.Tensor, p: torch.Tensor, gamma: float) -> torch.Tensor:
    """Give ``q^gamma (1 + gamma p r)``."""
    ratio = torch.where(q > 0, minus_log.clamp(max=torch.finfo(q.dtype).max) / q, 1)
    return q.pow(gamma) * (1 + gamma * p * ratio)


def _amounts(block: Block, terms: FocalParams) -> torch.Tensor | None:
    """Give how much each class's loss counts, (B, K, H, N...); None where each pixel has one class only."""
    if not block.target.is_floating_point() and terms.smoothing == 0:
        return None
    shape = [1, -1] + [1] * (block.x.ndim - 2)
    num_classes = block.x.shape[1]
    if block.target.is_floating_point():
        hot = block.target.to(block.x.dtype)
    else:
        classes = torch.arange(num_classes, device=block.x.device).view(shape)
        hot = (block.labels.classes.unsqueeze(1) == classes).to(block.x.dtype)
    mixed = (1 - terms.smoothing) * hot + terms.smoothing / num_classes
    return mixed if block.weights is None else mixed * block.weights.to(mixed.dtype).view(shape)


def _pixel_weight(block: Block) -> torch.Tensor | float:
    return 1.0 if block.weights is None else block.weights.to(block.x.dtype)[block.labels.classes]


def _softmax_losses(block: Block, terms: FocalParams) -> torch.Tensor:
    delta, exp, others = _softmax(block.x)
    amounts = _amounts(block, terms)
    if amounts is not None:
        minus_log, q = _power_terms(delta, exp, others)
        return (amounts * q.pow(terms.gamma) * minus_log).sum(1)
    index = block.labels.classes.unsqueeze(1)
    minus_log, q = _power_terms(delta.gather(1, index), exp.gather(1, index), others)
    return _pixel_weight(block) * (q.pow(terms.gamma) * minus_log).squeeze(1)


def _softmax_gradient(block: Block, terms: FocalParams) -> torch.Tensor:
    delta, exp, others = _softmax(block.x)
    amounts = _amounts(block, terms)
    if amounts is not None:
        minus_log, q = _power_terms(delta, exp, others)
        probs = exp / (1 + others)
        slopes = amounts * _slope(minus_log, q, probs, terms.gamma)
        # The other classes pull up, its own pulls down by 1 - p = q; written so, one hot class loses no digit.
        return probs * (slopes.sum(1, keepdim=True) - slopes) - slopes * q
    index = block.labels.classes.unsqueeze(1)
    hot = exp.gather(1, index)
    minus_log, q = _power_terms(delta.gather(1, index), hot, others)
    slope = _slope(minus_log, q, hot / (1 + others), terms.gamma)
    if block.weights is not None:
        slope = slope * block.weights.to(slope.dtype)[index]
    return (exp * (slope / (1 + others))).scatter(1, index, -slope * q)


def _sigmoid_amounts(block: Block, terms: FocalParams) -> tuple[torch.Tensor, torch.Tensor]:
    """Give how much target 1 and target 0 count, of each element."""
    hot = block.target if block.target.is_floating_point() else block.labels.classes
    mixed = (1 - terms.smoothing) * hot.to(block.x.dtype) + terms.smoothing / 2
    return terms.positive * mixed, terms.negative * (1 - mixed)


def _sigmoid_losses(block: Block, terms: FocalParams) -> torch.Tensor:
    """Sum the loss of target 1 and of target 0, each by its share; e is exp(-|x|)."""
    x = block.x
    positive, negative = _sigmoid_amounts(block, terms)
    e = torch.exp(-x.abs())
    tail = torch.log1p(e)
    p, q = _sigmoids(x, e)
    up = q.pow(terms.gamma) * (tail + (-x).clamp(min=0))
    down = p.pow(terms.gamma) * (tail + x.clamp(min=0))
    return positive * up + negative * down


def _sigmoid_gradient(block: Block, terms: FocalParams) -> torch.Tensor:
    x = block.x
    positive, negative = _sigmoid_amounts(block, terms)
    e = torch.exp(-x.abs())
    tail = torch.log1p(e)
    p, q = _sigmoids(x, e)
    up = q.pow(terms.gamma) * (q + terms.gamma * p * (tail + (-x).clamp(min=0)))
    down = p.pow(terms.gamma) * (p + terms.gamma * q * (tail + x.clamp(min=0)))
    return negative * down - positive * up


def _sigmoids(x: torch.Tensor, e: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Give sigmoid(x) and sigmoid(-x), the smaller of them without a subtraction."""
    small, large = e / (1 + e), 1 / (1 + e)
    return torch.where(x >= 0, large, small), torch.where(x >= 0, small, large)
