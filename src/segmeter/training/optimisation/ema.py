"""Weights, step by step -> their exponential moving average."""

import torch
from torch import Tensor, nn


class Ema:
    """A second model whose weights follow the first one's slowly; it is what is validated and published.

    The decay starts at 0.1 and rises, min(decay, (1 + n) / (10 + n)) at update n, so that the random initial weights
    are forgotten early. Running statistics are averaged like weights.

    Parameters
    ----------
    average
        A copy of `model`; its weights are changed in place. Neither may be moved from now on.
    model
        Only read.
    decay
        Share of the average that stays per step, in (0, 1).
    """

    def __init__(self, average: nn.Module, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.updates = 0
        ours, theirs = average.state_dict(), model.state_dict()
        self._averaged = [(ours[name], theirs[name]) for name in ours if ours[name].is_floating_point()]
        self._copied = [(ours[name], theirs[name]) for name in ours if not ours[name].is_floating_point()]

    def update(self) -> None:
        """Move the average towards the model's present weights."""
        decay = min(self.decay, (1 + self.updates) / (10 + self.updates))
        self.updates += 1
        with torch.no_grad():
            torch._foreach_lerp_(*_columns(self._averaged), 1.0 - decay)
            if self._copied:
                torch._foreach_copy_(*_columns(self._copied))


def _columns(pairs: list[tuple[Tensor, Tensor]]) -> tuple[list[Tensor], list[Tensor]]:
    return [ours for ours, _ in pairs], [theirs for _, theirs in pairs]
