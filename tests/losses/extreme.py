"""Extreme logits, and the loss and gradient of each in 60 digits."""

import itertools
from functools import cache
from typing import NamedTuple

import mpmath
import torch

GAMMAS = [0.0, 0.5, 1.0, 2.0, 5.0]
SIZES = [0.0, 1e-6, 0.5, 3.0, 8.0, 16.0, 17.5, 20.0, 30.0, 60.0, 88.0, 104.0, 1e3, 1e4]
TINY = 1e-37  # float32 loses digits below 1.2e-38
RTOL = 1e-5

SOFTMAX = [
    *([x, 0.0, -0.25] for x in (*SIZES, *(-size for size in SIZES))),
    *([1e4 + step, 1e4, 1e4] for step in (-30.0, -3.0, 0.0, 0.5, 3.0, 17.0, 30.0)),
    *([-1e4 + step, -1e4, 5 - 1e4] for step in (-17.0, 0.0, 4.5, 17.0)),
    *([1e4, 1e4 - step, -1e4] for step in (0.5, 9.0, 40.0)),
]
SIGMOID = sorted({sign * size for sign in (1, -1) for size in SIZES})


@cache
def exact_softmax(gamma: float, row: tuple[float, ...], label: int) -> tuple[float, list[float]]:
    """Loss and gradient of one pixel from the definition; the derivative is that of p by hand, not the closed form."""
    with mpmath.workdps(60):
        x = [mpmath.mpf(value) for value in row]
        exp = [mpmath.exp(value - x[label]) for value in x]  # of the label: 1
        total = mpmath.fsum(exp)
        p = [value / total for value in exp]
        q = mpmath.fsum(value for k, value in enumerate(exp) if k != label) / total
        log_p = -mpmath.log(total)
        loss = -(q**gamma) * log_p
        # d loss / d p_y, and d p_y / d x_j = p_y ([j = y] - p_j), where 1 - p_y is q
        slope = gamma * q ** (gamma - 1) * log_p - q**gamma / p[label]
        return float(loss), [float(slope * p[label] * (q if k == label else -value)) for k, value in enumerate(p)]


@cache
def exact_sigmoid(gamma: float, x: float, label: int) -> tuple[float, float]:
    signed = x if label else -x
    loss, gradient = exact_softmax(gamma, (signed, 0.0), 0)
    return loss, gradient[0] if label else -gradient[0]


class Extreme(NamedTuple):
    """One row of pixels, one logit vector and label each, with their exact losses and gradients in float64."""

    logits: torch.Tensor
    target: torch.Tensor
    loss: torch.Tensor
    gradient: torch.Tensor

    def check(self, loss: torch.Tensor, gradient: torch.Tensor) -> None:
        torch.testing.assert_close(loss.detach().double().reshape(-1), self.loss, rtol=RTOL, atol=TINY)
        torch.testing.assert_close(gradient.double(), self.gradient, rtol=RTOL, atol=TINY)


def extreme(task: str, gamma: float) -> Extreme:
    """float32 logits (1, K, 1, pixels) and target (1, 1, pixels)."""
    grid = list(itertools.product(SOFTMAX, range(3)) if task == "multiclass" else itertools.product(SIGMOID, (0, 1)))
    logits = torch.tensor([row for row, _ in grid]).view(len(grid), -1)
    # of the logits as float32 stores them
    rows = [(tuple(row), label) for row, (_, label) in zip(logits.double().tolist(), grid, strict=True)]
    if task == "multiclass":
        exact = [exact_softmax(gamma, row, label) for row, label in rows]
    else:
        exact = [exact_sigmoid(gamma, row[0], label) for row, label in rows]
    losses, gradients = (torch.tensor(values, dtype=torch.float64) for values in zip(*exact, strict=True))
    return Extreme(
        logits.T.reshape(1, -1, 1, len(grid)).contiguous(),
        torch.tensor([label for _, label in grid]).view(1, 1, -1),
        losses,
        gradients.view(len(grid), -1).T.reshape(1, -1, 1, len(grid)),
    )
