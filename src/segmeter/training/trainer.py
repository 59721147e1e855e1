"""Runs the training loop, from the first batch to the last checkpoint. One step is one update of the weights.

`Trainer` takes batches, updates the weights (see `step.update_from_batches`), logs, validates, saves, and stops at a
limit or a signal. `follow` does the same in the other processes of a run.
"""

import logging
import math
import time
from collections.abc import Callable
from contextlib import ExitStack
from types import TracebackType
from typing import Any, NoReturn

from segmeter.distributed.ranks import Order
from segmeter.errors import Interrupted, StopSignals
from segmeter.files import Lines, write_json
from segmeter.models.checkpoint import WEIGHTS
from segmeter.models.weights import load_tensors
from segmeter.progress import gauge
from segmeter.records import read_json_lines
from segmeter.training.checkpointing import LAST, RunCheckpoints, read_newest, step_name
from segmeter.training.clock import Limits, Throughput, peak_memory_mb, profiled
from segmeter.training.config import LOSS
from segmeter.training.data.batches import Batches
from segmeter.training.job import CONTENTS, TrainJob, TrainResult, check_job, check_same, contents, identify
from segmeter.training.learner import Learner
from segmeter.training.loggers import Loggers, check_installed, json_line
from segmeter.training.pictures import draw_first
from segmeter.training.step import DivergenceGuard, open_batches, run_step, training_environment
from segmeter.training.validation import Validator, score_part

_LOG = logging.getLogger(__name__)
CHECKPOINTS, HISTORY = "checkpoints", "history.jsonl"
FIRST_LOSS_S = 5.0  # after this time a slow run shows its loss, long before the first line of its history


def train(job: TrainJob) -> TrainResult:
    """Train until the first limit is reached, or continue a run that was stopped.

    On the CPU, a run that is stopped and resumed, anywhere and any number of times, ends bit for bit like one that is
    not. A time budget is the exception, as it follows the clock.

    The checkpoints are in ``job.folder / "checkpoints"``, the metrics in ``history.jsonl``.

    Raises
    ------
    ConfigError
        Parts that do not go together, or a resume with another configuration or other data.
    CheckpointError
        Nothing to resume from.
    RunError
        A loss or gradient that is not finite, or a checkpoint that can't be saved; earlier ones stay.
    Interrupted
        SIGTERM, SIGINT, SIGUSR1 or SIGHUP came; the run was saved first.
    """
    check_job(job)
    config = job.settings.training
    checkpoints = RunCheckpoints(job.folder / CHECKPOINTS, keep=config.keep, highest=job.monitor != LOSS)
    if not job.resume:
        write_json(job.folder / CONTENTS, contents(job.data))  # so that a resume can name the files that changed
    limits = Limits(config=config, batches_per_epoch=len(job.data.source))
    with ExitStack() as stack:
        stop = stack.enter_context(training_environment(job))
        learner = Learner(job, limits)
        run = Trainer(job, learner, checkpoints, limits, stop)
        stack.push(run.end)
        stack.push(job.world.end)
        learner.broadcast()
        batches = open_batches(job, step=run.step, progress=run.progress)
        run.gauge = stack.enter_context(gauge("training"))
        if config.profile_steps:
            run.profile = stack.enter_context(profiled(job.folder, config.profile_steps))
        return run.go(stack.enter_context(batches))


def follow(job: TrainJob) -> None:
    """Take every step that rank 0 orders, and a share of every validation, in any process but the first.

    Nothing is decided or written here. A signal to this process is passed on to rank 0, which saves and ends the run.

    Parameters
    ----------
    job
        As in rank 0, with this process's part of the batches; its folder is not used.
    """
    check_job(job)
    config = job.settings.training
    limits = Limits(config=config, batches_per_epoch=len(job.data.source))
    ordered_progress = 0.0  # the progress in the newest order follows a time budget too, by the clock of rank 0

    def progress(step: int) -> float:
        return max(ordered_progress, limits.progress(step, 0.0))

    with ExitStack() as stack:
        stop = stack.enter_context(training_environment(job))
        learner = Learner(job, limits)
        stack.push(job.world.end)
        learner.broadcast()
        batches: Batches | None = None
        while (order := job.world.next_order(stop.number)) is not None:
            ordered_progress = order.progress
            if order.validates:
                job.world.gather(score_part(job, learner, stop=stop))
                continue
            if batches is None:
                batches = stack.enter_context(open_batches(job, step=order.step, progress=progress))
            run_step(job, learner, [batches.next_batch() for _ in range(config.accumulate)], order)


def check_resumed(job: TrainJob) -> None:
    """Refuse to continue with another configuration, other data or a missing logger, before the run changes.

    `train` reads the checkpoint once more, as it may only then set damaged ones aside.
    """
    check_installed(job.settings.loggers)
    check_same(job, read_newest(job.folder / CHECKPOINTS)[1]["identity"])


