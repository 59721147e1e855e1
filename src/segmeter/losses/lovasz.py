"""logits, target -> Lovasz loss: the convex stand-in for 1 - IoU, over all pixels of the batch."""

from typing import Any

import torch
from torch import nn

from segmeter.losses.backends.terms import Terms, read_labels, widened
from segmeter.losses.config import LovaszConfig
from segmeter.losses.refusals import check_tensors, refuse_bad_labels
from segmeter.losses.region import split_regions
from segmeter.vocabulary import ClassSpec, Task


class LovaszLoss(nn.Module):
    """Lovasz-softmax for multiclass, Lovasz hinge per channel otherwise, averaged over the channels.

    Multiclass averages over the classes that the batch's target has, and is 0 without any. Ignored pixels have error 0
    (softmax) or a hinge that is never active, and no target, so they move neither value nor gradient; nothing is
    indexed with a mask, so the shape never depends on the data.

    Parameters
    ----------
    task
        "binary", "multiclass" or "multilabel".
    ignore_index
        The label of pixels that count nowhere.

    References
    ----------
    Berman et al. 2018, arXiv:1705.08790, equations 8, 9 and 11, and algorithm 1.
    """

    def __init__(self, task: Task, *, ignore_index: int | None = None) -> None:
        super().__init__()
        self.task: Task = task
        self.ignore_index = ignore_index

    def forward(self, logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        loss, bad = (self._softmax if self.task == "multiclass" else self._hinge)(logits, target)
        return loss + torch.where(bad > 0, torch.nan, 0.0).to(loss.dtype)

    def _softmax(self, logits: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        regions = split_regions(logits, target, task=self.task, ignore_index=self.ignore_index)
        losses = _extend((regions.hot - regions.probs).abs(), regions.hot)
        used = regions.hot.amax(1) > 0
        return torch.where(used, losses, 0).sum() / used.sum().clamp(min=1), regions.bad

    def _hinge(self, logits: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        check_tensors(logits, target, self.task, None, self.ignore_index)
        aligned = target.unsqueeze(1) if self.task == "binary" else target
        terms = Terms(softmax=False, gamma=0.0, ignore_index=self.ignore_index)
        labels = read_labels(logits, aligned, terms)
        bad = labels.bad.sum()
        refuse_bad_labels(bad, logits, aligned, terms=terms, where="loss")
        x = widened(torch.where(labels.counted, logits, 0))
        hot = (labels.classes == 1).to(x.dtype)
        margins = torch.where(labels.counted, 1 - x * (2 * hot - 1), -1)
        flat = [values.transpose(0, 1).flatten(1) for values in (margins, hot)]
        return _extend(flat[0], flat[1]).mean(), bad


def build_lovasz(config: LovaszConfig, *, spec: ClassSpec, class_counts: Any = None) -> nn.Module:
    """Build the Lovasz loss."""
    return LovaszLoss(spec.task, ignore_index=spec.ignore_index)


def _extend(errors: torch.Tensor, hot: torch.Tensor) -> torch.Tensor:
    """Give the Lovasz extension of the Jaccard loss for each row: errors in falling order, times its increments."""
    ordered, order = errors.sort(dim=1, descending=True, stable=True)
    hits = hot.gather(1, order)
    present = hits.sum(1, keepdim=True)
    missed = present - hits.cumsum(1)
    union = present + (1 - hits).cumsum(1)
    # Without any target the union starts at 1, so it is never 0; the first increment is the first Jaccard itself.
    jaccard = 1 - missed / union
    steps = torch.diff(jaccard, dim=1, prepend=torch.zeros_like(present))
    return (ordered.relu() * steps).sum(1)
