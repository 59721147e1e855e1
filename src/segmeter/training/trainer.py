"""The training loop, from the first batch to the last checkpoint. One step is one update of the weights.

`update` is one step: augment, forward, loss, backward, clip, step, average. `Trainer` takes batches, has them learned,
logs, validates, saves, and stops at a limit or a signal. `follow` is the same for the other processes of a run.
"""

import copy
import logging
import math
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor
from torch.profiler import record_function

from segmeter.bridge import read_scalars
from segmeter.distributed.ranks import ALONE, Order
from segmeter.errors import Interrupted
from segmeter.inference.oom_fallback import advised
from segmeter.inference.precision import autocast, pick_dtype, training_precision, without_tf32
from segmeter.losses.additive import check_labels, divide
from segmeter.progress import gauge
from segmeter.records import read_json_lines
from segmeter.training.checkpointing import Checkpoints, step_name
from segmeter.training.clock import Limits, Throughput, peak_memory_mb, profiled
from segmeter.training.config import find_monitor, higher_is_better
from segmeter.training.data.batches import Batch, Batches
from segmeter.training.divergence import DivergenceGuard, Taken
from segmeter.training.job import TrainJob, TrainModel, TrainResult, check_job, check_same, identify, write_contents
from segmeter.training.learner import Learner, Parts, capture_rng, kernels, restore_rng, seed_everything
from segmeter.training.loggers import History, Loggers
from segmeter.training.optimizers import update_weights
from segmeter.training.pictures import draw_first
from segmeter.training.signals import StopSignals
from segmeter.training.validation import Validator, score_share

_LOG = logging.getLogger(__name__)
TIMED_STEPS, SLOW_STEP_S = 2, 3.0  # of a plan; one step that takes this long is enough
FIRST_LOSS_S = 5.0  # a slow run shows the loss of its first steps, long before its first line of the history
_LESS = "Set a smaller training.batch_size (with training.accumulate for the same update) or augment.crop, and resume."


def train(job: TrainJob) -> TrainResult:
    """Train until the first limit is reached, or go on with a run that was stopped.

    On the CPU a run that is stopped and resumed, anywhere and any number of times, ends with the same bits as one
    that is not. A time budget is the exception, as it follows the clock.

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
    checkpoints = open_checkpoints(job)
    checkpoints.prepare()
    if not job.resume:
        write_contents(job.folder, job.data)
    limits = Limits(config=job.settings.training, batches_per_epoch=len(job.data.source))
    with ExitStack() as stack:
        stop = _prepare(stack, job, device)
        learner = Learner(job, device, limits, checkpoints.settle)
        run = stack.enter_context(Trainer(job, learner, checkpoints, limits, stop))
        stack.push(job.world.end)
        learner.share()
        batches = open_batches(job, device, step=run.step, progress=run.progress)
        run.show = stack.enter_context(gauge("training"))
        run.profile = stack.enter_context(profiled(job.folder, job.settings.training.profile_steps))
        return run.go(stack.enter_context(batches))


def follow(job: TrainJob) -> None:
    """Take every step, and a share of every validation, that rank 0 orders, in any process but the first.

    Nothing is decided or written here. A signal to this process is passed on to rank 0, which saves and ends the run.

    Parameters
    ----------
    job
        As in rank 0, with this process's part of the batches; its folder is not used.
    """
    device, training = check_job(job), job.settings.training
    limits, told = Limits(config=training, batches_per_epoch=len(job.data.source)), 0.0

    def progress(step: int) -> float:
        return max(told, limits.progress(step, 0.0))

    with ExitStack() as stack:
        stop = _prepare(stack, job, device)
        learner = Learner(job, device, limits)
        stack.push(job.world.end)
        learner.share()
        batches: Batches | None = None
        while (order := job.world.next_order(stop.number)) is not None:
            told = order.progress
            if order.validates:
                job.world.gather(score_share(job, learner, stop=stop))
                continue
            if batches is None:
                batches = stack.enter_context(open_batches(job, device, step=order.step, progress=progress))
            take_step(job, learner, [batches.take() for _ in range(training.accumulate)], order)


def time_step(job: TrainJob) -> tuple[float, float]:
    """Seconds of a training step on this machine, as busy as it is now, and the loss of the first step.

    A copy of the model takes a step to warm up and two that are timed, or a single one if that takes long. Waiting for
    batches counts. Neither the job nor any generator changes.
    """
    device = check_job(job)
    model = TrainModel(segmenter=copy.deepcopy(job.model.segmenter), loss=job.model.loss)
    state, training = capture_rng(device), job.settings.training
    probe = replace(job, model=model, world=ALONE)
    limits = Limits(config=training, batches_per_epoch=len(job.data.source))
    learner, losses, spent = Learner(probe, device, limits), list[float](), 0.0
    with open_batches(probe, device, step=0, progress=lambda step: 1.0) as source:
        while len(losses) < 2 or (len(losses) <= TIMED_STEPS and spent < SLOW_STEP_S):
            start = time.monotonic()
            batches = [source.take() for _ in range(training.accumulate)]
            loss, _, _ = take_step(probe, learner, batches, Order(len(losses), 0.0, validates=False))
            losses += read_scalars([loss])  # waits for the device
            spent = spent + time.monotonic() - start if len(losses) > 1 else 0.0
    restore_rng(state)
    return spent / (len(losses) - 1), losses[0]


def check_resumed(job: TrainJob) -> None:
    """Refuse to go on with another training, before anything of it is changed; raises as `train` does."""
    check_same(job, open_checkpoints(job).peek().state["identity"])


def open_checkpoints(job: TrainJob) -> Checkpoints:
    """The checkpoints of a job's folder, ranked by its monitor."""
    training = job.settings.training
    highest = higher_is_better(find_monitor(training.monitor, job.model.segmenter.card.spec))
    return Checkpoints(job.folder / "checkpoints", keep=training.keep, highest=highest)


