"""A job and its learner -> validations of it, one after the other, with progress and pictures."""

import time
from collections.abc import Callable
from pathlib import Path

from segmeter.errors import OverflowedError, RunError
from segmeter.training.job import TrainJob
from segmeter.training.learner import Learner
from segmeter.training.pictures import Pictures, choose_cases
from segmeter.training.run.signals import StopSignals
from segmeter.training.validation import Share, Validation, join_shares, take_share


def score_share(
    job: TrainJob, learner: Learner, *, stop: StopSignals, on_case: Callable[[int], None] = lambda done: None
) -> Share:
    """Score the published weights of rank 0 on this process's part of the validation cases; all processes call it.

    Running statistics of batch norm are each process's own, so those of rank 0 are copied first.
    """
    cases = job.val_cases
    assert cases is not None
    job.world.copy_first(learner.published.state_dict().values())
    return take_share(
        learner.predictor,
        cases,
        learner.loss,
        stop=stop,
        on_case=on_case,
        show=choose_cases(cases.case_ids, job.training.pictures) if job.draw else (),
        world=job.world,
    )


class Validator:
    """Scores the published weights of a learner on the validation cases of its job; rank 0 has one.

    Parameters
    ----------
    step
        The one that the run goes on from.
    show
        Told after each case how far the validation is, in words.
    stop
        Asked after each case; once there is a signal, the validation is given up. It hears those of other processes.
    """

    def __init__(
        self, job: TrainJob, learner: Learner, *, step: int, show: Callable[[str], None], stop: StopSignals
    ) -> None:
        self._job = job
        self._learner = learner
        self._show = show
        self._stop = stop
        self._given_up: Share | None = None
        names = job.val_cases.case_ids if job.val_cases is not None else ()
        self._total = len(names)
        self._pictures = Pictures(job.folder, choose_cases(names, job.training.pictures), draw=job.draw, step=step)

    def __call__(self, step: int, lr: float) -> tuple[Validation, dict[str, Path]] | None:
        """Validate on the cases of the job after a step.

        Returns
        -------
        The scores, and the picture of each case that was drawn; None where it was given up.

        Raises
        ------
        RunError
            The model's output is not finite; the line names the step, the learning rate and the case.
        """
        start, world = time.monotonic(), self._job.world

        def on_case(done: int) -> None:
            done = min(done * world.size, self._total)
            left = (self._total - done) * (time.monotonic() - start) / done
            self._show(f", validating {done} of {self._total}, {left:.0f} s left")

        share = score_share(self._job, self._learner, stop=self._stop, on_case=on_case)
        if share.signal:
            self._given_up = share
            return None
        shares: list[Share] = world.gather(share)
        self._stop.hear(max(each.signal for each in shares))
        if any(each.signal for each in shares):
            return None
        try:
            found, shown = join_shares(shares, self._job.train_cases.spec, total=self._total)
        except OverflowedError as error:
            raise RunError(
                f"training: the model's output is NaN or infinite at step {step} (lr {lr:.3g}; validation "
                f"case {error.case_id!r}). Earlier checkpoints stay; lower optimizer.lr "
                f"({self._job.optimizer.lr:g}), set training.clip_norm, or try inference.precision=float32."
            ) from error
        for prediction in shown:
            self._pictures.offer(prediction, step)
        return found, self._pictures.take()

    def settle(self) -> None:
        """Let the other processes end their parts of a validation that was given up here, once the run is saved."""
        if self._given_up is not None:
            self._job.world.gather(self._given_up)
            self._given_up = None
