"""A job and its learner -> validations of it, one after the other, with progress and pictures."""

import time
from collections.abc import Callable
from pathlib import Path

from segmeter.errors import OverflowedError, RunError
from segmeter.inference.async_results import Prediction
from segmeter.training.data.cache import Cases
from segmeter.training.job import TrainJob
from segmeter.training.learner import Learner
from segmeter.training.pictures import Pictures
from segmeter.training.validation import Validation, validate


class Validator:
    """Scores the published weights of a learner on the validation cases of its job.

    Parameters
    ----------
    step
        The one that the run goes on from.
    show
        Told after each case how far the validation is, in words.
    stopped
        Asked after each case; once it says yes, the validation is given up.
    """

    def __init__(
        self, job: TrainJob, learner: Learner, *, step: int, show: Callable[[str], None], stopped: Callable[[], bool]
    ) -> None:
        self._job = job
        self._learner = learner
        self._show = show
        self._stopped = stopped
        names = job.val_cases.case_ids if job.val_cases is not None else ()
        self._pictures = Pictures(job.folder, names, count=job.training.pictures, draw=job.draw, step=step)

    def __call__(self, cases: Cases, step: int, lr: float) -> tuple[Validation, dict[str, Path]] | None:
        """Validate on the cases of the job after a step.

        Returns
        -------
        The scores, and the picture of each case that was drawn; None where it was given up.

        Raises
        ------
        RunError
            The model's output is not finite; the line names the step, the learning rate and the case.
        """
        start = time.monotonic()

        def on_case(done: int, prediction: Prediction) -> None:
            self._pictures.offer(prediction, step)
            left = (len(cases) - done) * (time.monotonic() - start) / done
            self._show(f", validating {done} of {len(cases)}, {left:.0f} s left")

        try:
            found = validate(self._learner.predictor, cases, self._learner.loss, stopped=self._stopped, on_case=on_case)
        except OverflowedError as error:
            raise RunError(
                f"training: the model's output is NaN or infinite at step {step} (lr {lr:.3g}; validation "
                f"case {error.case_id!r}). Earlier checkpoints stay; lower optimizer.lr "
                f"({self._job.optimizer.lr:g}), set training.clip_norm, or try inference.precision=float32."
            ) from error
        return None if found is None else (found, self._pictures.take())
