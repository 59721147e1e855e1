"""Does one training step, from batches to averaged weights: augment, forward, loss, backward, clip, step, average.

`update` is the step itself. The rest prepares it, times it for a plan, and ends a run whose loss or gradient is not
finite (`DivergenceGuard`).
"""

import copy
import logging
import math
import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import median_low
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.profiler import record_function

from segmeter.bridge.arrays import to_numpy
from segmeter.checks import shorten
from segmeter.distributed.ranks import ALONE, Order
from segmeter.errors import RunError, StopSignals
from segmeter.inference.device import advised, autocast, pick_dtype, training_precision, without_tf32
from segmeter.losses.additive import divide
from segmeter.training.clock import Limits
from segmeter.training.data.batches import Batch, Batches, augmented
from segmeter.training.job import TrainJob, check_job
from segmeter.training.learner import Learner, capture_rng, restore_rng
from segmeter.training.optimizers import freeze, update_weights

SHOWN_CASES = 8  # of a batch, in a message
_LOG = logging.getLogger(__name__)
TIMED_STEPS = 2, 5  # of a plan: at least and at most, after the first
_LESS = "Set a smaller training.batch_size (with training.accumulate for the same update) or augment.crop, and resume."


@dataclass(frozen=True, kw_only=True)
class Taken:
    """A step that was taken, counted from 1, whose loss and gradient norm are still on the device."""

    step: int
    lr: float
    indices: Sequence[NDArray[np.int64]]
    loss: Tensor
    grad_norm: Tensor


def take_step(job: TrainJob, learner: Learner, batches: Sequence[Batch], order: Order) -> Taken:
    """Take the ordered step, at the learning rate of its progress, and with the parts frozen that then are."""
    freeze(learner.segmenter, learner.config, step=order.step)
    lr = float(learner.lr * learner.schedule(order.progress))
    for group in learner.optimizer.param_groups:
        group["lr"] = lr * group.get("lr_factor", 1.0)
    first = job.data.name(int(batches[0].indices[0]))
    with advised(f"training: step {order.step + 1}, the batch with case {first!r}", _LESS):
        loss, grad_norm = update(learner, batches)
    if learner.average:
        learner.average.update()
    indices = [batch.indices for batch in batches]
    return Taken(step=order.step + 1, lr=lr, indices=indices, loss=loss, grad_norm=grad_norm)


def update(learner: Learner, batches: Sequence[Batch]) -> tuple[Tensor, Tensor]:
    """Update the weights once with several batches on the device, as if they were one. Nothing waits for the device.

    The denominators of the loss are summed over batches and processes before the first forward pass, so each backward
    pass adds its share of the one gradient. Targets are augmented twice for that rather than kept, so memory does not
    grow with the number of batches. Only batch norm sees each batch on its own.

    Returns
    -------
    Loss and norm of the gradient before clipping, 0-d on the device.
    """
    config, world, loss_of, whole, losses = learner.config, learner.world, learner.loss, None, []
    if len(batches) > 1 or world.size > 1:
        targets = (augmented(batch, learner.augment)[1] for batch in batches)
        whole = world.sum(torch.stack([loss_of.denominators(target) for target in targets]).sum(0))
    for number, batch in enumerate(batches, start=1):
        image, target = augmented(batch, learner.augment)
        image = image.contiguous(memory_format=torch.channels_last)  # the faster layout on CPUs and GPUs
        with learner.forward.gathering(image, last=number == len(batches)):
            precision = training_precision(learner.device, config.precision)
            with record_function("segmeter.forward"), autocast(learner.device, precision):
                logits = learner.forward(image)
                loss = loss_of(logits, target) if whole is None else divide(loss_of.sums(logits, target), whole)
            share = loss * world.size  # as gradients are averaged over processes
            (share if learner.scaler is None else learner.scaler.scale(share)).backward()
        losses.append(loss.detach())
    total = world.sum(torch.stack(losses).sum())
    with record_function("segmeter.update"):
        return total, update_weights(learner.optimizer, clip_norm=config.clip_norm, scaler=learner.scaler)


@contextmanager
def prepared(job: TrainJob, device: torch.device) -> Iterator[StopSignals]:
    """Seed the generators, the same in all processes, and choose kernels and listen to signals within the block.

    Kernels are deterministic ones if asked for, otherwise the fastest ones for sizes that do not change.
    """
    training, seed = job.settings.training, job.settings.training.seed
    before = torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.benchmark
    float32 = pick_dtype(device, training.precision) is torch.float32
    with StopSignals() as stop, without_tf32() if float32 else nullcontext():  # in the backward pass too
        if training.deterministic:
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read by cuBLAS when it starts
            torch.use_deterministic_algorithms(True)
        torch.backends.cudnn.benchmark = not training.deterministic
        random.seed(seed)
        np.random.seed(seed % 2**32)  # noqa: NPY002 - other people's layers draw from the legacy generator
        torch.manual_seed(seed)
        try:
            yield stop
        finally:
            torch.use_deterministic_algorithms(before[0])
            torch.backends.cudnn.benchmark = before[1]


