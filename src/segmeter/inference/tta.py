"""Test-time flips: an image and its mirror images -> logits of the mean probabilities."""

from collections.abc import Callable

import torch
from torch import Tensor

from segmeter.classes import Task

_FLIPS: tuple[tuple[int, ...], ...] = ((), (-1,), (-2,), (-2, -1))


def flipped_logits(image: Tensor, forward: Callable[[Tensor], Tensor], *, task: Task) -> Tensor:
    """Average the probabilities of an image and its three mirror images, and give them as logits.

    Parameters
    ----------
    image : (B, C, H, W)
        On the device.
    forward
        From (B, C, H, W) to (B, num_channels, H, W) float32.
    task
        Multiclass averages softmax, binary and multilabel average sigmoid.

    Returns
    -------
    (B, num_channels, H, W), float32: softmax or sigmoid of it is the mean probability. NaN where any of the four is
    NaN or infinite, so that averaging hides nothing.
    """
    totals: list[Tensor] = []
    for axes in _FLIPS:
        logits = forward(image.flip(axes) if axes else image)
        parts = _log_parts(logits.flip(axes) if axes else logits, task)
        totals = [total.logaddexp(part) for total, part in zip(totals, parts, strict=True)] if totals else parts
    return totals[0] if task == "multiclass" else totals[0] - totals[1]


def _log_parts(logits: Tensor, task: Task) -> list[Tensor]:
    """Logarithms of the probabilities; for sigmoids also those of their complements."""
    logits = logits + (logits - logits)  # infinity becomes NaN
    if task == "multiclass":
        return [torch.log_softmax(logits, 1)]
    return [torch.nn.functional.logsigmoid(logits), torch.nn.functional.logsigmoid(-logits)]
