"""Offers the focal loss to users: checks its tensors, chooses a backend, and divides by the normaliser.

The definition is in `focal_torch`, and all backends compute the same loss.

Letters: B batch, K classes, N... the spatial axes (H, W).
"""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch

from segmeter.bridge.argmax import MOST_CHANNELS, has_triton
from segmeter.checks import expected
from segmeter.classes import ClassSpec, Task
from segmeter.errors import InputError
from segmeter.losses import focal_torch
from segmeter.losses.additive import AdditiveLoss
from segmeter.losses.config import Backend, CrossEntropyConfig, FocalConfig, Normalizer, resolve_weights
from segmeter.losses.focal_torch import FocalOptions, check_focal_options, count_normalizer
from segmeter.losses.targets import LABEL_DTYPES, check_tensors, refuse_bad_labels, widened

Reduction = Literal["mean", "sum", "none"]
Weights = Sequence[float] | torch.Tensor | None

# Loading the kernels takes longer than the few milliseconds that fewer logits take.
WORTH_LOADING = 1 << 16


class FocalLoss(AdditiveLoss):
    """`focal_loss` with fixed options, which have the same names and checks.

    Examples
    --------
    >>> loss = FocalLoss("multiclass", gamma=2.0, ignore_index=255)
    >>> logits = torch.tensor([[[[2.0]], [[0.0]]]], requires_grad=True)
    >>> round(float(loss(logits, torch.tensor([[[0]]], dtype=torch.uint8)).detach()), 6)
    0.001804
    """

    class_weights: torch.Tensor | None

    def __init__(
        self,
        task: Task,
        *,
        gamma: float = 2.0,
        alpha: float | None = None,
        class_weights: Weights = None,
        ignore_index: int | None = None,
        label_smoothing: float = 0.0,
        reduction: Reduction = "mean",
        normalizer: Normalizer | float = "valid",
        backend: Backend = "auto",
        name: str = "focal_loss",
    ) -> None:
        super().__init__(name, is_additive_over_pixels=True)
        arguments = (task, gamma, alpha, class_weights, ignore_index, label_smoothing, reduction, normalizer, backend)
        self.options = check_focal_options(name, FocalOptions(*arguments))
        self.register_buffer("class_weights", self.options.class_weights, persistent=False)

    def forward(self, logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        loss, bad = _compute(self.name, logits, target, self._device_options())
        return self.mark(loss, bad)

    def sums(self, logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Sum over the elements, (1,), and divide only by a normaliser that is a number."""
        total, bad = _compute(self.name, logits, target, self._device_options()._replace(reduction="sum"))
        number = self.options.normalizer
        return self.mark(total if isinstance(number, str) else total / number, bad).view(1)

    def denominators(self, target: torch.Tensor) -> torch.Tensor:
        """Return the normaliser of this target, (1,) of the widest float; 0 for a number, which does not add up."""
        return count_normalizer(target, self._device_options()).view(1)

    def _device_options(self) -> FocalOptions:
        return self.options._replace(class_weights=self.class_weights)


def focal_loss(
    logits: torch.Tensor,
    target: torch.Tensor,
    *,
    task: Task,
    gamma: float = 2.0,
    alpha: float | None = None,
    class_weights: Weights = None,
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    reduction: Reduction = "mean",
    normalizer: Normalizer | float = "valid",
    backend: Backend = "auto",
) -> torch.Tensor:
    """Focal loss: cross-entropy in which each pixel counts by how wrong it still is, ``(1 - p)^gamma``.

    With p the probability that the logits give to the target: ``-alpha_t (1 - p)^gamma log p`` with a sigmoid for
    binary and multilabel, ``-w_y (1 - p)^gamma log p`` with a softmax for multiclass. At gamma 0 it equals binary
    cross-entropy and cross-entropy, whatever the other options. Computed in float32 whatever autocast says, finite in
    value and gradient for finite logits.

    Parameters
    ----------
    logits : (B, K, N...), floating
        Raw scores, one channel for binary. Any memory layout.
    target : (B, N...), for binary also (B, 1, N...), for multilabel (B, K, N...); uint8, int16, int32 or int64
        Classes 0 to K - 1, or 0 and 1 (or bool) for binary and multilabel. Or soft: floating probabilities of those
        shapes, (B, K, N...) for multiclass; the loss is then the mixture ``sum_k t_k FL(k)``.
    task
        "binary", "multiclass" or "multilabel".
    gamma
        Focusing, >= 0 and finite.
    alpha
        Weight of target 1 in 0 to 1; target 0 weighs 1 - alpha. None weighs both 1. Binary and multilabel.
    class_weights : (K,)
        Weight of each class, >= 0. Multiclass.
    ignore_index
        The label of pixels that are excluded: no loss, gradient exactly 0 even where their logits are NaN, not in the
        mean. Not with a soft target.
    label_smoothing
        Share e of the target that is spread evenly over the classes (over 0 and 1 for a sigmoid): the mixture again.
    reduction
        "mean" (the sum divided by the normaliser), "sum", or "none" (one value per element of the hard target, 0 where
        it is ignored).
    normalizer
        "valid": the summed weights of the valid pixels (multiclass; as in torch's cross_entropy) or their number
        (otherwise, and for soft targets). "elements": the number of elements, ignored ones too. "positives": the number
        of valid elements with target 1, or the sum of a soft target (Lin et al.; not for multiclass). Where one of
        these is 0 the sum is left as it is. Or a number > 0.
    backend
        "auto" or a forced one: "torch", "numba" (CPU) or "triton" (CUDA). They agree to rounding, but for "torch" with
        a softmax, which loses digits where p is within 1e-5 of 1. torch.compile always takes "torch". Only "torch"
        takes label smoothing and ``reduction="none"``, and has a second derivative. "reference" is an older name of it.

    Returns
    -------
    0-d float32 (float64 for float64 logits). 0 with a connected zero gradient when every pixel is ignored. A target
    with a label outside the classes is refused on the CPU; on a GPU, and under torch.compile, its loss is NaN.

    Raises
    ------
    ConfigError
        An option is out of range or does not go with the task.
    InputError
        Shapes or dtypes do not fit, or labels are out of range.

    References
    ----------
    Lin et al. 2017, arXiv:1708.02002, equations 4 and 5, and section 4.1 for the normaliser.

    Examples
    --------
    >>> logits = torch.tensor([[[[2.0]], [[0.0]]]])
    >>> target = torch.tensor([[[0]]])
    >>> value = focal_loss(logits, target, task="multiclass", gamma=2.0)
    >>> p = torch.softmax(logits, 1)[0, 0, 0, 0]
    >>> torch.testing.assert_close(value, -((1 - p) ** 2) * p.log())
    """
    arguments = (task, gamma, alpha, class_weights, ignore_index, label_smoothing, reduction, normalizer, backend)
    options = check_focal_options("focal_loss", FocalOptions(*arguments))
    if options.class_weights is not None and isinstance(logits, torch.Tensor):
        options = options._replace(class_weights=options.class_weights.to(logits.device))
    loss, bad = _compute("focal_loss", logits, target, options)
    return loss + torch.where(bad > 0, torch.nan, 0.0).to(loss.dtype)


def build_focal(
    config: FocalConfig | CrossEntropyConfig, *, spec: ClassSpec, class_counts: npt.NDArray[np.int64] | None
) -> FocalLoss:
    """Build the focal loss, or cross-entropy, which is the focal loss at gamma 0."""
    options: dict[str, Any] = {"gamma": 0.0, **config.model_dump(exclude={"name", "class_weights"})}
    weights = resolve_weights(config, spec, class_counts)
    name = f"{config.name}_loss"
    return FocalLoss(spec.task, **options, class_weights=weights, ignore_index=spec.ignore_index, name=name)


def _compute(
    where: str, logits: torch.Tensor, target: torch.Tensor, options: FocalOptions
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute the loss and the number of bad labels."""
    task, weights, ignore_index = options.task, options.class_weights, options.ignore_index
    aligned = check_tensors(where, logits, target, task=task, ignore_index=ignore_index, class_weights=weights)
    backend = choose_backend(logits, aligned, options)
    if backend == "numba":
        from segmeter.losses import focal_numba  # loading a compiled backend takes a moment

        x = logits if logits.dtype == torch.bfloat16 else widened(logits)
        loss, weight, bad = _Fused.apply(x, aligned, options, focal_numba)
    elif backend == "triton":
        from segmeter.losses import focal_triton

        loss, weight, bad = _Fused.apply(logits, aligned, options, focal_triton)
    else:
        loss, weight, bad = focal_torch.forward_sums(logits, aligned, options)
    refuse_bad_labels(bad, logits, aligned, softmax=options.softmax, ignore_index=ignore_index, where=where)
    if options.reduction == "mean":
        number = options.normalizer
        if isinstance(number, str):
            divisor = weight if number == "valid" else count_normalizer(aligned, options).to(loss.dtype)
            loss = loss / torch.where(divisor > 0, divisor, 1.0)
        else:
            loss = loss / float(number)
    return loss.view(target.shape) if options.reduction == "none" and task == "binary" else loss, bad


def choose_backend(logits: torch.Tensor, target: torch.Tensor, options: FocalOptions) -> str:
    """Choose the backend by name; InputError if a forced one does not take such tensors.

    The compiled ones sum over hard labels, and read logits of at most 32 bits.
    """
    if torch.compiler.is_compiling():  # it fuses the definition into loops of its own
        return "torch"
    backend, device = options.backend, logits.device.type
    summed = options.reduction != "none" and not options.label_smoothing
    compilable = summed and target.dtype in LABEL_DTYPES and logits.dtype != torch.float64
    fits = compilable and device == "cuda" and logits.numel() > 0 and logits.shape[1] <= MOST_CHANNELS
    possible = {"numba": compilable and device == "cpu", "triton": fits and has_triton()}
    if backend == "auto":
        large = logits.numel() >= WORTH_LOADING
        return "triton" if possible["triton"] else "numba" if possible["numba"] and large else "torch"
    if not possible.get(backend, True):
        rule = "to be numba on a CPU or triton on CUDA, for logits up to 32 bits and integer labels, and only to sum"
        got = f"{backend!r} for {logits.dtype} {tuple(logits.shape)} logits on {device} and a {target.dtype} target"
        raise InputError(expected("focal_loss", "backend", rule, got, 'Use backend="auto".'))
    return backend


class _Fused(torch.autograd.Function):
    """Computes the sums and the closed-form gradient by a backend's two functions. Saves only logits and target."""

    @staticmethod
    def forward(
        ctx: Any, logits: torch.Tensor, target: torch.Tensor, options: FocalOptions, backend: Any
    ) -> tuple[torch.Tensor, ...]:
        ctx.save_for_backward(logits, target)
        ctx.options = options
        ctx.backend = backend
        total, weight, bad = backend.forward_sums(logits, target, options)
        ctx.mark_non_differentiable(weight, bad)
        return total, weight, bad

    @staticmethod
    def backward(ctx: Any, scale: torch.Tensor, *_: Any) -> tuple[torch.Tensor | None, ...]:
        logits, target = ctx.saved_tensors
        gradient = ctx.backend.gradient(logits, target, ctx.options, scale)
        if torch.is_grad_enabled():
            gradient = _NoSecondDerivative.apply(gradient, logits, scale)
        return gradient, None, None, None


class _NoSecondDerivative(torch.autograd.Function):
    """Refuses to differentiate the gradient: otherwise a gradient penalty would silently have no effect.

    torch's `once_differentiable` only looks at the incoming gradient, not at the logits.
    """

    @staticmethod
    def forward(ctx: Any, gradient: torch.Tensor, logits: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        return gradient.view_as(gradient)

    @staticmethod
    def backward(ctx: Any, *_: Any) -> tuple[None, ...]:
        raise InputError('focal_loss: the closed form has no second derivative. Pass backend="torch", which has.')
