"""logits, target -> focal loss: the public functions, with one meaning whatever the backend.

Letters: B batch, K classes, N... the spatial axes (H, W).
"""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch

from segmeter.checks import collecting
from segmeter.classes import ClassSpec, Task
from segmeter.losses.additive import AdditiveLoss
from segmeter.losses.build import resolve_weights
from segmeter.losses.checks import (
    check_focal_options,
    check_tensors,
    read_alpha,
    read_weights,
    refuse_bad_labels,
    whole_number,
)
from segmeter.losses.config import Backend, CrossEntropyConfig, FocalConfig, Normalizer
from segmeter.losses.focal.dispatch import compute_sums
from segmeter.losses.focal.params import FocalParams, LossSums
from segmeter.losses.targets import is_class, valid_mask, widest_float

Reduction = Literal["mean", "sum", "none"]
ALPHA = "Use class_weights, one per class."
Weights = Sequence[float] | torch.Tensor | None
Alpha = float | Sequence[float] | None


class FocalLoss(AdditiveLoss):
    """`focal_loss` with its options fixed; they are named and checked as there.

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
        alpha: Alpha = None,
        class_weights: Weights = None,
        ignore_index: int | None = None,
        label_smoothing: float = 0.0,
        reduction: Reduction = "mean",
        normalizer: Normalizer | float = "valid",
        backend: Backend = "auto",
        name: str = "focal_loss",
    ) -> None:
        super().__init__(name, adds_over_pixels=True)
        weights = read_weights(name, class_weights)
        self.options: dict[str, Any] = {
            "task": task,
            "gamma": gamma,
            "alpha": read_alpha(alpha),
            "ignore_index": whole_number(ignore_index),
            "label_smoothing": label_smoothing,
            "reduction": reduction,
            "normalizer": normalizer,
            "backend": backend,
        }
        check_focal_options(name, **self.options, class_weights=weights)
        self.register_buffer("class_weights", weights, persistent=False)

    def forward(self, logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return self._loss(logits, target)

    def sums(self, logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Give the sum over the elements, (1,), divided only by a normaliser that is a number."""
        total = self._loss(logits, target, reduction="sum")
        number = self.options["normalizer"]
        return (total if isinstance(number, str) else total / number).view(1)

    def denominators(self, target: torch.Tensor) -> torch.Tensor:
        """Give the normaliser of this target, (1,) of the widest float; 0 for a number, which does not add up."""
        softmax = self.options["task"] == "multiclass"
        return count_normaliser(
            target,
            self.class_weights,
            softmax=softmax,
            ignore_index=self.options["ignore_index"],
            normalizer=self.options["normalizer"],
        ).view(1)

    def _loss(self, logits: torch.Tensor, target: torch.Tensor, **changes: Any) -> torch.Tensor:
        options = {**self.options, **changes}
        loss, bad = _compute(self.name, logits, target, class_weights=self.class_weights, **options)
        self.note_bad_labels(bad)
        return loss

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={value!r}" for name, value in self.options.items())


