"""Model, batches and limits -> checkpoints and a history. Counted in steps: one step is one update of the weights."""

import logging
import math
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from types import TracebackType
from typing import Any, Self

import torch

from segmeter.distributed.ranks import Order
from segmeter.errors import Interrupted
from segmeter.inference.precision import pick_dtype, without_tf32
from segmeter.losses.additive import check_labels
from segmeter.progress import gauge
from segmeter.records import read_json_lines
from segmeter.training.checkpointing import Checkpoints, step_name
from segmeter.training.data.batches import Batches
from segmeter.training.job import TrainJob, TrainResult, check_job, check_same, identify, open_batches
from segmeter.training.learner import Learner
from segmeter.training.limits import Limits
from segmeter.training.run.contents import write_contents
from segmeter.training.run.determinism import kernels, seed_everything
from segmeter.training.run.divergence import DivergenceGuard, Taken
from segmeter.training.run.first_batch import draw_first
from segmeter.training.run.history import History
from segmeter.training.run.loggers import Loggers
from segmeter.training.run.profiling import profiled
from segmeter.training.run.signals import StopSignals
from segmeter.training.run.throughput import Throughput, peak_memory_mb
from segmeter.training.validation import find_monitor, higher_is_better
from segmeter.training.validator import Validator

_LOG = logging.getLogger(__name__)


def train(job: TrainJob) -> TrainResult:
    """Train until the first limit is reached, or go on with a run that was stopped.

    On the CPU a run that is stopped and resumed, anywhere and any number of times, ends with the same bits as one
    that is not. With a time budget, which follows the clock, it does not.

    Parameters
    ----------
    job
        See `TrainJob`.

    Returns
    -------
    How it ended. The checkpoints are in ``job.folder / "checkpoints"``, the metrics in ``history.jsonl``.

    Raises
    ------
    ConfigError
        Parts that do not go together, or a resume with another configuration or other data.
    CheckpointError
        Nothing to resume from.
    RunError
        A loss or gradient that is not finite, or a checkpoint that can't be saved; earlier ones stay.
    Interrupted
        SIGTERM, SIGINT or SIGUSR1 came; the run was saved first.
    """
    device = check_job(job)
    checkpoints = _checkpoints(job)
    checkpoints.prepare()
    if not job.resume:
        write_contents(job.folder, job.train_cases, job.val_cases)
    limits = Limits(config=job.training, batches_per_epoch=len(job.source))
    with ExitStack() as stack:
        stop = stack.enter_context(StopSignals())
        stack.enter_context(kernels(job.training.deterministic))
        if pick_dtype(device, job.training.precision) is torch.float32:
            stack.enter_context(without_tf32())  # in the backward pass too
        seed_everything(job.training.seed)
        learner = Learner(job, device, limits, checkpoints.settle)
        run = stack.enter_context(Run(job, learner=learner, checkpoints=checkpoints, limits=limits, stop=stop))
        stack.push(job.world.end)
        run.learner.share()
        batches = open_batches(job, device, step=run.step, progress=run.progress)
        run.show = stack.enter_context(gauge("training"))
        run.profile = stack.enter_context(profiled(job.folder, job.training.profile_steps))
        return run.go(stack.enter_context(batches))


def check_resumed(job: TrainJob) -> None:
    """Refuse to go on with another training, before anything of it is changed; raises as `train` does."""
    check_same(job, _checkpoints(job).peek().state["identity"])


def _checkpoints(job: TrainJob) -> Checkpoints:
    highest = higher_is_better(find_monitor(job.training.monitor, job.segmenter.card.spec))
    return Checkpoints(job.folder / "checkpoints", keep=job.training.keep, highest=highest)


