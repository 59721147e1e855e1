"""Builds optimizers, learning rate schedules and frozen parts, which decide how the weights change in a step.

Nothing here asks the device for a number, so a GPU never waits.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.amp import GradScaler
from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim import SGD, AdamW

from segmeter.training.config import (
    AdamWConfig,
    ConstantConfig,
    CosineConfig,
    OneCycleConfig,
    PolyConfig,
    SgdConfig,
    TrainingConfig,
)

Schedule = Callable[[float], float]  # from the progress of the run, 0 to 1, to a factor on the learning rate

WARMUP_START = 0.01  # a warm-up starts at this share of the learning rate, so that the first step is not lost


def build_adamw(config: AdamWConfig, *, model: nn.Module) -> AdamW:
    # On two CPU cores, 14 million weights take 33 ms fused on one thread, 70 ms with foreach, 82 ms with a loop.
    groups = parameter_groups(model, config.weight_decay, encoder_lr=config.encoder_lr)
    return AdamW(groups, lr=config.lr, betas=(config.beta1, config.beta2), eps=config.eps, fused=True)


def build_sgd(config: SgdConfig, *, model: nn.Module) -> SGD:
    groups = parameter_groups(model, config.weight_decay, encoder_lr=config.encoder_lr)
    return SGD(groups, lr=config.lr, momentum=config.momentum, nesterov=config.nesterov, fused=True)


def parameter_groups(model: nn.Module, weight_decay: float, *, encoder_lr: float = 1.0) -> list[dict[str, Any]]:
    """Split the trainable parameters: kernels decay, norms and biases (fewer than two axes) do not.

    If `encoder_lr` is not 1, the encoder's parameters have their own groups with it as `lr_factor`.
    """
    encoder = find_encoder(model) if encoder_lr != 1 else None
    encoder_ids = set() if encoder is None else {id(parameter) for parameter in encoder.parameters()}
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [
        {
            "params": [p for p in trainable if (id(p) in encoder_ids) == inside and (p.ndim > 1) == decays],
            "weight_decay": weight_decay if decays else 0.0,
            "lr_factor": encoder_lr if inside else 1.0,
        }
        for inside in (False, True)
        for decays in (True, False)
    ]
    return [group for group in groups if group["params"]]


def clip_and_step(optimizer: Any, *, clip_norm: float | None, scaler: GradScaler | None = None) -> Tensor:
    """Clip the gradients, take one step if they are finite, and clear them.

    A fused optimizer divides the gradients as it reads them, and skips the step on the device. torch promises
    neither on an Apple GPU, so there the host decides. With a `scaler`, a step that overflows is skipped too, and the
    scale of the loss is lowered. On CUDA, an optimizer that is not fused takes its step in any case. Such weights are
    never saved, as `DivergenceGuard` ends the run before the next checkpoint.

    Parameters
    ----------
    clip_norm
        Largest 2-norm over all gradients, or None.

    Returns
    -------
    0-d float32 on the device: the norm before clipping, of the unscaled gradients.
    """
    if scaler is not None:
        scaler.unscale_(optimizer)
    gradients = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
    norm = torch.nn.utils.get_total_norm(gradients)
    divisor = None if clip_norm is None else (norm / clip_norm).clamp(min=1.0)
    fused = getattr(optimizer, "_step_supports_amp_scaling", False) and norm.device.type != "mps"
    if scaler is None and fused:  # torch's own GradScaler also passes the divisor and "do not step" like this
        optimizer.grad_scale = None if divisor is None else divisor.float()
        optimizer.found_inf = (~norm.isfinite()).to(torch.float32)
        try:
            optimizer.step()
        finally:
            optimizer.grad_scale = optimizer.found_inf = None
    else:
        if divisor is not None:
            torch._foreach_div_(gradients, divisor)
        if scaler is not None:
            scaler.step(optimizer)
            scaler.update()
        elif norm.device.type == "cuda" or norm.isfinite():  # on CUDA, looking would make the host wait
            optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return norm


def build_schedule(config: CosineConfig | PolyConfig | ConstantConfig | OneCycleConfig) -> Schedule:
    """Rise over the first part of the run, then follow the configured curve over the rest of it."""
    rise = config.rise if isinstance(config, OneCycleConfig) else config.warmup

    def factor(progress: float) -> float:
        if progress < rise:
            if isinstance(config, OneCycleConfig):
                return _cosine(config.start, 1.0, progress / rise)
            return WARMUP_START + (1.0 - WARMUP_START) * progress / rise
        done = (min(progress, 1.0) - rise) / (1.0 - rise)
        if isinstance(config, CosineConfig | OneCycleConfig):
            return _cosine(1.0, config.final, done)
        return (1.0 - done) ** config.power if isinstance(config, PolyConfig) else 1.0

    return factor


def _cosine(start: float, end: float, done: float) -> float:
    return end + (start - end) * 0.5 * (1.0 + math.cos(math.pi * done))


def find_encoder(model: nn.Module) -> nn.Module | None:
    """Find the encoder of a segmenter or of a network; None if it has no part of this name."""
    encoder = getattr(getattr(model, "network", model), "encoder", None)
    return encoder if isinstance(encoder, nn.Module) else None


def freeze(model: nn.Module, config: TrainingConfig, *, step: int) -> None:
    """Keep the encoder fixed in the first steps, and the chosen running statistics throughout.

    Parameters
    ----------
    model
        In training mode. Code that switches it to evaluation mode must restore the mode of each module.
    config
        Supplies `freeze_encoder` and `freeze_norm`.
    step
        The step that comes next, counted from 0.
    """
    encoder = find_encoder(model)
    if encoder is not None and config.freeze_encoder:
        learns = step >= config.freeze_encoder
        encoder.requires_grad_(learns).train(learns)
    frozen = {"all": model, "encoder": encoder}.get(str(config.freeze_norm))
    for module in () if frozen is None else frozen.modules():
        if isinstance(module, _BatchNorm):
            module.eval()
