"""Batches -> one update of the weights. Nothing here waits for the device.

Axes: B batch, C channels, H height, W width.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.amp import GradScaler
from torch.optim import Optimizer
from torch.profiler import record_function

from segmeter.checks import expected
from segmeter.distributed.averaging import Averaged
from segmeter.distributed.ranks import ALONE, World
from segmeter.errors import InputError
from segmeter.inference.config import Precision
from segmeter.inference.precision import autocast, pick_dtype, training_precision
from segmeter.losses.additive import AdditiveLoss, divide
from segmeter.training.config import TrainingConfig
from segmeter.training.data.batches import Batch, Draws, resized
from segmeter.training.optimisation.optimizer import update_weights

# Runs shorter than this do not win back the minute or so that compiling a U-Net's two passes takes
AUTO_COMPILE_STEPS = 2000
AUTO_COMPILE_SECONDS = 600.0


def _nothing() -> None:
    pass


class Augmentation(Protocol):
    """Changes a batch on its device; what is drawn, on the host, depends on seed, epoch and index alone."""

    def draw(self, *, seed: int, epoch: int, indices: NDArray[np.int64], channels: int) -> Draws: ...

    def __call__(self, image: Tensor, target: Tensor, draws: Draws) -> tuple[Tensor, Tensor]: ...


@dataclass(frozen=True, kw_only=True)
class Stepper:
    """Forward, backward and update.

    Parameters
    ----------
    forward
        Image -> logits: the segmenter, or what compiling it gave; `Averaged` where processes train together.
    loss
        Its sums and denominators add over the batches of a step.
    scaler
        Scaler of the loss, for float16; None for other precisions.
    before_update
        Called once the gradients are there, before anything that an update changes is changed.
    """

    forward: Callable[[Tensor], Tensor]
    loss: AdditiveLoss
    optimizer: Optimizer
    scaler: GradScaler | None
    augment: Augmentation | None
    config: TrainingConfig
    device: torch.device
    before_update: Callable[[], None] = _nothing

    def __call__(self, batches: Sequence[Batch]) -> tuple[Tensor, Tensor]:
        """Take one step over all of `batches`, which are on the device, as if they were one batch.

        The denominators of the loss are summed over the batches, and over processes, before the first forward pass, so
        that each backward pass adds its share of the one gradient. Only batch norm sees each batch on its own.

        Returns
        -------
        Loss and norm of the gradient before clipping, 0-d on the device.
        """
        whole = self._denominators(batches) if len(batches) > 1 or self.world.size > 1 else None
        losses = []
        for number, batch in enumerate(batches, start=1):
            image, target = self.augmented(batch)
            image = image.contiguous(memory_format=self._layout)
            with self._gathering(image, last=number == len(batches)):
                loss = self._compute_loss(image, target, whole)
                share = loss * self.world.size  # of a mean over processes
                (share if self.scaler is None else self.scaler.scale(share)).backward()  # type: ignore[no-untyped-call]
            losses.append(loss.detach())
        self.before_update()
        return self.world.sum(torch.stack(losses).sum()), self._update()

    @property
    def world(self) -> World:
        """The processes that take each step together."""
        return self.forward.world if isinstance(self.forward, Averaged) else ALONE

    def _gathering(self, image: Tensor, *, last: bool) -> AbstractContextManager[None]:
        return self.forward.gathering(image, last=last) if isinstance(self.forward, Averaged) else nullcontext()

    @property
    def _layout(self) -> torch.memory_format:
        return torch.channels_last if self.config.channels_last else torch.contiguous_format

    @record_function("segmeter.forward")
    def _compute_loss(self, image: Tensor, target: Tensor, whole: Tensor | None) -> Tensor:
        """Give the loss of a batch, or its share of a step whose denominators are `whole`."""
        with autocast(self.device, training_precision(self.device, self.config.precision)):
            logits = self.forward(image)
            if whole is None:
                alone: Tensor = self.loss(logits, target)
                return alone
            return divide(self.loss.sums(logits, target), whole)

    def _denominators(self, batches: Sequence[Batch]) -> Tensor:
        """Sum the denominators; targets are augmented twice rather than kept, so memory does not grow with batches."""
        here = torch.stack([self.loss.denominators(self.augmented(batch)[1]) for batch in batches]).sum(0)
        return self.world.sum(here)

    @record_function("segmeter.augment")
    def augmented(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Image and target as the forward pass takes them; the same ones each time that it is called."""
        image, target = resized(batch)
        if self.augment is None:
            return image, target
        if batch.draws is None:
            raise InputError(expected("step", "batches", "to have draws for the augmentation", "none"))
        with torch.no_grad():
            return self.augment(image, target, batch.draws)

    @record_function("segmeter.update")
    def _update(self) -> Tensor:
        if self.scaler is None:
            return update_weights(self.optimizer, clip_norm=self.config.clip_norm)
        return update_scaled_weights(self.optimizer, self.scaler, clip_norm=self.config.clip_norm)


def build_scaler(device: torch.device, precision: Precision) -> GradScaler | None:
    """A scaler of the loss where the forward pass runs in float16, whose smallest gradients would be lost otherwise."""
    return GradScaler(device.type) if pick_dtype(device, precision) is torch.float16 else None


def update_scaled_weights(optimizer: Optimizer, scaler: GradScaler, *, clip_norm: float | None) -> Tensor:
    """As `update_weights`, for gradients of a scaled loss; a step that overflows is left out and the scale falls."""
    scaler.unscale_(optimizer)
    gradients = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
    norm = torch.nn.utils.get_total_norm(gradients)
    if clip_norm is not None:
        torch._foreach_div_(gradients, (norm / clip_norm).clamp(min=1.0))
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad(set_to_none=True)
    return norm


def compiled(model: nn.Module, config: TrainingConfig, *, device: torch.device, steps: float) -> nn.Module:
    """The model, compiled where the configuration says so; "auto" does it on a GPU for runs that win it back."""
    long_run = steps >= AUTO_COMPILE_STEPS and (config.budget_seconds or AUTO_COMPILE_SECONDS) >= AUTO_COMPILE_SECONDS
    wanted = config.compile if config.compile != "auto" else device.type == "cuda" and long_run
    return torch.compile(model) if wanted else model  # type: ignore[return-value]