def focal_loss(
    logits: torch.Tensor,
    target: torch.Tensor,
    *,
    task: Task,
    gamma: float = 2.0,
    alpha: Alpha = None,
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
        Weight of target 1 in 0 to 1; target 0 weighs 1 - alpha. None weighs both 1. Binary and multilabel. For binary
        also a pair: the weights of target 0 and of target 1, >= 0.
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
        "auto" or a forced one: "reference", "torch", "numba" (CPU) or "triton" (CUDA). They agree to rounding.

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
    weights = read_weights("focal_loss", class_weights)
    options: dict[str, Any] = {
        "task": task,
        "gamma": gamma,
        "alpha": read_alpha(alpha),
        "class_weights": weights,
        "ignore_index": whole_number(ignore_index),
        "label_smoothing": label_smoothing,
        "reduction": reduction,
        "normalizer": normalizer,
        "backend": backend,
    }
    check_focal_options("focal_loss", **options)
    if weights is not None and isinstance(logits, torch.Tensor):
        options["class_weights"] = weights.to(logits.device)
    return _compute("focal_loss", logits, target, **options)[0]


def build_focal(config: FocalConfig, *, spec: ClassSpec, class_counts: npt.NDArray[np.int64] | None) -> FocalLoss:
    """Build the loss that the configuration describes."""
    with collecting("loss") as problems:
        alone = spec.task == "multiclass"
        problems.expect(not alone or config.alpha is None, "alpha", "to be null for multiclass", config.alpha, ALPHA)
        ok = not alone or config.normalizer != "positives"
        problems.expect(ok, "normalizer", "to be valid, elements or a number for multiclass", config.normalizer)
    return FocalLoss(
        spec.task,
        gamma=config.gamma,
        alpha=config.alpha,
        class_weights=resolve_weights(config, spec, class_counts),
        ignore_index=spec.ignore_index,
        label_smoothing=config.label_smoothing,
        normalizer=config.normalizer,
        backend=config.backend,
    )


def build_cross_entropy(
    config: CrossEntropyConfig, *, spec: ClassSpec, class_counts: npt.NDArray[np.int64] | None
) -> FocalLoss:
    """Build cross-entropy: the focal loss at gamma 0."""
    return FocalLoss(
        spec.task,
        gamma=0.0,
        class_weights=resolve_weights(config, spec, class_counts),
        ignore_index=spec.ignore_index,
        label_smoothing=config.label_smoothing,
        name="cross_entropy_loss",
    )


def _compute(
    where: str,
    logits: torch.Tensor,
    target: torch.Tensor,
    *,
    task: Task,
    gamma: float,
    alpha: float | tuple[float, float] | None,
    class_weights: torch.Tensor | None,
    ignore_index: int | None,
    label_smoothing: float,
    reduction: Reduction,
    normalizer: Normalizer | float,
    backend: Backend,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute the loss, and how many labels were bad."""
    aligned = check_tensors(where, logits, target, task=task, ignore_index=ignore_index, class_weights=class_weights)
    negative, positive = alpha if isinstance(alpha, tuple) else (1.0, 1.0) if alpha is None else (1.0 - alpha, alpha)
    terms = FocalParams(
        softmax=task == "multiclass",
        gamma=float(gamma),
        negative=float(negative),
        positive=float(positive),
        smoothing=float(label_smoothing),
        ignore_index=ignore_index,
        elementwise=reduction == "none",
    )
    sums = compute_sums(logits, aligned, class_weights, terms=terms, backend=backend)
    refuse_bad_labels(sums.bad, logits, aligned, softmax=terms.softmax, ignore_index=ignore_index, where=where)
    loss = sums.total
    if reduction == "mean":
        loss = loss / _normaliser(sums, logits, aligned, terms=terms, normalizer=normalizer)
    loss = loss + torch.where(sums.bad > 0, torch.nan, 0.0).to(loss.dtype)
    return loss.view(target.shape) if reduction == "none" and task == "binary" else loss, sums.bad


def _normaliser(
    sums: LossSums, logits: torch.Tensor, target: torch.Tensor, *, terms: FocalParams, normalizer: Normalizer | float
) -> torch.Tensor | float:
    if normalizer == "valid":
        return torch.where(sums.weight > 0, sums.weight, 1.0)
    if normalizer == "elements":
        return float(logits[:, 0].numel() if terms.softmax else logits.numel())
    if normalizer == "positives":
        positives = target.sum() if target.is_floating_point() else (target == 1).sum()
        return torch.where(positives > 0, positives, 1).to(sums.total.dtype)
    return float(normalizer)


def count_normaliser(
    target: torch.Tensor,
    class_weights: torch.Tensor | None,
    *,
    softmax: bool,
    ignore_index: int | None,
    normalizer: Normalizer | float,
) -> torch.Tensor:
    """Give what `focal_loss` divides by, from the target alone: 0-d of the widest float, and 0 for a number."""
    wide = widest_float(target.device)
    if not isinstance(normalizer, str):
        return torch.zeros((), dtype=wide, device=target.device)
    soft = target.is_floating_point()
    if normalizer == "positives":
        return (target if soft else target == 1).sum(dtype=wide)
    elements = target[:, 0] if softmax and soft else target
    if normalizer == "elements":
        return torch.full((), elements.numel(), dtype=wide, device=target.device)
    valid = valid_mask(elements, ignore_index)
    if class_weights is None or soft:
        return valid.sum(dtype=wide)
    valid = valid & is_class(elements, len(class_weights))  # the loss refuses other labels
    return torch.where(valid, class_weights.to(wide)[torch.where(valid, elements, 0).long()], 0).sum()
