"""Keeps time for a run: how far it is, when it ends, how fast it goes, and where the time is spent."""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from segmeter.parallel import peak_bytes
from segmeter.training.config import TrainingConfig


class Limits:
    """The ends of a run.

    Parameters
    ----------
    config
        Which limits are set.
    batches_per_epoch
        Forward passes per epoch, >= 1.
    """

    def __init__(self, *, config: TrainingConfig, batches_per_epoch: int) -> None:
        self.config, self.batches_per_epoch, epochs = config, batches_per_epoch, config.epoch_limit
        self._last: dict[str, int] = {}  # the last step by each limit, as the user would write it
        if config.steps is not None:
            self._last[f"steps={config.steps}"] = config.steps
        if epochs is not None:
            self._last[f"epochs={epochs}"] = math.ceil(epochs * batches_per_epoch / config.accumulate)
        self.last_step: float = min(self._last.values(), default=math.inf)  # infinity if only a time budget ends it

    def reached(self, step: int, seconds: float) -> str:
        """Name the limit that ends the run, such as "epochs=60"; an empty string while there is none.

        `step` and `seconds` are as for `progress`. A time budget always allows at least one step.
        """
        name = next((name for name, last in self._last.items() if step >= last), "")
        in_time = name or step == 0 or self.progress(step, seconds) < 1.0
        return name if in_time else f"time_budget={self.config.time_budget}"

    def progress(self, step: int, seconds: float) -> float:
        """Return the part of the run that is over, 0 to 1, by the limit that ends it first.

        Parameters
        ----------
        step
            Steps done.
        seconds
            Spent on the run, plus the time that the last validation will need.
        """
        budget = self.config.budget_seconds
        in_time = 0.0 if budget is None else seconds / budget
        return min(1.0, max(step / self.last_step, in_time))

    def epochs(self, step: int) -> float:
        """Return the passes over the data after `step` steps."""
        return step * self.config.accumulate / self.batches_per_epoch

    def validation_due(self, step: int) -> bool:
        """Tell whether step number `step` is the first to complete another validation interval."""
        every = self.config.validate_every
        if every is None or step == 0:
            return False
        if self.config.validate_unit == "steps":
            return step % every == 0
        batches, interval = step * self.config.accumulate, every * self.batches_per_epoch
        return batches // interval > (batches - self.config.accumulate) // interval


@dataclass
class Counts:
    """Images trained on, and the seconds that it took, those spent waiting for batches included."""

    images: int = 0
    spent: float = 0.0
    waited: float = 0.0

    def rates(self) -> dict[str, float]:
        """Return images per second, and the share of the time that was spent waiting for batches."""
        spent = max(self.spent, 1e-9)
        return {
            "images_per_second": round(self.images / spent, 3),
            "data_wait": round(min(self.waited / spent, 1.0), 4),
        }


class Throughput:
    """A stopwatch for training steps. It pauses during validations and saves."""

    def __init__(self) -> None:
        self.whole, self._recent = Counts(), Counts()  # of the process, and since the last reading
        self._stages: dict[str, float] = {}
        self._since: float | None = None

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time a block that is no training step; the stopwatch pauses meanwhile."""
        self.hold()
        start = time.perf_counter()
        try:
            yield
        finally:
            self._stages[name] = self._stages.get(name, 0.0) + time.perf_counter() - start

    def run(self) -> None:
        """Run, unless it runs already."""
        self._since = self._since or time.perf_counter()

    def hold(self) -> None:
        """Pause until `run`."""
        if self._since is not None:
            self.add(spent=time.perf_counter() - self._since)
            self._since = None

    def add(self, *, images: int = 0, spent: float = 0.0, waited: float = 0.0) -> None:
        """Count images, or seconds of steps, of which batches took `waited` to come."""
        for counts in (self.whole, self._recent):
            counts.images += images
            counts.spent += spent
            counts.waited += waited

    def read(self) -> dict[str, Any]:
        """Return the rates since the last reading, and the seconds of each stage."""
        self.hold()
        seen, self._recent = self._recent, Counts()
        stages, self._stages = {"data": seen.waited, "step": seen.spent - seen.waited, **self._stages}, {}
        return {**seen.rates(), "stages": {name: round(seconds, 3) for name, seconds in stages.items()}}


def peak_memory_mb(device: torch.device) -> float:
    """Return the most memory that the process has used so far: torch's on a GPU, otherwise all of it."""
    used = torch.cuda.max_memory_allocated(device) if device.type == "cuda" else peak_bytes()
    return round(used / 1e6, 1)
