"""Batches -> one update of the weights. Nothing here waits for the device.

Axes: B batch, C channels, H height, W width.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.amp import GradScaler
from torch.optim import Optimizer

from segmeter.inference.precision import autocast, pick_dtype
from segmeter.training.batches import Batch, to_device
from segmeter.training.config import Precision, TrainingConfig
from segmeter.training.optimizer import update_weights

Loss = Callable[[Tensor, Tensor], Tensor]

# Runs shorter than this do not win back the minute or so that compiling a U-Net's two passes takes
AUTO_COMPILE_STEPS = 2000
AUTO_COMPILE_SECONDS = 600.0


class Augmentation(Protocol):
    """Changes a batch on its device; what is drawn depends on seed, epoch and index alone."""

    def __call__(
        self, image: Tensor, target: Tensor, *, seed: int, epoch: int, indices: NDArray[np.int64]
    ) -> tuple[Tensor, Tensor]: ...


@dataclass(frozen=True, kw_only=True)
class Stepper:
    """Forward, backward and update.

    Parameters
    ----------
    forward
        Image -> logits: the segmenter, or what compiling it gave.
    loss
        Logits and target -> 0-d mean over the pixels that count.
    scaler
        Of the loss, for float16; None for other precisions.
    ignore_index
        Value of pixels that do not count, or None.
    """

    forward: Callable[[Tensor], Tensor]
    loss: Loss
    optimizer: Optimizer
    scaler: GradScaler | None
    augment: Augmentation | None
    config: TrainingConfig
    device: torch.device
    ignore_index: int | None

    def __call__(self, batches: Sequence[Batch]) -> tuple[Tensor, Tensor]:
        """Take one step over all of `batches` as if they were one batch.

        Each batch weighs as much as the pixels in it that count, so that the mean is the one over all of them.
        Batch norm still sees each batch on its own.

        Returns
        -------
        Loss and norm of the gradient before clipping, 0-d float32 on the device.
        """
        if len(batches) == 1:
            loss = self._compute_loss(*self._prepare(batches[0]))
            self._backward(loss)
            return loss.detach(), self._update(None)
        total = torch.zeros((), device=self.device)
        share = torch.zeros((), device=self.device)
        for batch in batches:
            image, target = self._prepare(batch)
            part = self._counted(target) / len(batches)
            loss = self._compute_loss(image, target) * part
            self._backward(loss)
            total, share = total + loss.detach(), share + part
        share = share.clamp(min=torch.finfo(torch.float32).tiny)  # all ignored: the gradient is 0, and stays 0
        return total / share, self._update(share)

    def _prepare(self, batch: Batch) -> tuple[Tensor, Tensor]:
        image, target = to_device(batch, self.device)
        if self.augment is not None:
            with torch.no_grad():
                image, target = self.augment(
                    image, target, seed=self.config.seed, epoch=batch.epoch, indices=batch.indices
                )
        layout = torch.channels_last if self.config.channels_last else torch.contiguous_format
        return image.contiguous(memory_format=layout), target

    def _compute_loss(self, image: Tensor, target: Tensor) -> Tensor:
        with autocast(self.device, self.config.precision):
            return self.loss(self.forward(image), target)

    def _counted(self, target: Tensor) -> Tensor:
        """The part of the target's values that count, 0-d."""
        if self.ignore_index is None:
            return torch.ones((), device=self.device)
        return (target != self.ignore_index).to(torch.float32).mean()

    def _backward(self, loss: Tensor) -> None:
        (loss if self.scaler is None else self.scaler.scale(loss)).backward()  # type: ignore[no-untyped-call]

    def _update(self, share: Tensor | None) -> Tensor:
        if self.scaler is None:
            return update_weights(self.optimizer, clip_norm=self.config.clip_norm, share=share)
        return update_scaled_weights(self.optimizer, self.scaler, clip_norm=self.config.clip_norm, share=share)


def build_scaler(device: torch.device, precision: Precision) -> GradScaler | None:
    """A scaler of the loss where the forward pass runs in float16, whose smallest gradients would be lost otherwise."""
    return GradScaler(device.type) if pick_dtype(device, precision) is torch.float16 else None


def update_scaled_weights(
    optimizer: Optimizer, scaler: GradScaler, *, clip_norm: float | None, share: Tensor | None
) -> Tensor:
    """As `update_weights`, for gradients of a scaled loss; a step that overflows is left out and the scale falls."""
    scaler.unscale_(optimizer)
    gradients = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
    if share is not None:
        torch._foreach_div_(gradients, share)
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