class Run:
    """A run in progress: how far it is, and what is due."""

    def __init__(
        self, job: TrainJob, *, learner: Learner, checkpoints: Checkpoints, limits: Limits, stop: StopSignals
    ) -> None:
        self.job = job
        self.config = job.training
        self.learner = learner
        self.checkpoints = checkpoints
        self.limits = limits
        self.monitor = find_monitor(job.training.monitor, job.segmenter.card.spec)
        self.show: Callable[[float, str], None] = lambda fraction, text: None
        self.profile: Callable[[], None] = lambda: None
        self.stop = stop
        self.watch = DivergenceGuard(
            case_id=lambda index: job.train_cases.case_ids[index % len(job.train_cases)],
            scaled=learner.scaler is not None,
            max_skipped=job.training.max_skipped,
            check_labels=partial(check_labels, learner.loss),
        )
        self.throughput = Throughput()
        self.step = 0
        self.lr = 0.0
        self.stale = 0  # validations since the best one
        self.due = False  # a validation that a signal cut short
        self.reserve = 0.0  # seconds that the last validation took, kept free at the end of a time budget
        self.shown = {"train": "", "val": ""}  # the newest, as the progress line shows them
        self._before = 0.0  # seconds spent by earlier processes
        self._start = self._saved_at = time.monotonic()
        position = self._resume() if job.resume else 0
        self.history = History(job.folder / "history.jsonl", position=position)
        self.logger = Loggers(job.logger, folder=job.folder, step=self.step, settings=job.settings)
        self.validator = Validator(job, learner, step=self.step, show=self._show, stop=stop)

    def go(self, batches: Batches) -> TrainResult:
        """Step until the end; what is due after a step is done before the next one."""
        if self.due:
            self._validate()
        reason = self._reason()
        while not reason:
            self._step(batches)
            reason = self._reason()
            if reason or self.limits.validation_due(self.step):
                self._validate()
                reason = reason or self._reason()
            elif self._save_due():
                self._save()
            if self.stop and not reason:
                self._leave()
            self.checkpoints.check()
            self._show()
        self.checkpoints.wait()
        return self._result(reason)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.checkpoints.close()
        self.history.close()
        failed = isinstance(error, Exception) and not isinstance(error, Interrupted)
        self.logger.close("failed" if failed else "interrupted" if error else "finished")

    @property
    def seconds(self) -> float:
        """Spent on the run, by earlier processes too."""
        return self._before + time.monotonic() - self._start

    def progress(self, step: int) -> float:
        """How far the run is at a step; only a time budget makes this depend on the clock."""
        return self.limits.progress(step, self.seconds + self.reserve)

    def _show(self, doing: str = "") -> None:
        """Move the bar, or write a line now and then."""
        place = f"step {self.step}, epoch {self.limits.epochs(self.step):.1f}"
        self.show(self.progress(self.step), place + "".join(self.shown.values()) + doing)

    def _reason(self) -> str:
        """Why the run is over, or nothing."""
        limit = self.limits.reached(self.step, self.seconds + self.reserve)
        patience, target, best = self.config.patience, self.config.stop_at, self.checkpoints.best
        if target is not None and best and (best[0] >= target if self.checkpoints.highest else best[0] <= target):
            return f"stop_at={target:g}"
        return limit or (f"patience={patience}" if patience is not None and self.stale >= patience else "")

    def _step(self, source: Batches) -> None:
        self.throughput.run()
        waited = source.waited
        batches = [source.take() for _ in range(self.config.accumulate)]
        if self.step == 0 and self.job.draw_batch is not None and self.config.pictures:
            draw, case_ids = self.job.draw_batch, self.job.train_cases.case_ids
            draw_first(batches[0], self.learner.augmented, draw=draw, case_ids=case_ids, folder=self.job.folder)
        progress = self.progress(self.step)
        self.stop.hear(self.job.world.tell(Order(self.step, progress, validates=False), self.stop.number))
        loss, grad_norm, self.lr = self.learner.update(batches, step=self.step, progress=progress)
        self.step += 1
        indices = [batch.indices for batch in batches]
        self.watch.note(Taken(step=self.step, lr=self.lr, indices=indices, loss=loss, grad_norm=grad_norm))
        self.throughput.add(sum(len(each) for each in indices) * self.job.world.size, source.waited - waited)
        self.profile()
        if self.step % self.config.log_every == 0:
            self._log()

    def _log(self) -> None:
        """Write the losses since the last line, if there are any; reading them waits for the device."""
        self.watch.read()
        seen = self.watch.take()
        if not seen.losses:
            return
        rates = self.throughput.read()
        loss = math.fsum(seen.losses) / len(seen.losses)
        self._write(
            {
                "loss": loss,
                "lr": self.lr,
                "grad_norm": math.fsum(seen.norms) / len(seen.norms) if seen.norms else None,
                **({"skipped_updates": seen.skipped} if self.watch.scaled else {}),
                "images_per_second": rates.images_per_second,
                "data_wait": rates.data_wait,
                "stages": dict(rates.stages),
                "peak_memory_mb": peak_memory_mb(self.learner.device),
            }
        )
        self.shown["train"] = f", loss {loss:.4f}, {rates.images_per_second:.1f} images/s"

    def _write(self, metrics: dict[str, Any]) -> None:
        place = {"step": self.step, "epoch": round(self.limits.epochs(self.step), 4)}
        row = {**place, **metrics, "seconds": round(self.seconds, 3)}
        self.history.write(row)
        self.logger.write(row)

    def _validate(self) -> None:
        """Score the model, rank it and save it; without validation data, save it."""
        self.throughput.hold()
        if not self.due:
            self._log()
        if self.job.val_cases is None or self.config.validate_every is None:
            self._save()
            return
        start = time.monotonic()
        order = Order(self.step, self.progress(self.step), validates=True)
        self.stop.hear(self.job.world.tell(order, self.stop.number))
        with self.throughput.stage("validation"):
            validated = self.validator(self.step, self.lr)
        self.due = validated is None
        if validated is None:
            self._leave()
            return
        found, pictures = validated
        score = found.values[self.monitor]
        self.shown["val"] = f", {self.monitor} {score:.4f}"
        best = self.checkpoints.rank(score, self.step)
        self.stale = 0 if best else self.stale + 1
        if math.isnan(score):
            _LOG.warning("training: %s is undefined at step %d, so it is not ranked", self.monitor, self.step)
        self._write({"val": found.values, "best": best, "unlearned": list(found.unlearned)})
        self.logger.show(self.step, pictures)
        self._save(score)
        self.reserve = time.monotonic() - start

    def _save_due(self) -> bool:
        minutes = self.config.save_minutes
        return minutes is not None and time.monotonic() - self._saved_at >= 60 * minutes

    def _save(self, score: float | None = None) -> None:
        self.watch.read()  # a loss that is not finite ends the run before anything is published
        progress = {
            "step": self.step,
            "epoch": round(self.limits.epochs(self.step), 4),
            "monitor": self.monitor,
            "metric": None if score is None or math.isnan(score) else score,
        }
        with self.throughput.stage("checkpoint"):
            self.checkpoints.save(
                self.step,
                segmenter_state=self.learner.published.state_dict(),
                card=self.job.segmenter.card,
                state={**self.learner.state(), **self._state()},
                progress=progress,
                unvalidated=self.due,
                steady=self.learner.steady(),
            )
        self._saved_at = time.monotonic()

    def _state(self) -> dict[str, Any]:
        return {
            "step": self.step,
            "seconds": self.seconds,
            "reserve": self.reserve,
            "stale": self.stale,
            "due": self.due,
            "watch": self.watch.state(),
            "history": self.history.position,
            "identity": identify(self.job),
        }

    def _resume(self) -> int:
        """Take over the newest checkpoint; return the position in the history."""
        resumed = self.checkpoints.newest()
        state = resumed.state
        check_same(self.job, state["identity"])
        self.learner.load(resumed.checkpoint, state)
        self.step, self.stale, self.due = state["step"], state["stale"], state["due"]
        self._before, self.reserve = state["seconds"], state["reserve"]
        self.watch.load(state["watch"])
        return int(state["history"])

    def _leave(self) -> None:
        """Save, then exit with the signal's code."""
        try:
            self._save()
            self.checkpoints.wait()
        finally:
            self.validator.settle()
        name = self.stop.received.name if self.stop.received else "nothing"
        message = (
            f"training: stopped by {name} after step {self.step}; {self.checkpoints.saved} was saved to resume from."
        )
        raise Interrupted(message, exit_code=self.stop.exit_code)

    def _row_of(self, checkpoint: str) -> dict[str, Any]:
        """The line of the history with the validation of a checkpoint."""
        rows = reversed(read_json_lines(self.history.path))
        return next((row for row in rows if "val" in row and step_name(row["step"]) == checkpoint), {})

    def _result(self, reason: str) -> TrainResult:
        rates = self.throughput.overall()
        best = self.checkpoints.best
        row = self._row_of(best[1].name) if best else {}
        return TrainResult(
            steps=self.step,
            epochs=self.limits.epochs(self.step),
            reason=reason,
            monitor=self.monitor,
            score=best[0] if best else None,
            best=best[1] if best else None,
            values=row.get("val", {}),
            unlearned=tuple(row.get("unlearned", ())),
            last=self.checkpoints.folder / "last",
            seconds=self.seconds,
            images_per_second=rates.images_per_second,
            data_wait=rates.data_wait,
        )
