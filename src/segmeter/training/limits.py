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
        limits = [math.inf]
        if self.config.steps is not None:
            limits.append(self.config.steps)
        if self.config.epochs is not None:
            limits.append(math.ceil(self.config.epochs * self.batches_per_epoch / self.config.accumulate))
        return min(limits)

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
