"""logits, target -> focal loss: the public door, with one meaning whatever the backend.

Letters: B batch, K classes, N... the spatial axes (H, W).
"""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from segmeter.checks import collecting, expected
from segmeter.errors import InputError
from segmeter.losses.backends.choose import compute_sums
from segmeter.losses.backends.terms import Sums, Terms
from segmeter.losses.build import resolve_weights
from segmeter.losses.config import Backend, CrossEntropyConfig, FocalConfig, Normalizer
from segmeter.losses.refusals import check_options, check_tensors, refuse_bad_labels
from segmeter.vocabulary import ClassSpec, Task

Reduction = Literal["mean", "sum", "none"]
ALPHA = "Use class_weights, one per class."
Weights = Sequence[float] | torch.Tensor | None


class FocalLoss(nn.Module):
    """`focal_loss` with its options fixed; they are named and checked as there.

    On a GPU a label outside the classes can't be refused without waiting for the device: the loss is NaN then, and the
    buffer ``bad_labels`` counts such labels until `check_labels` reads it.

    Examples
    --------
    >>> loss = FocalLoss("multiclass", gamma=2.0, ignore_index=255)
    >>> logits = torch.tensor([[[[2.0]], [[0.0]]]], requires_grad=True)
    >>> round(float(loss(logits, torch.tensor([[[0]]], dtype=torch.uint8)).detach()), 6)
    0.001804
    """

    class_weights: torch.Tensor | None
    bad_labels: torch.Tensor

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
    ) -> None:
        super().__init__()
        weights = None if class_weights is None else torch.as_tensor(class_weights, dtype=torch.float32)
        self.options: dict[str, Any] = {
            "task": task,
            "gamma": gamma,
            "alpha": alpha,
            "ignore_index": ignore_index,
            "label_smoothing": label_smoothing,
            "reduction": reduction,
            "normalizer": normalizer,
            "backend": backend,
        }
        check_options("focal_loss", **self.options, class_weights=weights)
        self.register_buffer("class_weights", weights, persistent=False)
        self.register_buffer("bad_labels", torch.zeros((), dtype=torch.int64), persistent=False)

    def forward(self, logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        loss, bad = _compute(logits, target, class_weights=self.class_weights, **self.options)
        if self.bad_labels.device == bad.device:
            self.bad_labels += bad
        return loss

    def check_labels(self) -> None:
        """Raise InputError where a target since the last call had a label that is no class; waits for the device."""
        count = int(self.bad_labels)
        self.bad_labels.zero_()
        if count:
            rule = f"to hold classes or ignore_index={self.options['ignore_index']} only"
            remedy = "`segmeter check` names the files."
            raise InputError(expected("FocalLoss", "target", rule, f"{count} other labels", remedy))

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={value!r}" for name, value in self.options.items())


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
    target : (B, N...), or (B, K, N...) for multilabel; uint8, int16, int32 or int64
        Classes 0 to K - 1, or 0 and 1 for binary and multilabel. Or soft: floating probabilities of those shapes,
        (B, K, N...) for multiclass; the loss is then the mixture ``sum_k t_k FL(k)``.
    task
        "binary", "multiclass" or "multilabel".
    gamma
        Focusing, >= 0 and finite.
    alpha
        Weight of target 1 in 0 to 1; target 0 weighs 1 - alpha. None weighs both 1. Binary and multilabel.
    class_weights : (K,)
        Weight of each class, >= 0. Multiclass.
    ignore_index
        The label of pixels that count nowhere: no loss, gradient exactly 0 even where their logits are NaN, not in the
        mean. Not with a soft target.
    label_smoothing
        Share e of the target that is spread evenly over the classes (over 0 and 1 for a sigmoid): the mixture again.
    reduction
        "mean" (the sum divided by the normaliser), "sum", or "none" (one value per element of the hard target, 0 where
        it is ignored).
    normalizer
        "valid": the summed weights of the valid pixels (multiclass; as in torch's cross_entropy) or their number
        (otherwise, and for soft targets). "elements": the number of elements, ignored ones too. "positives": the number
        of valid elements with target 1, at least 1 (Lin et al.; not for multiclass). Or a number > 0.
    backend
        "auto" or a forced one: "reference", "closed", "compiled" (CPU) or "triton" (CUDA). They agree to rounding.

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
    weights = None
    if class_weights is not None:
        weights = torch.as_tensor(class_weights, dtype=torch.float32, device=logits.device)
    options: dict[str, Any] = {
        "task": task,
        "gamma": gamma,
        "alpha": alpha,
        "class_weights": weights,
        "ignore_index": ignore_index,
        "label_smoothing": label_smoothing,
        "reduction": reduction,
        "normalizer": normalizer,
        "backend": backend,
    }
    check_options("focal_loss", **options)
    return _compute(logits, target, **options)[0]


def check_labels(loss: nn.Module) -> None:
    """Call `FocalLoss.check_labels` of a loss and of its parts: what to do when the loss value read was NaN.

    Raises
    ------
    InputError
        A target had labels that are no class; it says how many.
    """
    for module in loss.modules():
        if isinstance(module, FocalLoss):
            module.check_labels()


def build_focal(config: FocalConfig, *, spec: ClassSpec, class_counts: npt.NDArray[np.int64] | None) -> FocalLoss:
    """Build the loss that the configuration describes."""
    with collecting("loss") as problems:
        alone = spec.task == "multiclass"
        problems.expect(not alone or config.alpha is None, "alpha", "to be null for multiclass", config.alpha, ALPHA)
        ok = not alone or config.normalizer != "positives"
        problems.expect(ok, "normalizer", "to be another one for multiclass", config.normalizer)
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
    )


def _compute(
    logits: torch.Tensor,
    target: torch.Tensor,
    *,
    task: Task,
    gamma: float,
    alpha: float | None,
    class_weights: torch.Tensor | None,
    ignore_index: int | None,
    label_smoothing: float,
    reduction: Reduction,
    normalizer: Normalizer | float,
    backend: Backend,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute the loss, and how many labels were bad."""
    check_tensors(logits, target, task, class_weights, ignore_index)
    terms = Terms(
        softmax=task == "multiclass",
        gamma=float(gamma),
        negative=1.0 if alpha is None else 1.0 - alpha,
        positive=1.0 if alpha is None else float(alpha),
        smoothing=float(label_smoothing),
        ignore_index=ignore_index,
        elementwise=reduction == "none",
    )
    aligned = target.unsqueeze(1) if task == "binary" else target
    sums = compute_sums(logits, aligned, class_weights, terms=terms, backend=backend)
    refuse_bad_labels(sums.bad, logits, aligned, terms=terms, where="focal_loss")
    loss = sums.total
    if reduction == "mean":
        loss = loss / _normaliser(sums, logits, aligned, terms=terms, normalizer=normalizer)
    loss = loss + torch.where(sums.bad > 0, torch.nan, 0.0).to(loss.dtype)
    return loss.squeeze(1) if reduction == "none" and task == "binary" else loss, sums.bad


def _normaliser(
    sums: Sums, logits: torch.Tensor, target: torch.Tensor, *, terms: Terms, normalizer: Normalizer | float
) -> torch.Tensor | float:
    if normalizer == "valid":
        return torch.where(sums.weight > 0, sums.weight, 1.0)
    if normalizer == "elements":
        return float(logits[:, 0].numel() if terms.softmax else logits.numel())
    if normalizer == "positives":
        positives = target.sum() if target.is_floating_point() else (target == 1).sum()
        return positives.clamp(min=1).to(sums.total.dtype)
    return float(normalizer)
