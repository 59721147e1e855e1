"""Focal loss as it is defined, in log space, differentiated by autograd: slow, and what the others are compared with.

Letters: B batch, K channels, N... the spatial axes.
"""

import torch
from torch.nn.functional import logsigmoid

from segmeter.losses.focal.params import FocalParams, LossSums, summed_weight
from segmeter.losses.targets import read_labels, widened


def reference_sums(
    logits: torch.Tensor, target: torch.Tensor, weights: torch.Tensor | None, terms: FocalParams
) -> LossSums:
    """Sum of ``-t_k w_k (1 - p_k)^gamma log p_k`` over classes k and counted elements.

    Parameters
    ----------
    logits : (B, K, N...), floating
    target
        Labels (B, N...) for softmax and (B, K, N...) for sigmoid, or floating probabilities of the logits' shape.
    weights : (K,) or None
        Class weights (softmax).
    """
    soft = target.is_floating_point()
    labels = read_labels(logits, target, softmax=terms.softmax, ignore_index=terms.ignore_index)
    counted = labels.counted.unsqueeze(1) if terms.softmax else labels.counted
    x = widened(torch.where(counted, logits, 0))
    num_values = x.shape[1] if terms.softmax else 2
    losses = torch.zeros_like(labels.counted, dtype=x.dtype)
    for k in range(num_values):
        log_p, log_q = _log_probs(x, k, terms)
        hot = (_soft_class(target, k, terms) if soft else labels.classes == k).to(x.dtype)
        mixed = (1 - terms.smoothing) * hot + terms.smoothing / num_values
        losses = losses - mixed * _weight(weights, k, terms) * torch.exp(terms.gamma * log_q) * log_p
    losses = torch.where(labels.counted, losses, 0)
    total = losses if terms.elementwise else losses.sum()
    return LossSums(total, summed_weight(labels, weights, soft=soft, dtype=x.dtype), labels.bad.sum())


def _log_probs(x: torch.Tensor, k: int, terms: FocalParams) -> tuple[torch.Tensor, torch.Tensor]:
    """Give log p_k and log(1 - p_k), from how far the logit lies above all others: 1 - p_k itself would round to 0."""
    # Logits near the largest float32 would give -inf, and 0 * inf is NaN; 64 leaves room for gamma.
    least = torch.finfo(x.dtype).min / 64
    if terms.softmax:
        # Of sums near 1e4 float32 keeps 3 decimals, of differences to the largest all that matter: they come first.
        delta = (x - x.amax(1, keepdim=True).detach()).clamp(min=least)
        margin = delta[:, k] - torch.cat([delta[:, :k], delta[:, k + 1 :]], dim=1).logsumexp(1)
    else:
        margin = x if k == 1 else -x
    return logsigmoid(margin).clamp(min=least), logsigmoid(-margin).clamp(min=least)


def _soft_class(target: torch.Tensor, k: int, terms: FocalParams) -> torch.Tensor:
    if terms.softmax:
        return target[:, k]
    return target if k == 1 else 1 - target


def _weight(weights: torch.Tensor | None, k: int, terms: FocalParams) -> torch.Tensor | float:
    if not terms.softmax:
        return terms.positive if k == 1 else terms.negative
    return 1.0 if weights is None else weights[k]
