"""Checks the focal loss's options, and defines the loss in plain torch, for soft targets too and on any device.

Autograd differentiates it, and the other backends are compared with it. Letters: B batch, K channels, N... the spatial
axes.
"""

from typing import Any, NamedTuple, get_args

import torch
from torch.nn.functional import cross_entropy, logsigmoid

from segmeter.checks import collecting, real_number, real_numbers, require_name, whole_number
from segmeter.classes import TASKS, Task
from segmeter.losses.config import Backend, Normalizer
from segmeter.losses.targets import is_class, one_hot, read_labels, valid_mask, widened, widest_float

LEAST_Q = 1e-30  # the slope of q^gamma is infinite at 0 where gamma < 1


class FocalOptions(NamedTuple):
    """The options of the focal loss, as `focal_loss` names them. Once checked, `class_weights` is a tensor."""

    task: Task
    gamma: float = 2.0
    alpha: float | None = None
    class_weights: Any = None
    ignore_index: int | None = None
    label_smoothing: float = 0.0
    reduction: str = "mean"
    normalizer: str | float = "valid"
    backend: str = "auto"

    @property
    def softmax(self) -> bool:
        """Whether the classes share a softmax; otherwise each channel has a sigmoid."""
        return self.task == "multiclass"

    @property
    def sides(self) -> tuple[float, float]:
        """The weights of target 0 and of target 1."""
        return (1.0, 1.0) if self.alpha is None else (1.0 - self.alpha, float(self.alpha))


def check_focal_options(where: str, options: FocalOptions) -> FocalOptions:
    """Check the options of `focal_loss`, and make them plain numbers.

    Raises
    ------
    ConfigError
        It names every option that is out of range or does not go with the task.
    InputError
        The task is unknown, or an option is not a number.
    """
    require_name(where, "task", options.task, TASKS)
    options = options._replace(
        gamma=real_number(where, "gamma", options.gamma),
        label_smoothing=real_number(where, "label_smoothing", options.label_smoothing),
    )
    if options.ignore_index is not None:
        options = options._replace(ignore_index=whole_number(where, "ignore_index", options.ignore_index))
    alpha, weights, normalizer = options.alpha, options.class_weights, options.normalizer
    with collecting(where) as problems:
        problems.one_of("reduction", options.reduction, ("mean", "sum", "none"))
        problems.one_of("backend", options.backend, get_args(Backend))
        problems.in_range("gamma", options.gamma, 0)
        problems.in_range("label_smoothing", options.label_smoothing, 0, 1)
        problems.in_range("alpha", alpha, 0, 1)
        fits, remedy = alpha is None or not options.softmax, "Use class_weights."
        problems.expect(fits, "alpha", "to be None for multiclass", alpha, remedy)
        if weights is not None:  # dense and float32, as the kernels read them
            if not isinstance(weights, torch.Tensor):
                weights = real_numbers(where, "class_weights", weights)
            weights = torch.as_tensor(weights, dtype=torch.float32).contiguous()
            options = options._replace(class_weights=weights)
            rule = f"to be None for {options.task}"
            problems.expect(options.softmax, "class_weights", rule, tuple(weights.shape), "Use alpha.")
            if weights.device.type == "cpu" and not torch.compiler.is_compiling():  # elsewhere reading them would wait
                ok = weights.ndim == 1 and bool((weights.isfinite() & (weights >= 0)).all()) and bool(weights.any())
                rule = "to be (K,), finite and >= 0, one of them > 0"
                problems.expect(ok, "class_weights", rule, weights.tolist())
        if isinstance(normalizer, str):  # a softmax has no elements of target 1 for "positives" to count
            names = ("valid", "elements") if options.softmax else get_args(Normalizer)
            problems.one_of("normalizer", normalizer, names)
        else:
            problems.in_range("normalizer", real_number(where, "normalizer", normalizer), 0, above=True)
    return options


def count_normalizer(target: torch.Tensor, options: FocalOptions) -> torch.Tensor:
    """Return the divisor of `focal_loss`, from the target alone: 0-d of the widest float, and 0 if it is a given
    number.
    """
    wide, normalizer, weights = widest_float(target.device), options.normalizer, options.class_weights
    if not isinstance(normalizer, str):
        return torch.zeros((), dtype=wide, device=target.device)
    soft = target.is_floating_point()
    if normalizer == "positives":
        return (target if soft else target == 1).sum(dtype=wide)
    elements = target[:, 0] if soft and options.task == "multiclass" else target
    if normalizer == "elements":
        return torch.full((), elements.numel(), dtype=wide, device=target.device)
    valid = valid_mask(elements, options.ignore_index)
    if weights is None or soft:
        return valid.sum(dtype=wide)
    valid = valid & is_class(elements, len(weights))  # the loss refuses other labels
    return torch.where(valid, weights.to(wide)[torch.where(valid, elements, 0).long()], 0).sum()


def forward_sums(
    logits: torch.Tensor, target: torch.Tensor, options: FocalOptions
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Sum ``-t_k w_k (1 - p_k)^gamma log p_k`` over classes k and counted elements.

    Parameters
    ----------
    logits : (B, K, N...), floating
    target
        Labels (B, N...) for softmax and (B, K, N...) for sigmoid, or floating probabilities of the logits' shape.
    options
        Checked, with class weights on the device of the logits.

    Returns
    -------
    The sum, 0-d, or one loss per element with ``reduction="none"``; the summed class weight (softmax) or the number
    (sigmoid) of the valid elements; and the number, int64, of labels that are neither a class nor ignore_index and of
    soft values outside 0 to 1. Floats are float32, or float64 for float64 logits.
    """
    soft, weights, smoothing = target.is_floating_point(), options.class_weights, options.label_smoothing
    classes, counted, bad = read_labels(logits, target, softmax=options.softmax, ignore_index=options.ignore_index)
    # masked before anything else: 0 times the gradient of a NaN logit would be NaN
    x = widened(torch.where(counted.unsqueeze(1) if options.softmax else counted, logits, 0))
    class_weights = torch.ones(logits.shape[1], device=x.device) if weights is None else weights
    class_weights = class_weights.to(x.dtype)
    if not options.softmax:
        hot = (target if soft else classes).to(x.dtype) * (1 - smoothing) + smoothing / 2
        up, down = _modulated(-logsigmoid(x), options.gamma), _modulated(-logsigmoid(-x), options.gamma)
        negative, positive = options.sides
        losses = positive * hot * up + negative * (1 - hot) * down
    elif soft or smoothing:
        hot = (target if soft else one_hot(classes, x)).to(x.dtype)
        mixed = (hot * (1 - smoothing) + smoothing / x.shape[1]) * class_weights.view(1, -1, *[1] * (x.ndim - 2))
        losses = (mixed * _modulated(-x.log_softmax(1), options.gamma)).sum(1)
    else:
        losses = class_weights[classes] * _modulated(cross_entropy(x, classes, reduction="none"), options.gamma)
    losses = torch.where(counted, losses, 0)
    weighted = options.softmax and not soft
    weight = torch.where(counted, class_weights[classes], 0).sum() if weighted else counted.sum().to(x.dtype)
    return losses if options.reduction == "none" else losses.sum(), weight, bad.sum()


def _modulated(nll: torch.Tensor, gamma: float) -> torch.Tensor:
    """Multiply -log p by (1 - p)^gamma."""
    nll = nll.clamp(max=torch.finfo(nll.dtype).max / 64)  # 0 * inf would be NaN; 64 leaves room for gamma
    return nll if gamma == 0 else torch.expm1(-nll).neg().clamp(min=LEAST_Q) ** gamma * nll