def open_batches(job: TrainJob, device: torch.device, *, step: int, progress: Callable[[int], float]) -> Batches:
    """Yield the batches from a step on, prepared ahead. `progress` is how far the run is at a step, 0 to 1."""
    training, augment = job.settings.training, job.data.augment
    return Batches(
        job.data.source,
        first=step * training.accumulate,
        progress=lambda number: progress(number // training.accumulate),
        workers=training.workers,
        device=device,
        draw=partial(augment.draw, seed=training.seed) if augment else None,
    )


def time_step(job: TrainJob, *, limit_s: float) -> tuple[float, float]:
    """Time a warm training step on this machine, as busy as it is now; also return the loss of the first step.

    A copy of the model takes a step to warm up, which compiles kernels and may take ten times as long. Two to five more
    are timed, and their lower median counts, as another program may hold up one of them. Waiting for batches counts.
    Neither the job nor any generator changes.

    Parameters
    ----------
    limit_s
        Seconds after which no third timed step begins.
    """
    device = check_job(job)
    state, training = capture_rng(device), job.settings.training
    probe = replace(job, segmenter=copy.deepcopy(job.segmenter), world=ALONE)
    limits = Limits(config=training, batches_per_epoch=len(job.data.source))
    learner, losses, times = Learner(probe, device, limits), list[float](), list[float]()
    least, most = TIMED_STEPS
    with open_batches(probe, device, step=0, progress=lambda step: 1.0) as source:
        while len(times) <= least or (len(times) <= most and sum(times[1:]) < limit_s):
            start = time.monotonic()
            batches = [source.take() for _ in range(training.accumulate)]
            taken = take_step(probe, learner, batches, Order(len(losses), 0.0, validates=False))
            losses.append(float(to_numpy(taken.loss)))  # waits for the device
            times.append(time.monotonic() - start)
    restore_rng(state)
    return median_low(times[1:]), losses[0]


@dataclass
class DivergenceGuard:
    """Collects steps, reads their values in one transfer, and ends a run whose loss or gradient is not finite.

    In float16 an overflowing gradient only skips its update, as the scale of the loss has to be found first. Too many
    skipped updates in a row end the run.

    Parameters
    ----------
    case_id
        Gives the name of a sample's case by the sample's number, for the message.
    scaled
        Whether the loss is scaled (float16), so that an overflowing gradient skips its update.
    max_skipped
        Skipped updates in a row that end the run, >= 1.
    check_labels
        Called if a loss is not finite; raises if bad labels are the cause.
    kept
        What was read since the last line of the log, for a checkpoint, and how many updates were skipped in a row.
    """

    case_id: Callable[[int], str]
    scaled: bool = False
    max_skipped: int = 50
    check_labels: Callable[[], None] = lambda: None
    kept: dict[str, Any] = field(default_factory=lambda: {"losses": [], "norms": [], "skipped": 0, "in_a_row": 0})
    _taken: list[Taken] = field(default_factory=list)

    def note(self, taken: Taken) -> None:
        self._taken.append(taken)

    def read(self) -> None:
        """Read the losses and norms of all recorded steps.

        Raises
        ------
        RunError
            One is not finite, or too many updates were skipped. The message has the step, its rate and its cases.
        """
        if not self._taken:
            return
        values = to_numpy(torch.stack([value for taken in self._taken for value in (taken.loss, taken.grad_norm)]))
        taken_steps, self._taken = self._taken, []
        for taken, (loss, norm) in zip(taken_steps, values.reshape(-1, 2).tolist(), strict=True):
            if not math.isfinite(loss):
                self.check_labels()
                raise self._fault(f"a finite loss, got {loss}", taken)
            self.kept["losses"].append(loss)
            if math.isfinite(norm):
                self.kept["norms"].append(norm)
                self.kept["in_a_row"] = 0
                continue
            if not self.scaled:
                raise self._fault(f"a finite gradient, got {norm}", taken)
            self.kept["skipped"] += 1
            self.kept["in_a_row"] += 1
            if self.kept["in_a_row"] >= self.max_skipped:
                skipped = f"but {self.kept['in_a_row']} updates in a row were skipped (training.max_skipped), the last"
                remedy = "use training.precision=bfloat16 or float32, "
                raise self._fault(f"a finite gradient, {skipped}", taken, remedy)

    def take(self) -> dict[str, Any]:
        """Return the values for a line of the log and forget them, {} without a step; warn of skipped updates."""
        losses, norms, skipped = (self.kept[name] for name in ("losses", "norms", "skipped"))
        self.kept |= {"losses": [], "norms": [], "skipped": 0}
        if skipped:
            text = "training: %d of the last %d updates were skipped, as their float16 gradient was not finite"
            _LOG.warning(text, skipped, len(losses))
        if not losses:
            return {}
        norm = math.fsum(norms) / len(norms) if norms else None
        found = {"loss": math.fsum(losses) / len(losses), "grad_norm": norm}
        return found | ({"skipped_updates": skipped} if self.scaled else {})

    def _fault(self, what: str, taken: Taken, remedy: str = "") -> RunError:
        names = list(dict.fromkeys(self.case_id(int(index)) for part in taken.indices for index in part))
        shown = shorten([repr(name) for name in names], most=SHOWN_CASES)
        return RunError(
            f"training: expected {what} at step {taken.step} (lr {taken.lr:.3g}, cases {shown}). "
            f"Earlier checkpoints stay; {remedy}lower optimizer.lr, set training.clip_norm or look at these cases."
        )
