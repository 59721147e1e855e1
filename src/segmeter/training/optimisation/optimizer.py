"""model -> optimizer; gradients -> clipped gradients, without asking the device for a number."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, AdamW, Optimizer

from segmeter.training.config import AdamWConfig, SgdConfig
from segmeter.training.optimisation.freezing import encoder_parameters

# One fused kernel per group: on two CPU cores, for the 14 million weights of a U-Net ResNet-18, AdamW takes 33 ms on
# one thread, against 70 ms with foreach and 82 ms with a loop.


def build_adamw(config: AdamWConfig, *, model: nn.Module) -> AdamW:
    groups = parameter_groups(model, config.weight_decay, encoder_lr=config.encoder_lr)
    return AdamW(groups, lr=config.lr, betas=(config.beta1, config.beta2), eps=config.eps, fused=True)


def build_sgd(config: SgdConfig, *, model: nn.Module) -> SGD:
    groups = parameter_groups(model, config.weight_decay, encoder_lr=config.encoder_lr)
    return SGD(groups, lr=config.lr, momentum=config.momentum, nesterov=config.nesterov, fused=True)


def parameter_groups(model: nn.Module, weight_decay: float, *, encoder_lr: float = 1.0) -> list[dict[str, Any]]:
    """Split the trainable parameters: kernels decay, norms and biases (fewer than two axes) do not.

    Where `encoder_lr` is not 1, the encoder's are apart too, with it as their `lr_factor`.
    """
    encoder = {id(parameter) for parameter in encoder_parameters(model)} if encoder_lr != 1 else set()
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [
        {
            "params": [p for p in trainable if (id(p) in encoder) == inside and (p.ndim > 1) == decays],
            "weight_decay": weight_decay if decays else 0.0,
            "lr_factor": encoder_lr if inside else 1.0,
        }
        for inside in (False, True)
        for decays in (True, False)
    ]
    return [group for group in groups if group["params"]]


def set_lr(optimizer: Optimizer, lr: float) -> None:
    """Give every group of parameters this learning rate, times its factor where it has one."""
    for group in optimizer.param_groups:
        group["lr"] = lr * group.get("lr_factor", 1.0)


def update_weights(optimizer: Optimizer, *, clip_norm: float | None) -> Tensor:
    """Clip the gradients and take one step.

    A fused optimizer divides while it reads the gradients, and leaves the weights as they are where the gradient is
    not finite; both are decided on the device. On an Apple GPU torch does not promise either, so the host decides.

    Parameters
    ----------
    clip_norm
        Largest 2-norm over all gradients, or None.

    Returns
    -------
    0-d float32 on the device: the norm before clipping.
    """
    gradients = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
    norm = torch.nn.utils.get_total_norm(gradients)
    divisor = None if clip_norm is None else (norm / clip_norm).clamp(min=1.0)
    if getattr(optimizer, "_step_supports_amp_scaling", False) and norm.device.type != "mps":
        _fused_step(optimizer, norm, divisor)
    else:
        if divisor is not None:
            torch._foreach_div_(gradients, divisor)
        if norm.device.type == "cuda" or norm.isfinite():  # only on CUDA would the host lose time by looking
            optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return norm


def _fused_step(optimizer: Any, norm: Tensor, divisor: Tensor | None) -> None:
    """Use the way by which torch's own GradScaler hands a divisor and a "do not step" to fused optimizers."""
    optimizer.grad_scale = None if divisor is None else divisor.float()
    optimizer.found_inf = (~norm.isfinite()).to(torch.float32)
    try:
        optimizer.step()
    finally:
        optimizer.grad_scale = optimizer.found_inf = None
