"""The focal loss as it is defined, in plain torch, differentiated by autograd; it takes soft targets and any device.

The other backends are compared with it. Letters: B batch, K channels, N... the spatial axes.
"""

from typing import NamedTuple

import torch
from torch.nn.functional import cross_entropy, logsigmoid

from segmeter.losses.targets import read_labels, widened

LEAST_Q = 1e-30  # the slope of q^gamma is infinite at 0 where gamma < 1


class Terms(NamedTuple):
    """The options of one call, checked already.

    `softmax` is True for multiclass and False for one sigmoid per channel, whose targets 0 and 1 weigh `negative` and
    `positive`. `smoothing` is the share of the target that is spread over the classes. `elementwise` keeps one loss per
    element instead of their sum.
    """

    softmax: bool
    gamma: float
    negative: float = 1.0
    positive: float = 1.0
    smoothing: float = 0.0
    elementwise: bool = False
    ignore_index: int | None = None


def compute(
    logits: torch.Tensor, target: torch.Tensor, weights: torch.Tensor | None, terms: Terms
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Sum ``-t_k w_k (1 - p_k)^gamma log p_k`` over classes k and counted elements.

    Parameters
    ----------
    logits : (B, K, N...), floating
    target
        Labels (B, N...) for softmax and (B, K, N...) for sigmoid, or floating probabilities of the logits' shape.
    weights : (K,) or None
        Class weights (softmax).

    Returns
    -------
    The sum, 0-d, or one loss per element with ``terms.elementwise``; the summed class weight (softmax) or the number
    (sigmoid) of the valid elements; and the number, int64, of labels that are neither a class nor ignore_index and of
    soft values outside 0 to 1. Floats are float32, or float64 for float64 logits.
    """
    soft = target.is_floating_point()
    classes, counted, bad = read_labels(logits, target, softmax=terms.softmax, ignore_index=terms.ignore_index)
    # masked before anything else: 0 times the gradient of a NaN logit would be NaN
    x = widened(torch.where(counted.unsqueeze(1) if terms.softmax else counted, logits, 0))
    table = torch.ones(logits.shape[1], device=x.device) if weights is None else weights
    table = table.to(x.dtype)
    if not terms.softmax:
        hot = (target if soft else classes).to(x.dtype) * (1 - terms.smoothing) + terms.smoothing / 2
        up, down = _modulated(-logsigmoid(x), terms.gamma), _modulated(-logsigmoid(-x), terms.gamma)
        losses = terms.positive * hot * up + terms.negative * (1 - hot) * down
    elif soft or terms.smoothing:
        kinds = torch.arange(x.shape[1], device=x.device).view(_beside(x))
        hot = (target if soft else classes.unsqueeze(1) == kinds).to(x.dtype)
        mixed = (hot * (1 - terms.smoothing) + terms.smoothing / x.shape[1]) * table.view(_beside(x))
        losses = (mixed * _modulated(-x.log_softmax(1), terms.gamma)).sum(1)
    else:
        losses = table[classes] * _modulated(cross_entropy(x, classes, reduction="none"), terms.gamma)
    losses = torch.where(counted, losses, 0)
    weight = torch.where(counted, table[classes], 0).sum() if terms.softmax and not soft else counted.sum().to(x.dtype)
    return losses if terms.elementwise else losses.sum(), weight, bad.sum()


def _modulated(nll: torch.Tensor, gamma: float) -> torch.Tensor:
    """Multiply -log p by (1 - p)^gamma."""
    nll = nll.clamp(max=torch.finfo(nll.dtype).max / 64)  # 0 * inf would be NaN; 64 leaves room for gamma
    return nll if gamma == 0 else torch.expm1(-nll).neg().clamp(min=LEAST_Q) ** gamma * nll


def _beside(x: torch.Tensor) -> list[int]:
    return [1, -1, *[1] * (x.ndim - 2)]
