"""Ends a run whose loss or gradient is not finite. The values of many steps are read from the device together.

In float16 an overflowing gradient only skips its update, as the scale of the loss has to be found first. Too many
skipped updates in a row end the run.
"""

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from segmeter.bridge import read_scalars
from segmeter.checks import shorten
from segmeter.errors import RunError

SHOWN_CASES = 8
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Taken:
    """A step whose loss and gradient norm are still on the device."""

    step: int
    lr: float
    indices: Sequence[NDArray[np.int64]]
    loss: Tensor
    grad_norm: Tensor


@dataclass(frozen=True, kw_only=True)
class Seen:
    """The values since the last line of the log: losses, finite gradient norms, number of skipped updates."""

    losses: list[float]
    norms: list[float]
    skipped: int


@dataclass
class DivergenceGuard:
    """Collects steps and reads their values in one transfer.

    Parameters
    ----------
    case_id
        Number of a sample -> the name of its case, for the message.
    scaled
        Whether the loss is scaled (float16), so that an overflowing gradient skips its update.
    max_skipped
        Skipped updates in a row that end the run, >= 1.
    check_labels
        Called if a loss is not finite; raises if bad labels are the cause.
    """

    case_id: Callable[[int], str]
    scaled: bool = False
    max_skipped: int = 50
    check_labels: Callable[[], None] = lambda: None
    _losses: list[float] = field(default_factory=list)
    _norms: list[float] = field(default_factory=list)
    _skipped: int = 0
    _in_a_row: int = 0
    _taken: list[Taken] = field(default_factory=list)

    def note(self, taken: Taken) -> None:
        self._taken.append(taken)

    def read(self) -> None:
        """Read the losses and norms of all noted steps.

        Raises
        ------
        RunError
            One is not finite, or too many updates were skipped. The message has the step, its rate and its cases.
        """
        values = read_scalars([value for taken in self._taken for value in (taken.loss, taken.grad_norm)])
        taken_steps, self._taken = self._taken, []
        for taken, loss, norm in zip(taken_steps, values[::2], values[1::2], strict=True):
            if not math.isfinite(loss):
                self.check_labels()
                raise RunError(self._message(f"a finite loss, got {loss}", taken))
            self._losses.append(loss)
            if math.isfinite(norm):
                self._norms.append(norm)
                self._in_a_row = 0
            else:
                self._skip(norm, taken)

    @property
    def newest(self) -> float:
        """The newest loss that was read, NaN without any."""
        return self._losses[-1] if self._losses else math.nan

    def take(self) -> Seen:
        """Return the values for a line of the log and forget them; a warning counts the skipped updates."""
        seen = Seen(losses=self._losses, norms=self._norms, skipped=self._skipped)
        self._losses, self._norms, self._skipped = [], [], 0
        if seen.skipped:
            _LOG.warning(
                "training: %d of the last %d updates were skipped, as their float16 gradient was not finite",
                *(seen.skipped, len(seen.losses)),
            )
        return seen

    def state(self) -> dict[str, Any]:
        """The plain values that `load` needs."""
        return {
            "losses": self._losses,
            "norms": self._norms,
            "skipped": self._skipped,
            "in_a_row": self._in_a_row,
        }

    def load(self, state: dict[str, Any]) -> None:
        """Restore what `state` returned."""
        self._losses, self._norms = list(state["losses"]), list(state["norms"])
        self._skipped, self._in_a_row = state["skipped"], state["in_a_row"]

    def _skip(self, norm: float, taken: Taken) -> None:
        if not self.scaled:
            raise RunError(self._message(f"a finite gradient, got {norm}", taken))
        self._skipped += 1
        self._in_a_row += 1
        if self._in_a_row >= self.max_skipped:
            skipped = f"but {self._in_a_row} updates in a row were skipped (training.max_skipped), the last"
            raise RunError(
                self._message(f"a finite gradient, {skipped}", taken, "use training.precision=bfloat16 or float32, ")
            )

    def _message(self, what: str, taken: Taken, remedy: str = "") -> str:
        names = list(dict.fromkeys(self.case_id(int(index)) for part in taken.indices for index in part))
        shown = shorten([repr(name) for name in names], most=SHOWN_CASES)
        return (
            f"training: expected {what} at step {taken.step} (lr {taken.lr:.3g}, cases {shown}). "
            f"Earlier checkpoints stay; {remedy}lower optimizer.lr, set training.clip_norm or look at these cases."
        )
