"""Splits losses into sums and denominators, so that several batches give the loss and gradient of one large batch."""

import math
from typing import Any

import torch
from torch import nn

from segmeter.checks import expected
from segmeter.classes import CORE, SURE_ABOVE, ClassSpec
from segmeter.errors import InputError
from segmeter.losses.targets import valid_mask, widened, widest_float

SURE = math.log(SURE_ABOVE / (1 - SURE_ABOVE))
CORE_WEIGHT = 0.5  # at 1, the IoU of small objects fell by .012 instead of .008 (benchmarks/small_data.py, one seed)


class AdditiveLoss(nn.Module):
    """A loss of the form ``sum_i sums_i / denominators_i``, whose sums and denominators add over batches.

    Summing both over several forward passes (or devices) and dividing once gives the loss and the gradient of one
    large batch, however unevenly pixels, classes and weights are spread. The denominators depend on the target alone,
    so they are known before the first backward pass. A denominator of 0 leaves its sum as it is.

    On a GPU, refusing a label outside the classes would mean waiting for the device. The loss is NaN instead, and the
    buffer ``bad_labels`` counts such labels until `check_labels` reads it.

    Parameters
    ----------
    name
        First word of its messages.
    is_additive
        Whether the loss of several batches is that of one large batch. Otherwise it is defined on a whole batch: its
        sum is the loss itself and its denominator 1, so several batches give the mean of their losses.
    is_additive_over_pixels
        Whether the sums and denominators also add over the parts of one image. A region loss compares whole regions, so
        it adds over images at most.
    """

    bad_labels: torch.Tensor

    def __init__(self, name: str, *, is_additive: bool = True, is_additive_over_pixels: bool = False) -> None:
        super().__init__()
        self.name = name
        self.is_additive = is_additive
        self.is_additive_over_pixels = is_additive_over_pixels
        self.register_buffer("bad_labels", torch.zeros((), dtype=torch.int64), persistent=False)

    def sums(self, logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Compute the sums, (P,), with their gradient."""
        raise NotImplementedError

    def denominators(self, target: torch.Tensor) -> torch.Tensor:
        """Compute the denominators, (P,) of the widest float that the device has, without a gradient."""
        raise NotImplementedError

    def forward(self, logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Compute the loss of one batch, 0-d."""
        return divide(self.sums(logits, target), self.denominators(target))

    def mark(self, loss: torch.Tensor, bad: torch.Tensor) -> torch.Tensor:
        """Make the loss NaN if labels were bad, and add their number to the count that `check_labels` reads."""
        if self.bad_labels.device == bad.device:
            self.bad_labels.add_(bad)  # `+=` would assign it, and call hooks that a failed export left in torch 2.11
        return loss + torch.where(bad > 0, torch.nan, 0.0).to(loss.dtype)

    def check_labels(self) -> None:
        """Wait for the device, for example after reading a loss of NaN, and look at the labels since the last call.

        Raises
        ------
        InputError
            Targets of this loss, or of a part of it, had labels outside the classes; the message has their number.
        """
        for part in self.modules():
            if isinstance(part, AdditiveLoss) and part.bad_labels:
                got = f"{int(part.bad_labels)} other labels"
                remedy = "`segmeter check` names the files."
                part.bad_labels.zero_()
                raise InputError(expected(part.name, "target", "to hold classes or ignore_index only", got, remedy))


class PixelMeanLoss(AdditiveLoss):
    """Any other loss module, assumed to be a mean over the pixels that are not ignored."""

    def __init__(self, loss: nn.Module, ignore_index: int | None) -> None:
        super().__init__(type(loss).__name__)
        self.loss = loss
        self.ignore_index = ignore_index

    def forward(self, logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        value: torch.Tensor = self.loss(logits, target)
        return value

    def sums(self, logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        value = widened(self(logits, target))  # float16 can't hold the number of pixels
        return torch.mul(value, self.denominators(target).to(value.dtype))

    def denominators(self, target: torch.Tensor) -> torch.Tensor:
        return valid_mask(target, self.ignore_index).sum(dtype=widest_float(target.device)).view(1)


class CoreLoss(AdditiveLoss):
    """A binary loss for objects plus half of one for their cores, so that one logit learns both.

    The logit of "core" is that of "object" minus `SURE`, as in ordinal regression: the model has to be surer in cores
    than elsewhere in objects. So the pixels of probability above ``sigmoid(SURE)`` are the cores.

    Parameters
    ----------
    loss
        Takes logits (B, 1, H, W) and targets of 0, 1 and the ignored value. Targets of this loss also contain `CORE`.

    References
    ----------
    McCullagh 1980, Regression models for ordinal data (one predictor, with a threshold per level).
    """

    def __init__(self, loss: AdditiveLoss) -> None:
        super().__init__(
            "core_loss", is_additive=loss.is_additive, is_additive_over_pixels=loss.is_additive_over_pixels
        )
        self.loss = loss

    def sums(self, logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        objects, cores = _levels(target)
        return torch.cat([self.loss.sums(logits, objects), CORE_WEIGHT * self.loss.sums(logits - SURE, cores)])

    def denominators(self, target: torch.Tensor) -> torch.Tensor:
        return torch.cat([self.loss.denominators(level) for level in _levels(target)])


def _levels(target: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Make the targets of "object" and "core"; ignored pixels stay ignored."""
    core, rest = target == CORE, target == 1
    return target.masked_fill(core, 1), target.masked_fill(rest, 0).masked_fill(core, 1)


class SumLoss(AdditiveLoss):
    """``sum(weight * part(logits, target))``; each part keeps its own denominator.

    Parameters
    ----------
    parts
        Loss modules by name.
    weights
        The weight of each part, > 0.
    """

    def __init__(self, parts: dict[str, AdditiveLoss], weights: dict[str, float]) -> None:
        super().__init__(
            "sum_loss",
            is_additive=all(part.is_additive for part in parts.values()),
            is_additive_over_pixels=all(part.is_additive_over_pixels for part in parts.values()),
        )
        self.parts: Any = nn.ModuleDict(parts)
        self.weights = dict(weights)

    def forward(self, logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        total = torch.zeros((), dtype=torch.float32, device=logits.device)
        for name, part in self.parts.items():
            total = total + self.weights[name] * part(logits, target)
        return total

    def sums(self, logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Compute the sums of all parts, times their weights."""
        return torch.cat([self.weights[name] * part.sums(logits, target) for name, part in self.parts.items()])

    def denominators(self, target: torch.Tensor) -> torch.Tensor:
        """Compute the denominators of all parts."""
        return torch.cat([part.denominators(target) for part in self.parts.values()])


def additive(loss: nn.Module, spec: ClassSpec) -> AdditiveLoss:
    """Return an additive loss unchanged, and wrap any other as a mean over pixels."""
    return loss if isinstance(loss, AdditiveLoss) else PixelMeanLoss(loss, spec.ignore_index)


def divide(sums: torch.Tensor, denominators: torch.Tensor) -> torch.Tensor:
    """Divide sums (P,) by denominators (P,), with 1 in place of 0, and add up: 0-d in the sums' dtype."""
    return (sums / torch.where(denominators > 0, denominators, 1.0).to(sums.dtype)).sum()


def loss_terms(loss: AdditiveLoss, logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Put sums and denominators of a batch side by side, (P, 2) of the widest float, on the device."""
    wide = widest_float(logits.device)
    return torch.stack([loss.sums(logits, target).to(wide), loss.denominators(target).to(wide)], dim=1)
