"""Seeded inputs, and a loss's value and gradient in one call."""

from collections.abc import Callable
from typing import NamedTuple

import torch

TASKS = ["binary", "multiclass", "multilabel"]
Loss = Callable[[torch.Tensor], torch.Tensor]


class Case(NamedTuple):
    logits: torch.Tensor
    target: torch.Tensor


def make_case(task: str, *, num_classes: int = 5, size: tuple[int, int] = (7, 9), ignored: bool = True) -> Case:
    """Logits of a confident model, with some rows ignored (255)."""
    rng = torch.Generator().manual_seed(7)
    channels = 1 if task == "binary" else num_classes
    logits = torch.randn(3, channels, *size, generator=rng, dtype=torch.float64) * 4
    shape = (3, *size) if task != "multilabel" else (3, channels, *size)
    target = torch.randint(0, num_classes if task == "multiclass" else 2, shape, generator=rng).to(torch.uint8)
    if ignored:
        target[0, ..., 0, :] = 255
        target[2, ..., 3] = 255
    return Case(logits, target)


def run(loss: Loss, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Value and gradient; of a loss per element, the gradient of their sum."""
    leaf = logits.detach().clone(memory_format=torch.preserve_format).requires_grad_()
    value = loss(leaf)
    value.sum().backward()
    assert leaf.grad is not None
    return value.detach(), leaf.grad
