"""A weighted sum of losses."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from segmeter.classes import ClassSpec
from segmeter.losses.additive import AdditiveLoss, additive
from segmeter.losses.build import build_loss
from segmeter.losses.config import SumConfig


class SumLoss(AdditiveLoss):
    """``sum(weight * part(logits, target))``; each part keeps its own denominator.

    Parameters
    ----------
    parts
        name -> loss module.
    weights
        name -> its weight, > 0.
    """

    def __init__(self, parts: dict[str, AdditiveLoss], weights: dict[str, float]) -> None:
        super().__init__(
            "sum_loss",
            adds=all(part.adds for part in parts.values()),
            adds_over_pixels=all(part.adds_over_pixels for part in parts.values()),
        )
        self.parts = nn.ModuleDict(parts)
        self.weights = dict(weights)

    def forward(self, logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        total = torch.zeros((), dtype=torch.float32, device=logits.device)
        for name, part in self.parts.items():
            total = total + self.weights[name] * part(logits, target)
        return total

    def sums(self, logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Give the sums of all parts, times their weights."""
        return torch.cat([self.weights[name] * part.sums(logits, target) for name, part in self._additive_parts()])

    def denominators(self, target: torch.Tensor) -> torch.Tensor:
        """Give the denominators of all parts."""
        return torch.cat([part.denominators(target) for _, part in self._additive_parts()])

    def _additive_parts(self) -> Iterator[tuple[str, AdditiveLoss]]:
        yield from self.parts.items()  # type: ignore[misc]


def build_sum(config: SumConfig, *, spec: ClassSpec, class_counts: npt.NDArray[np.int64] | None) -> nn.Module:
    """Build every part whose weight is above 0."""
    weights: dict[str, Any] = {name: weight for name, weight in config.weights if weight > 0}
    parts = {
        name: additive(build_loss(getattr(config, name), spec, class_counts), spec.ignore_index) for name in weights
    }
    return SumLoss(parts, weights)
