"""A weighted sum of losses."""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from segmeter.losses.build import build_loss
from segmeter.losses.config import SumConfig
from segmeter.vocabulary import ClassSpec


class SumLoss(nn.Module):
    """``sum(weight * part(logits, target))``.

    Parameters
    ----------
    parts
        name -> loss module.
    weights
        name -> its weight, > 0.
    """

    def __init__(self, parts: dict[str, nn.Module], weights: dict[str, float]) -> None:
        super().__init__()
        self.parts = nn.ModuleDict(parts)
        self.weights = dict(weights)

    def forward(self, logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        total = torch.zeros((), dtype=torch.float32, device=logits.device)
        for name, part in self.parts.items():
            total = total + self.weights[name] * part(logits, target)
        return total


def build_sum(config: SumConfig, *, spec: ClassSpec, class_counts: npt.NDArray[np.int64] | None) -> nn.Module:
    """Build every part whose weight is above 0."""
    weights: dict[str, Any] = {name: weight for name, weight in config.weights if weight > 0}
    parts = {name: build_loss(getattr(config, name), spec, class_counts) for name in weights}
    return SumLoss(parts, weights)
