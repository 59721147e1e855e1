"""Does one training step, from batches to averaged weights: augment, forward, loss, backward, clip, step, average.

`update_from_batches` is the step itself. The rest prepares it, times it for a plan, and ends a run whose loss or
gradient is not finite (`DivergenceGuard`).
"""

import copy
import logging
import math
import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
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
from segmeter.inference.device import advised, autocast, without_tf32
from segmeter.losses.additive import divide
from segmeter.training.clock import Limits
from segmeter.training.data.batches import Batch, Batches, augmented
from segmeter.training.job import TrainJob, check_job
from segmeter.training.learner import Learner, capture_rng, restore_rng
from segmeter.training.optimizers import clip_and_step, freeze

SHOWN_CASES = 8  # a message lists at most this many cases of a batch
_LOG = logging.getLogger(__name__)
TIMED_STEPS = 2, 5  # at least 2 and at most 5 steps are timed after the first one
_FIX = "Set a smaller training.batch_size (with training.accumulate for the same update) or augment.crop, and resume."


@dataclass(frozen=True, kw_only=True)
class StepResult:
    """A finished step, counted from 1. Its loss and gradient norm are still on the device."""

    step: int
    lr: float
    indices: Sequence[NDArray[np.int64]]
    loss: Tensor
    grad_norm: Tensor


def run_step(job: TrainJob, learner: Learner, batches: Sequence[Batch], order: Order) -> StepResult:
    """Take the ordered step with the learning rate and the frozen parts that are due at this point of the run."""
    freeze(learner.segmenter, learner.config, step=order.step)
    lr = float(learner.lr * learner.schedule(order.progress))
    for group in learner.optimizer.param_groups:
        group["lr"] = lr * group.get("lr_factor", 1.0)
    case_id = job.data.case_id_of(int(batches[0].indices[0]))
    with advised(f"training: step {order.step + 1}, the batch with case {case_id!r}", _FIX):
        loss, grad_norm = update_from_batches(learner, batches)
    if learner.average:
        learner.average.update()
    indices = [batch.indices for batch in batches]
    return StepResult(step=order.step + 1, lr=lr, indices=indices, loss=loss, grad_norm=grad_norm)


def update_from_batches(learner: Learner, batches: Sequence[Batch]) -> tuple[Tensor, Tensor]:
    """Update the weights once with several batches on the device, as if they were one. Nothing waits for the device.

    With more than one batch or process, a first pass over the targets adds up the denominators of the loss. Each
    forward pass then divides by the same sum, so that the gradients of the backward passes add up to that of one large
    batch. The batches are augmented in both passes, as keeping them would take the memory of a large batch. Only batch
    norm sees each batch on its own.

    Returns
    -------
    Loss and norm of the gradient before clipping, 0-d on the device.
    """
    config, world = learner.config, learner.world
    losses: list[Tensor] = []
    denominators: Tensor | None = None
    if len(batches) > 1 or world.size > 1:
        targets = (augmented(batch, learner.augment)[1] for batch in batches)
        denominators = world.sum(torch.stack([learner.loss.denominators(target) for target in targets]).sum(0))
    for number, batch in enumerate(batches, start=1):
        image, target = augmented(batch, learner.augment)
        image = image.contiguous(memory_format=torch.channels_last)  # the faster layout on CPUs and GPUs
        with learner.forward.gathering(image, last=number == len(batches)):
            with record_function("segmeter.forward"), autocast(learner.device, learner.dtype):
                logits = learner.forward(image)
                if denominators is None:  # a single batch is divided on its own, without another pass over its target
                    loss = learner.loss(logits, target)
                else:
                    loss = divide(learner.loss.sums(logits, target), denominators)
            summed = loss * world.size  # as gradients are averaged over processes
            (summed if learner.scaler is None else learner.scaler.scale(summed)).backward()
        losses.append(loss.detach())
    total = world.sum(torch.stack(losses).sum())
    with record_function("segmeter.update"):
        return total, clip_and_step(learner.optimizer, clip_norm=config.clip_norm, scaler=learner.scaler)


@contextmanager
def training_environment(job: TrainJob) -> Iterator[StopSignals]:
    """Seed the generators, the same in all processes. Within the block, choose kernels and listen for signals.

    So the random numbers of the loop, as for dropout, don't depend on how many the initial weights took.

    The kernels are deterministic if the configuration asks for it. Otherwise they are the fastest ones for sizes that
    do not change.
    """
    config = job.settings.training
    was_deterministic = torch.are_deterministic_algorithms_enabled()
    was_benchmarking = torch.backends.cudnn.benchmark
    exact = without_tf32() if job.dtype is torch.float32 else nullcontext()  # in the backward pass too
    with StopSignals() as stop, exact:
        if config.deterministic:
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read by cuBLAS when it starts
            torch.use_deterministic_algorithms(True)
        torch.backends.cudnn.benchmark = not config.deterministic
        random.seed(config.seed)
        np.random.seed(config.seed % 2**32)  # noqa: NPY002 - other people's layers draw from the legacy generator
        torch.manual_seed(config.seed)
        try:
            yield stop
        finally:
            torch.use_deterministic_algorithms(was_deterministic)
            torch.backends.cudnn.benchmark = was_benchmarking


