"""Keeps time for a run: how far it is, when it ends, how fast it goes, and where the time is spent."""

import logging
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, schedule

from segmeter.files import fresh_folder, remove, write_bytes
from segmeter.parallel import peak_bytes
from segmeter.training.config import TrainingConfig

PROFILE, TABLE, TRACE = "profile", "table.txt", "trace.json"
SKIPPED = 3  # the first steps aren't profiled, as they allocate, compile and fill caches
_LOG = logging.getLogger(__name__)


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
        self.config = config
        self.batches_per_epoch = batches_per_epoch
        epochs = config.epoch_limit
        self._last: dict[str, int] = {}  # the last step by each limit, as the user would write it
        if config.steps is not None:
            self._last[f"steps={config.steps}"] = config.steps
        if epochs is not None:
            self._last[f"epochs={epochs}"] = math.ceil(epochs * batches_per_epoch / config.accumulate)
        self.last_step: float = min(self._last.values(), default=math.inf)  # infinity if only a time budget ends it

    def reached(self, step: int, seconds: float) -> str:
        """Name the limit that ends the run, such as "epochs=60", or return an empty string before the end.

        `step` and `seconds` are as for `progress`. A time budget always allows at least one step.
        """
        for name, last in self._last.items():
            if step >= last:
                return name
        is_over = step > 0 and self.progress(step, seconds) >= 1.0
        return f"time_budget={self.config.time_budget}" if is_over else ""

    def progress(self, step: int, seconds: float) -> float:
        """Return the part of the run that is over, 0 to 1, by the limit that will be reached first.

        Parameters
        ----------
        step
            Steps done.
        seconds
            Seconds spent on the run, plus the time that the last validation will need.
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
    """Images trained on, and the seconds this took, including the seconds spent waiting for batches."""

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
        self.whole = Counts()  # since the process began
        self._recent = Counts()  # since the last reading
        self._stages: dict[str, float] = {}
        self._since: float | None = None

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time a block that is not a training step; the stopwatch pauses meanwhile."""
        self.hold()
        start = time.perf_counter()
        try:
            yield
        finally:
            self._stages[name] = self._stages.get(name, 0.0) + time.perf_counter() - start

    def run(self) -> None:
        """Start the stopwatch, unless it runs already."""
        self._since = self._since or time.perf_counter()

    def hold(self) -> None:
        """Pause until `run`."""
        if self._since is not None:
            self.add(spent=time.perf_counter() - self._since)
            self._since = None

    def add(self, *, images: int = 0, spent: float = 0.0, waited: float = 0.0) -> None:
        """Count images, or seconds of steps, or the part of these seconds that was spent waiting for batches."""
        for counts in (self.whole, self._recent):
            counts.images += images
            counts.spent += spent
            counts.waited += waited

    def read(self) -> dict[str, Any]:
        """Return the rates since the last reading, and the seconds of each stage."""
        self.hold()
        counts, self._recent = self._recent, Counts()
        stages = {"data": counts.waited, "step": counts.spent - counts.waited, **self._stages}
        self._stages = {}
        return {**counts.rates(), "stages": {name: round(seconds, 3) for name, seconds in stages.items()}}


def peak_memory_mb(device: torch.device) -> float:
    """Return the most memory used so far: by torch on a GPU, otherwise by the whole process."""
    used = torch.cuda.max_memory_allocated(device) if device.type == "cuda" else peak_bytes()
    return round(used / 1e6, 1)


@contextmanager
def profiled(folder: Path, steps: int) -> Iterator[Callable[[], None]]:
    """Record steps with torch's profiler while the block runs; yields a function to call after each step.

    profile/table.txt lists the slowest operations. profile/trace.json opens in chrome://tracing and Perfetto. Both
    are written once the last step is recorded, or when the block ends before. If that is within the first `SKIPPED`
    steps, no step is recorded, and a warning says so.

    Parameters
    ----------
    folder
        The run's folder.
    steps
        Number of steps to record after the first `SKIPPED` ones, >= 1.
    """
    on_gpu = torch.cuda.is_available()
    kinds = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
    plan = schedule(wait=SKIPPED - 1, warmup=1, active=steps, repeat=1)

    def write(recorded: profile) -> None:
        order = "self_device_time_total" if on_gpu else "self_cpu_time_total"
        table = recorded.key_averages().table(sort_by=order, row_limit=40, max_name_column_width=60)
        remove(folder / PROFILE)  # left by a run that was stopped and resumed
        with fresh_folder(folder / PROFILE) as fresh:
            recorded.export_chrome_trace(str(fresh / TRACE))
            write_bytes(fresh / TABLE, f"{table}\n".encode())

    # Without acc_events, torch 2.11 warns of lost events at the first step. With a single cycle it changes nothing else
    with profile(activities=kinds, schedule=plan, on_trace_ready=write, acc_events=True) as recorder:
        yield recorder.step
    if recorder.step_num <= SKIPPED:
        text = "training: the profile has no step, as it leaves out the first %d and there were no more"
        _LOG.warning(text, SKIPPED)
