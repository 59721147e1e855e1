"""Losses and gradient norms on the device -> floats, read together; the first that is not finite ends the run."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from segmeter.bridge.scalars import read_scalars
from segmeter.errors import RunError

SHOWN_CASES = 8


@dataclass(frozen=True, kw_only=True)
class Taken:
    """A step whose figures are still on the device."""

    step: int
    lr: float
    indices: Sequence[NDArray[np.int64]]
    loss: Tensor
    grad_norm: Tensor


@dataclass
class Watch:
    """Collects steps and reads their figures in one transfer.

    Parameters
    ----------
    case_id
        Number of a sample -> the name of its case, for the message.
    scaled
        Whether the loss is scaled (float16): an overflowing gradient is then part of the search for the scale.
    """

    case_id: Callable[[int], str]
    scaled: bool = False
    losses: list[float] = field(default_factory=list)
    norms: list[float] = field(default_factory=list)
    _taken: list[Taken] = field(default_factory=list)

    def note(self, taken: Taken) -> None:
        self._taken.append(taken)

    def read(self) -> None:
        """Move the figures of all noted steps to `losses` and `norms`.

        Raises
        ------
        RunError
            One is not finite: with the step, its learning rate and its cases.
        """
        values = read_scalars([value for taken in self._taken for value in (taken.loss, taken.grad_norm)])
        taken_steps, self._taken = self._taken, []
        for taken, loss, norm in zip(taken_steps, values[::2], values[1::2], strict=True):
            if not math.isfinite(loss):
                raise RunError(self._message("loss", loss, taken))
            if not math.isfinite(norm) and not self.scaled:
                raise RunError(self._message("gradient", norm, taken))
            self.losses.append(loss)
            self.norms.append(norm)

    def take(self) -> tuple[list[float], list[float]]:
        """Hand out what was read, for a line of the log, and forget it."""
        taken = self.losses, self.norms
        self.losses, self.norms = [], []
        return taken

    def _message(self, what: str, value: float, taken: Taken) -> str:
        names = list(dict.fromkeys(self.case_id(int(index)) for part in taken.indices for index in part))
        shown = ", ".join(repr(name) for name in names[:SHOWN_CASES])
        more = f" and {len(names) - SHOWN_CASES} more" if len(names) > SHOWN_CASES else ""
        return (
            f"training: expected a finite {what}, got {value} at step {taken.step} (lr {taken.lr:.3g}, cases {shown}"
            f"{more}). Earlier checkpoints stay; lower optimizer.lr, set training.clip_norm or look at these cases."
        )