class Trainer:
    """A run in progress in rank 0: it steps, logs, validates and saves until a limit or a signal ends it."""

    def __init__(
        self, job: TrainJob, learner: Learner, checkpoints: RunCheckpoints, limits: Limits, stop: StopSignals
    ) -> None:
        self.job = job
        self.config = job.settings.training
        self.learner = learner
        self.checkpoints = checkpoints
        self.limits = limits
        self.stop = stop
        self.monitor = job.monitor
        self.gauge: Callable[[float, str], None] = lambda fraction, text: None
        self.profile: Callable[[], None] = lambda: None
        self.guard = DivergenceGuard(
            case_id=job.data.case_id_of,
            scaled=learner.scaler is not None,
            max_skipped=self.config.max_skipped,
            check_labels=learner.loss.check_labels,
        )
        self.throughput = Throughput()
        self.step = 0
        self.lr = 0.0
        self.stale = 0  # validations since the best one
        self.due = False  # a signal cut a validation short, so it is repeated first
        self.validated = 0  # the step of the last validation
        self.reserve = 0.0  # seconds that the last validation took; as many stay free at the end of a time budget
        self.newest = {"train": "", "val": ""}  # the newest values, for the progress line
        self._before = 0.0  # seconds spent by earlier processes
        self._start = self._saved_at = time.monotonic()
        history_size = self._resume() if job.resume else 0
        self.loggers = Loggers(job.settings.loggers, folder=job.folder, step=self.step, settings=job.settings.masked)
        self.validator = Validator(job, learner, step=self.step, show=self._show, stop=stop)
        self.history = Lines(job.folder / HISTORY, keep=history_size)  # last, as nothing closes it if a logger fails

    def go(self, batches: Batches) -> TrainResult:
        """Step until the end. What is due after a step is done before the next one, or begun if it is a checkpoint."""
        if self.due or (self.validated != self.step and self._reason()):  # over by the clock, as a signal came first
            self._validate()
        reason = self._reason()
        while not reason:
            self._next_step(batches)
            reason = self._reason()
            if reason or self.limits.validation_due(self.step):
                self._validate()
                reason = reason or self._reason()
            elif self.config.save_minutes and time.monotonic() - self._saved_at >= 60 * self.config.save_minutes:
                self._save()
            if self.stop and not reason:
                self._leave()
            self.checkpoints.wait(only_if_done=True)
            self._show()
        self.checkpoints.wait()
        return self._result(reason)

    def _next_step(self, source: Batches) -> None:
        """Take batches, order the step, update the weights, and log if it is time. The run's first batch is drawn."""
        self.throughput.run()
        waited_before = source.waited
        batches = [source.next_batch() for _ in range(self.config.accumulate)]
        if self.step == 0 and self.job.draw_batch is not None and self.config.pictures:
            self.throughput.hold()  # a picture is no part of a step
            draw_first(batches[0], self.job, self.job.draw_batch)
            self.throughput.run()
        order = Order(self.step, self.progress(self.step), validates=False)
        self.stop.hear(self.job.world.tell(order, self.stop.number))  # a signal to any process stops all
        result = run_step(self.job, self.learner, batches, order)
        self.step, self.lr = result.step, result.lr
        self.guard.note(result)
        images = self.job.data.source.batch_size * len(batches)  # of all processes
        self.throughput.add(images=images, waited=source.waited - waited_before)
        self.profile()
        if self.step % self.config.log_every == 0:
            self._log()
        elif not self.newest["train"] and time.monotonic() - self._start > FIRST_LOSS_S:
            self.guard.read()
            self.newest["train"] = f", loss {self.guard.tally['losses'][-1]:.4f}"

    def _log(self) -> None:
        """Write the mean loss since the last line, if there were steps. Reading it waits for the device."""
        self.guard.read()
        row = self.guard.pop_log_row()
        if not row:
            return
        loss = row.pop("loss")
        row |= self.throughput.read()
        self._write({"loss": loss, "lr": self.lr, **row, "peak_memory_mb": peak_memory_mb(self.learner.device)})
        self.newest["train"] = f", loss {loss:.4f}, {row['images_per_second']:.1f} images/s"

    def _validate(self) -> None:
        """Score the model, rank it and save it; without validation data, only save it."""
        self.throughput.hold()
        if not self.due:
            self._log()
        if self.job.data.val_cases is None or self.config.validate_every is None:
            self._save()
            return
        start = time.monotonic()
        order = Order(self.step, self.progress(self.step), validates=True)
        self.stop.hear(self.job.world.tell(order, self.stop.number))  # a signal to any process stops all
        with self.throughput.stage("validation"):
            validated = self.validator(self.step, self.lr)
        self.due = validated is None
        if validated is None:
            self._leave()
        validation, pictures = validated
        score = validation.values[self.monitor]
        self.newest["val"] = f", {self.monitor} {score:.4f}"
        is_best = self.checkpoints.rank(score, self.step)
        self.stale = 0 if is_best else self.stale + 1
        if math.isnan(score):
            _LOG.warning("training: %s is undefined at step %d, so it is not ranked", self.monitor, self.step)
        self._write({"val": validation.values, "best": is_best, "unlearned": list(validation.unlearned)})
        self.loggers.show(self.step, pictures)
        self.reserve = time.monotonic() - start
        self.validated = self.step
        self.checkpoints.make_room(self.step)
        self._save(score)

    def _save(self, score: float | None = None) -> None:
        """Write a checkpoint in the background, once it is certain that every loss so far is finite."""
        self.guard.read()
        with self.throughput.stage("checkpoint"):
            self.history.sync()  # the checkpoint counts on its size
            self.checkpoints.save(
                self.step,
                segmenter_state=self.learner.published.state_dict(),
                card=self.job.segmenter.card,
                state={
                    **self.learner.state(),
                    "step": self.step,
                    "seconds": self.seconds,
                    "reserve": self.reserve,
                    "stale": self.stale,
                    "due": self.due,
                    "validated": self.validated,
                    "watch": self.guard.tally,
                    "history": self.history.size,
                    "identity": identify(self.job),
                },
                progress={
                    "step": self.step,
                    "epoch": round(self.limits.epochs(self.step), 4),
                    "monitor": self.monitor,
                    "metric": None if score is None or math.isnan(score) else score,
                },
                unvalidated=self.due,
            )
        self._saved_at = time.monotonic()

    def _resume(self) -> int:
        """Restore everything from the newest checkpoint, and return the size that the history had then, in bytes."""
        folder, state = self.checkpoints.newest()
        check_same(self.job, state["identity"])
        self.learner.load(load_tensors(folder / WEIGHTS), state)
        self.step = state["step"]
        self.stale, self.due = state["stale"], state["due"]
        self.validated = state.get("validated", self.step)  # checkpoints of 0.2.0 do not know
        self.lr = self.learner.optimizer.param_groups[0]["lr"]
        self._before, self.reserve = state["seconds"], state["reserve"]
        self.guard.tally = dict(state["watch"])
        return int(state["history"])

    def _leave(self) -> NoReturn:
        """Save, then exit with the signal's code."""
        try:
            self._save()
            self.checkpoints.wait()
        finally:
            self.validator.settle()
        name = self.stop.received.name if self.stop.received else "nothing"
        saved = self.checkpoints.saved
        message = f"training: stopped by {name} after step {self.step}; {saved} was saved to resume from."
        raise Interrupted(message, exit_code=self.stop.exit_code)

    def _reason(self) -> str:
        """Return the reason why the run is over, or an empty string."""
        limit = self.limits.reached(self.step, self.seconds + self.reserve)
        patience, target, best = self.config.patience, self.config.stop_at, self.checkpoints.best
        if target is not None and best and (best[0] >= target if self.checkpoints.highest else best[0] <= target):
            return f"stop_at={target:g}"
        return limit or (f"patience={patience}" if patience is not None and self.stale >= patience else "")

    def _result(self, reason: str) -> TrainResult:
        best = self.checkpoints.best
        row: dict[str, Any] = {}
        if best:  # the line of the history with its validation
            rows = reversed(read_json_lines(self.job.folder / HISTORY))
            row = next((row for row in rows if "val" in row and step_name(row["step"]) == best[1].name), {})
        return TrainResult(
            steps=self.step,
            epochs=self.limits.epochs(self.step),
            reason=reason,
            monitor=self.monitor,
            score=best[0] if best else None,
            best=best[1] if best else None,
            values=row.get("val", {}),
            unlearned=tuple(row.get("unlearned", ())),
            last=self.checkpoints.folder / LAST,
            seconds=self.seconds,
            images_per_second=self.throughput.whole.rates()["images_per_second"],
        )

    @property
    def seconds(self) -> float:
        """Return the seconds spent on the run, including earlier processes."""
        return self._before + time.monotonic() - self._start

    def progress(self, step: int) -> float:
        """Return how far the run is at a step, 0 to 1. Only a time budget makes this depend on the clock."""
        return self.limits.progress(step, self.seconds + self.reserve)

    def _write(self, metrics: dict[str, Any]) -> None:
        """Append a row to the history, and pass it to the loggers."""
        epoch = round(self.limits.epochs(self.step), 4)
        row = {"step": self.step, "epoch": epoch, **metrics, "seconds": round(self.seconds, 3)}
        self.history.write(json_line(row))
        self.loggers.write(row)

    def _show(self, doing: str = "") -> None:
        """Update the progress line."""
        position = f"step {self.step}, epoch {self.limits.epochs(self.step):.1f}"
        self.gauge(self.progress(self.step), position + "".join(self.newest.values()) + doing)

    def end(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Wait for the checkpoint in the background, and close the history and the loggers."""
        self.checkpoints.close()
        self.history.close()
        failed = isinstance(error, Exception) and not isinstance(error, Interrupted)
        self.loggers.close("failed" if failed else "interrupted" if error else "finished")