def open_batches(job: TrainJob, device: torch.device, *, step: int, progress: Callable[[int], float]) -> Batches:
    """The batches from a step on, prepared ahead. `progress` is how far the run is at a step, 0 to 1."""
    training, augment = job.settings.training, job.data.augment
    return Batches(
        job.data.source,
        first=step * training.accumulate,
        progress=lambda number: progress(number // training.accumulate),
        workers=training.workers,
        device=device,
        draw=partial(augment.draw, seed=training.seed) if augment else None,
    )


def _prepare(stack: ExitStack, job: TrainJob, device: torch.device) -> StopSignals:
    """Listen to signals, choose kernels and seed the generators, the same in all processes."""
    training = job.settings.training
    stop = stack.enter_context(StopSignals())
    stack.enter_context(kernels(training.deterministic))
    if pick_dtype(device, training.precision) is torch.float32:
        stack.enter_context(without_tf32())  # in the backward pass too
    seed_everything(training.seed)
    return stop


def take_step(job: TrainJob, learner: Learner, batches: Sequence[Batch], order: Order) -> tuple[Tensor, Tensor, float]:
    """Take the ordered step; return its loss and norm of the gradient, both on the device, and its learning rate."""
    lr = learner.begin(order.step, order.progress)
    first = job.data.name(int(batches[0].indices[0]))
    with advised(f"training: step {order.step + 1}, the batch with case {first!r}", _LESS):
        loss, grad_norm = update(learner.parts, batches)
    if learner.average:
        learner.average.update()
    return loss, grad_norm, lr


def update(parts: Parts, batches: Sequence[Batch]) -> tuple[Tensor, Tensor]:
    """Update the weights once with several batches on the device, as if they were one. Nothing waits for the device.

    The denominators of the loss are summed over batches and processes before the first forward pass, so each backward
    pass adds its share of the one gradient. Targets are augmented twice for that rather than kept, so memory does not
    grow with the number of batches. Only batch norm sees each batch on its own.

    Returns
    -------
    Loss and norm of the gradient before clipping, 0-d on the device.
    """
    config, world, whole, losses = parts.config, parts.world, None, []
    layout = torch.channels_last if config.channels_last else torch.contiguous_format
    if len(batches) > 1 or world.size > 1:
        whole = world.sum(torch.stack([parts.loss.denominators(parts.augmented(batch)[1]) for batch in batches]).sum(0))
    for number, batch in enumerate(batches, start=1):
        image, target = parts.augmented(batch)
        image = image.contiguous(memory_format=layout)
        with parts.gathering(image, last=number == len(batches)):
            precision = training_precision(parts.device, config.precision)
            with record_function("segmeter.forward"), autocast(parts.device, precision):
                logits = parts.forward(image)
                loss = parts.loss(logits, target) if whole is None else divide(parts.loss.sums(logits, target), whole)
            share = loss * world.size  # as gradients are averaged over processes
            (share if parts.scaler is None else parts.scaler.scale(share)).backward()
        losses.append(loss.detach())
    parts.before_update()
    total = world.sum(torch.stack(losses).sum())
    with record_function("segmeter.update"):
        return total, update_weights(parts.optimizer, clip_norm=config.clip_norm, scaler=parts.scaler)


class Trainer:
    """A run in progress in rank 0: it steps, logs, validates and saves until a limit or a signal ends it."""

    def __init__(
        self, job: TrainJob, learner: Learner, checkpoints: Checkpoints, limits: Limits, stop: StopSignals
    ) -> None:
        self.job, self.config = job, job.settings.training
        self.learner, self.checkpoints, self.limits, self.stop = learner, checkpoints, limits, stop
        self.monitor = find_monitor(self.config.monitor, job.model.segmenter.card.spec)
        self.show: Callable[[float, str], None] = lambda fraction, text: None
        self.profile: Callable[[], None] = lambda: None
        self.guard = DivergenceGuard(
            case_id=job.data.name,
            scaled=learner.scaler is not None,
            max_skipped=self.config.max_skipped,
            check_labels=partial(check_labels, learner.loss),
        )
        self.throughput = Throughput()
        self.step = 0
        self.lr = 0.0
        self.stale = 0  # validations since the best one
        self.due = False  # a signal cut a validation short, so it is repeated first
        self.reserve = 0.0  # seconds of the last validation, kept free at the end of a time budget
        self.shown = {"train": "", "val": ""}  # the newest values on the progress line
        self._before = 0.0  # seconds spent by earlier processes
        self._start = self._saved_at = time.monotonic()
        position = self._resume() if job.resume else 0
        self.history = History(job.folder / "history.jsonl", position=position)
        self.loggers = Loggers(job.settings.loggers, folder=job.folder, step=self.step, settings=job.settings.shown)
        self.validator = Validator(job, learner, step=self.step, show=self._show, stop=stop)

    def go(self, batches: Batches) -> TrainResult:
        """Step until the end. Whatever is due after a step is done before the next one."""
        if self.due:
            self._validate()
        reason = self._reason()
        while not reason:
            self._step(batches)
            reason = self._reason()
            if reason or self.limits.validation_due(self.step):
                self._validate()
                reason = reason or self._reason()
            elif self.config.save_minutes and time.monotonic() - self._saved_at >= 60 * self.config.save_minutes:
                self._save()
            if self.stop and not reason:
                self._leave()
            self.checkpoints.check()
            self._show()
        self.checkpoints.wait()
        return self._result(reason)

    def _step(self, source: Batches) -> None:
        """Take batches, order the step, update the weights, and log every `log_every` steps."""
        self.throughput.run()
        waited = source.waited
        batches = [source.take() for _ in range(self.config.accumulate)]
        if self.step == 0 and self.job.draw_batch is not None and self.config.pictures:
            draw_first(batches[0], self.learner.parts.augmented, job=self.job, draw=self.job.draw_batch)
        order = Order(self.step, self.progress(self.step), validates=False)
        self.stop.hear(self.job.world.tell(order, self.stop.number))
        loss, grad_norm, self.lr = take_step(self.job, self.learner, batches, order)
        self.step += 1
        indices = [batch.indices for batch in batches]
        self.guard.note(Taken(step=self.step, lr=self.lr, indices=indices, loss=loss, grad_norm=grad_norm))
        self.throughput.add(sum(map(len, indices)) * self.job.world.size, source.waited - waited)
        self.profile()
        if self.step % self.config.log_every == 0:
            self._log()
        elif not self.shown["train"] and time.monotonic() - self._start > FIRST_LOSS_S:
            self.guard.read()
            self.shown["train"] = f", loss {self.guard.newest:.4f}"

    def _log(self) -> None:
        """Write the mean loss since the last line, if there were steps. Reading it waits for the device."""
        self.guard.read()
        seen = self.guard.take()
        if not seen.losses:
            return
        counts, stages = self.throughput.read()
        loss = math.fsum(seen.losses) / len(seen.losses)
        self._write(
            {
                "loss": loss,
                "lr": self.lr,
                "grad_norm": math.fsum(seen.norms) / len(seen.norms) if seen.norms else None,
                **({"skipped_updates": seen.skipped} if self.guard.scaled else {}),
                "images_per_second": counts.images_per_second,
                "data_wait": counts.data_wait,
                "stages": stages,
                "peak_memory_mb": peak_memory_mb(self.learner.device),
            }
        )
        self.shown["train"] = f", loss {loss:.4f}, {counts.images_per_second:.1f} images/s"

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
        self.loggers.show(self.step, pictures)
        self._save(score)
        self.reserve = time.monotonic() - start

    def _save(self, score: float | None = None) -> None:
        """Write a checkpoint in the background, once it is certain that every loss so far is finite."""
        self.guard.read()
        with self.throughput.stage("checkpoint"):
            self.checkpoints.save(
                self.step,
                segmenter_state=self.learner.published.state_dict(),
                card=self.job.model.segmenter.card,
                state={
                    **self.learner.state(),
                    "step": self.step,
                    "seconds": self.seconds,
                    "reserve": self.reserve,
                    "stale": self.stale,
                    "due": self.due,
                    "watch": self.guard.state(),
                    "history": self.history.position,
                    "identity": identify(self.job),
                },
                progress={
                    "step": self.step,
                    "epoch": round(self.limits.epochs(self.step), 4),
                    "monitor": self.monitor,
                    "metric": None if score is None or math.isnan(score) else score,
                },
                unvalidated=self.due,
                steady=self.learner.steady(),
            )
        self._saved_at = time.monotonic()

    def _resume(self) -> int:
        """Restore the newest checkpoint, and return the position in the history."""
        resumed = self.checkpoints.newest()
        state = resumed.state
        check_same(self.job, state["identity"])
        self.learner.load(resumed.checkpoint, state)
        self.step, self.stale, self.due = state["step"], state["stale"], state["due"]
        self._before, self.reserve = state["seconds"], state["reserve"]
        self.guard.load(state["watch"])
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

    def _reason(self) -> str:
        """The reason why the run is over, or an empty string."""
        limit = self.limits.reached(self.step, self.seconds + self.reserve)
        patience, target, best = self.config.patience, self.config.stop_at, self.checkpoints.best
        if target is not None and best and (best[0] >= target if self.checkpoints.highest else best[0] <= target):
            return f"stop_at={target:g}"
        return limit or (f"patience={patience}" if patience is not None and self.stale >= patience else "")

    def _result(self, reason: str) -> TrainResult:
        best, row = self.checkpoints.best, dict[str, Any]()
        if best:  # the line of the history with its validation
            rows = reversed(read_json_lines(self.history.path))
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
            last=self.checkpoints.folder / "last",
            seconds=self.seconds,
            images_per_second=self.throughput.whole.images_per_second,
            data_wait=self.throughput.whole.data_wait,
        )

    @property
    def seconds(self) -> float:
        """Spent on the run, including earlier processes."""
        return self._before + time.monotonic() - self._start

    def progress(self, step: int) -> float:
        """How far the run is at a step, 0 to 1. Only a time budget makes this depend on the clock."""
        return self.limits.progress(step, self.seconds + self.reserve)

    def _write(self, metrics: dict[str, Any]) -> None:
        """Append a row to the history, and give it to the loggers."""
        place = {"step": self.step, "epoch": round(self.limits.epochs(self.step), 4)}
        row = {**place, **metrics, "seconds": round(self.seconds, 3)}
        self.history.write(row)
        self.loggers.write(row)

    def _show(self, doing: str = "") -> None:
        """Update the progress line."""
        place = f"step {self.step}, epoch {self.limits.epochs(self.step):.1f}"
        self.show(self.progress(self.step), place + "".join(self.shown.values()) + doing)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.checkpoints.close()
        self.history.close()
        failed = isinstance(error, Exception) and not isinstance(error, Interrupted)
        self.loggers.close("failed" if failed else "interrupted" if error else "finished")