def open_batches(job: TrainJob, *, step: int, progress: Callable[[int], float]) -> Batches:
    """Open the batches from a step on. `progress` tells how far the run is at a step, 0 to 1; see `Batches`."""
    config, augment = job.settings.training, job.data.augment
    return Batches(
        job.data.source,
        first=step * config.accumulate,
        progress=lambda number: progress(number // config.accumulate),
        workers=config.workers,
        device=job.device,
        random_numbers=partial(augment.draw, seed=config.seed) if augment else None,
    )


def time_step(job: TrainJob, *, limit_s: float) -> tuple[float, float]:
    """Time a warm training step on this machine, as busy as it is now; also return the loss of the first step.

    A copy of the model takes one step to warm up, which compiles kernels and may take ten times as long. Two to five
    more steps are timed, waiting for batches included. The result is their lower median, as another program may hold up
    one of them. Neither the job nor any generator changes.

    Parameters
    ----------
    limit_s
        Seconds after which no third timed step begins.
    """
    check_job(job)
    config = job.settings.training
    probe = replace(job, segmenter=copy.deepcopy(job.segmenter), world=ALONE)
    limits = Limits(config=config, batches_per_epoch=len(job.data.source))
    losses: list[float] = []
    times: list[float] = []
    least, most = TIMED_STEPS
    with ExitStack() as stack:
        stack.callback(restore_rng, capture_rng(job.device))
        learner = Learner(probe, limits)
        source = stack.enter_context(open_batches(probe, step=0, progress=lambda step: 1.0))
        while len(times) <= least or (len(times) <= most and sum(times[1:]) < limit_s):
            start = time.monotonic()
            batches = [source.next_batch() for _ in range(config.accumulate)]
            result = run_step(probe, learner, batches, Order(len(losses), 0.0, validates=False))
            losses.append(float(to_numpy(result.loss)))  # waits for the device
            times.append(time.monotonic() - start)
    return median_low(times[1:]), losses[0]


@dataclass
class DivergenceGuard:
    """Collects steps, reads their values in one transfer, and ends a run whose loss or gradient is not finite.

    In float16 an overflowing gradient only skips its update, as the scale of the loss has to be found first. Too many
    skipped updates in a row end the run.

    Parameters
    ----------
    case_id
        From the number of a sample to the name of its case, for the message.
    scaled
        Whether the loss is scaled (float16), so that an overflowing gradient skips its update.
    max_skipped
        Skipped updates in a row that end the run, >= 1.
    check_labels
        Called if a loss is not finite; raises if bad labels are the cause.
    tally
        The values read since the last line of the log, and how many updates were skipped in a row. A checkpoint
        contains them.
    """

    case_id: Callable[[int], str]
    scaled: bool = False
    max_skipped: int = 50
    check_labels: Callable[[], None] = lambda: None
    tally: dict[str, Any] = field(default_factory=lambda: {"losses": [], "norms": [], "skipped": 0, "in_a_row": 0})
    _unread: list[StepResult] = field(default_factory=list)

    def note(self, result: StepResult) -> None:
        self._unread.append(result)

    def read(self) -> None:
        """Read the losses and norms of all recorded steps.

        Raises
        ------
        RunError
            One is not finite, or too many updates were skipped. The message has the step, its rate and its cases.
        """
        if not self._unread:
            return
        values = to_numpy(torch.stack([value for result in self._unread for value in (result.loss, result.grad_norm)]))
        results, self._unread = self._unread, []
        for result, (loss, norm) in zip(results, values.reshape(-1, 2).tolist(), strict=True):
            if not math.isfinite(loss):
                self.check_labels()
                raise self._fault(f"a finite loss, got {loss}", result)
            self.tally["losses"].append(loss)
            if math.isfinite(norm):
                self.tally["norms"].append(norm)
                self.tally["in_a_row"] = 0
                continue
            if not self.scaled:
                raise self._fault(f"a finite gradient, got {norm}", result)
            self.tally["skipped"] += 1
            self.tally["in_a_row"] += 1
            if self.tally["in_a_row"] >= self.max_skipped:
                skipped = f"but {self.tally['in_a_row']} updates in a row were skipped (training.max_skipped), the last"
                remedy = "use training.precision=bfloat16 or float32, "
                raise self._fault(f"a finite gradient, {skipped}", result, remedy)

    def pop_log_row(self) -> dict[str, Any]:
        """Return the values for a line of the log and forget them, {} without a step. Warn of skipped updates."""
        losses, norms, skipped = (self.tally[name] for name in ("losses", "norms", "skipped"))
        self.tally |= {"losses": [], "norms": [], "skipped": 0}
        if skipped:
            text = "training: %d of the last %d updates were skipped, as their float16 gradient was not finite"
            _LOG.warning(text, skipped, len(losses))
        if not losses:
            return {}
        norm = math.fsum(norms) / len(norms) if norms else None
        row = {"loss": math.fsum(losses) / len(losses), "grad_norm": norm}
        return row | ({"skipped_updates": skipped} if self.scaled else {})

    def _fault(self, expectation: str, result: StepResult, remedy: str = "") -> RunError:
        names = list(dict.fromkeys(self.case_id(int(index)) for batch in result.indices for index in batch))
        shown = shorten([repr(name) for name in names], most=SHOWN_CASES)
        return RunError(
            f"training: expected {expectation} at step {result.step} (lr {result.lr:.3g}, cases {shown}). "
            f"Earlier checkpoints stay; {remedy}lower optimizer.lr, set training.clip_norm or look at these cases."
        )
