"""Steps and seconds -> how far the run is, and what is due."""

import math
from dataclasses import dataclass

from segmeter.training.config import TrainingConfig


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The ends of a run.

    Parameters
    ----------
    config
        Which limits there are.
    batches_per_epoch
        Forward passes per epoch, >= 1.
    """

    config: TrainingConfig
    batches_per_epoch: int

    @property
    def last_step(self) -> float:
        """The step that ends the run, infinity where only a time budget does."""
        return min(self._last_steps().values(), default=math.inf)

    def _last_steps(self) -> dict[str, int]:
        """The step that each limit counted in steps or epochs ends at, by how it was given."""
        limits: dict[str, int] = {}
        if self.config.steps is not None:
            limits[f"steps={self.config.steps}"] = self.config.steps
        epochs = self.config.epoch_limit
        if epochs is not None:
            limits[f"epochs={epochs}"] = math.ceil(epochs * self.batches_per_epoch / self.config.accumulate)
        return limits

    def reached(self, step: int, seconds: float) -> str:
        """Name the limit that ends the run, such as "epochs=60", or give nothing while there is none.

        Parameters
        ----------
        step, seconds
            As for `progress`. A time budget lets at least one step be done.
        """
        reached = [name for name, last in self._last_steps().items() if step >= last]
        if not reached and step > 0 and self.progress(step, seconds) >= 1.0:
            return f"time_budget={self.config.time_budget}"
        return reached[0] if reached else ""

    def progress(self, step: int, seconds: float) -> float:
        """The part of the run that is over, 0 .. 1, by the limit that is nearest to its end.

        Parameters
        ----------
        step
            Steps done.
        seconds
            Spent on the run, with what the last validation will need.
        """
        budget = self.config.budget_seconds
        in_time = 0.0 if budget is None else seconds / budget
        return min(1.0, max(step / self.last_step, in_time))

    def epochs(self, step: int) -> float:
        """Passes over the data after `step` steps."""
        return step * self.config.accumulate / self.batches_per_epoch

    def validation_due(self, step: int) -> bool:
        """Whether step number `step` is the first one that completes another interval of validation."""
        every = self.config.validate_every
        if every is None or step == 0:
            return False
        if self.config.validate_unit == "steps":
            return step % every == 0
        batches, interval = step * self.config.accumulate, every * self.batches_per_epoch
        return batches // interval > (batches - self.config.accumulate) // interval
