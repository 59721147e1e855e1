"""What every backend is given and what it gives back."""

from dataclasses import dataclass
from typing import NamedTuple

import torch

from segmeter.losses.targets import Labels


@dataclass(frozen=True, kw_only=True)
class FocalParams:
    """The options of one call, checked already.

    Parameters
    ----------
    softmax
        True for multiclass; False for one sigmoid per channel.
    gamma
        Focusing, >= 0.
    negative, positive
        Weights of target 0 and target 1 (sigmoid).
    smoothing
        Share of the target spread over the classes, 0 to 1.
    ignore_index
        Label of the elements that are excluded from the loss, or None; the target's dtype can hold it.
    elementwise
        Keep one loss per element instead of their sum.
    """

    softmax: bool
    gamma: float
    negative: float = 1.0
    positive: float = 1.0
    smoothing: float = 0.0
    ignore_index: int | None = None
    elementwise: bool = False

    def numbers(self) -> list[float]:
        """The part that is numbers, as an operator's argument."""
        return [self.gamma, self.negative, self.positive, self.smoothing]

    def flags(self) -> list[int]:
        """The part that is integers; ignore_index is the last, where there is one."""
        flags = [int(self.softmax), int(self.elementwise)]
        return flags if self.ignore_index is None else [*flags, self.ignore_index]

    @classmethod
    def unpack(cls, numbers: list[float], flags: list[int]) -> "FocalParams":
        """Put `numbers` and `flags` together again."""
        gamma, negative, positive, smoothing = numbers
        return cls(
            softmax=bool(flags[0]),
            gamma=gamma,
            negative=negative,
            positive=positive,
            smoothing=smoothing,
            ignore_index=flags[2] if len(flags) > 2 else None,
            elementwise=bool(flags[1]),
        )


class LossSums(NamedTuple):
    """What a backend gives back; a tuple, as torch.autograd.Function can return nothing else.

    ``total`` is the 0-d sum, or one loss per element of the target with ``elementwise``; ``weight`` is the summed class
    weight (softmax) or the number (sigmoid) of the valid elements, 0-d; ``bad`` counts, 0-d int64, the labels that are
    neither a class nor ignore_index, and soft values outside 0 to 1. All floats are float32, or float64 for float64
    logits.
    """

    total: torch.Tensor
    weight: torch.Tensor
    bad: torch.Tensor


def summed_weight(labels: Labels, weights: torch.Tensor | None, *, soft: bool, dtype: torch.dtype) -> torch.Tensor:
    """Sum the class weights of the counted elements, or count them where there are none (as soft targets do)."""
    if weights is None or soft:
        return labels.counted.sum().to(dtype)
    return torch.where(labels.counted, weights.to(dtype)[labels.classes], 0).sum()
