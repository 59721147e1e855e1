"""logits, target -> Dice, Tversky and focal Tversky losses: overlaps of whole regions, from soft counts.

Letters: B batch, K channels, N... the spatial axes.
"""

from typing import Any, NamedTuple

import torch
from torch import nn

from segmeter.losses.backends.terms import Terms, read_labels, widened
from segmeter.losses.config import DiceConfig, FocalTverskyConfig, TverskyConfig
from segmeter.losses.refusals import check_tensors, refuse_bad_labels
from segmeter.vocabulary import ClassSpec, Task


class Regions(NamedTuple):
    """Per channel probabilities and targets, (K, elements), both 0 where ignored; and the number of bad labels."""

    probs: torch.Tensor
    hot: torch.Tensor
    bad: torch.Tensor


class TverskyLoss(nn.Module):
    """``(1 - T)^gamma`` averaged over the classes, with ``T = (TP + s) / (TP + alpha FP + beta FN + s)``.

    Soft counts TP = sum(p t), FP = sum(p (1 - t)), FN = sum((1 - p) t) over all valid pixels of the batch; p from a
    softmax for multiclass, background included, else from a sigmoid. A class that the batch's target does not have is
    left out of the mean, as its T says nothing; without any class the loss is 0. alpha = beta = 0.5 is Dice.

    Parameters
    ----------
    task
        "binary", "multiclass" or "multilabel".
    alpha, beta
        Price of a false positive and of a false negative.
    gamma
        Exponent of each class's loss; 1 is the plain Tversky loss.
    smooth
        s above, in pixels, > 0.
    ignore_index
        The label of pixels that count nowhere.

    References
    ----------
    Salehi et al. 2017, arXiv:1706.05721, equation 3; Abraham and Khan 2019, arXiv:1810.07842, equation 4.
    """

    def __init__(
        self,
        task: Task,
        *,
        alpha: float = 0.5,
        beta: float = 0.5,
        gamma: float = 1.0,
        smooth: float = 1.0,
        ignore_index: int | None = None,
    ) -> None:
        super().__init__()
        self.task: Task = task
        self.alpha, self.beta, self.gamma = alpha, beta, gamma
        self.smooth, self.ignore_index = smooth, ignore_index

    def forward(self, logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        regions = split_regions(logits, target, task=self.task, ignore_index=self.ignore_index)
        hits = (regions.probs * regions.hot).sum(1)
        predicted, present = regions.probs.sum(1), regions.hot.sum(1)
        whole = hits + self.alpha * (predicted - hits) + self.beta * (present - hits)
        losses = 1 - (hits + self.smooth) / (whole + self.smooth)
        if self.gamma != 1:
            # The slope of x^0.75 is infinite at 0, which a perfect class reaches.
            losses = losses.clamp(min=torch.finfo(losses.dtype).eps) ** self.gamma
        used = present > 0
        loss = torch.where(used, losses, 0).sum() / used.sum().clamp(min=1)
        return loss + torch.where(regions.bad > 0, torch.nan, 0.0).to(loss.dtype)


def split_regions(logits: torch.Tensor, target: torch.Tensor, *, task: Task, ignore_index: int | None) -> Regions:
    """Give probabilities and one-hot target with the channel first and the rest flat."""
    check_tensors(logits, target, task, None, ignore_index)
    softmax = task == "multiclass"
    aligned = target.unsqueeze(1) if task == "binary" else target
    terms = Terms(softmax=softmax, gamma=0.0, ignore_index=ignore_index)
    labels = read_labels(logits, aligned, terms)
    bad = labels.bad.sum()
    refuse_bad_labels(bad, logits, aligned, terms=terms, where="loss")
    if softmax:
        counted, classes = labels.counted.unsqueeze(1), labels.classes.unsqueeze(1)
        kinds = torch.arange(logits.shape[1], device=logits.device).view(1, -1, *[1] * (logits.ndim - 2))
        hot = (classes == kinds) & counted
    else:
        counted, hot = labels.counted, labels.classes == 1
    # Masked before the softmax too: 0 times the gradient of a NaN logit would be NaN.
    x = widened(torch.where(counted, logits, 0))
    probs = (x.softmax(1) if softmax else x.sigmoid()) * counted
    return Regions(_channels_first(probs), _channels_first(hot.to(x.dtype)), bad)


def build_dice(config: DiceConfig, *, spec: ClassSpec, class_counts: Any = None) -> nn.Module:
    """Build soft Dice."""
    return TverskyLoss(spec.task, smooth=config.smooth, ignore_index=spec.ignore_index)


def build_tversky(config: TverskyConfig, *, spec: ClassSpec, class_counts: Any = None) -> nn.Module:
    """Build the Tversky loss."""
    return TverskyLoss(
        spec.task, alpha=config.alpha, beta=config.beta, smooth=config.smooth, ignore_index=spec.ignore_index
    )


def build_focal_tversky(config: FocalTverskyConfig, *, spec: ClassSpec, class_counts: Any = None) -> nn.Module:
    """Build the focal Tversky loss."""
    return TverskyLoss(
        spec.task,
        alpha=config.alpha,
        beta=config.beta,
        gamma=config.gamma,
        smooth=config.smooth,
        ignore_index=spec.ignore_index,
    )


def _channels_first(values: torch.Tensor) -> torch.Tensor:
    return values.transpose(0, 1).flatten(1)
