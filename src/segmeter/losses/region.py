"""logits, target -> Dice, Tversky and focal Tversky losses: overlaps of whole regions, from soft counts.

Letters: B batch, K channels, N... the spatial axes.
"""

from typing import Any, NamedTuple

import torch

from segmeter.checks import collecting
from segmeter.classes import ClassSpec, Task
from segmeter.losses.additive import AdditiveLoss, ImageLoss
from segmeter.losses.checks import check_common, check_numbers, check_tensors, refuse_bad_labels, whole_number
from segmeter.losses.config import DiceConfig, FocalTverskyConfig, Over, TverskyConfig
from segmeter.losses.targets import read_labels, valid_mask, widened, widest_float


class Regions(NamedTuple):
    """Probabilities and targets, (K, elements) or (B, K, elements), 0 where ignored; and the number of bad labels."""

    probs: torch.Tensor
    hot: torch.Tensor
    bad: torch.Tensor


class TverskyLoss(ImageLoss):
    """``(1 - T)^gamma`` averaged over the classes, with ``T = (TP + s) / (TP + alpha FP + beta FN + s)``.

    Soft counts TP = sum(p t), FP = sum(p (1 - t)), FN = sum((1 - p) t) over the valid pixels of all images together or
    of each image; p from a softmax for multiclass, background included, else from a sigmoid. A class that the target
    does not have there is left out of the mean, as its T says nothing; without any class the loss is 0.
    alpha = beta = 0.5 is Dice.

    The target may be soft: floating, 0 to 1, of the logits' shape for multiclass. The counts are the same sums; they
    are then least for a hard prediction, not for p = t.

    Parameters
    ----------
    task
        "binary", "multiclass" or "multilabel".
    alpha, beta
        Weight of a false positive and of a false negative, >= 0.
    gamma
        Exponent of each class's loss, > 0; 1 is the plain Tversky loss.
    smooth
        s above, in pixels, > 0.
    over
        "batch" counts over all images together; the loss of several batches is the mean of theirs. "sample" counts
        over each image, and is the mean over the images that have a class; it adds over batches.
    ignore_index
        The label of pixels that are excluded. Not with a soft target.
    name
        What its messages begin with.

    Raises
    ------
    ConfigError
        An option is out of range.
    InputError
        Shapes or dtypes do not fit, or labels are out of range (when called).

    References
    ----------
    Salehi et al. 2017, arXiv:1706.05721, equation 3; Abraham and Khan 2019, arXiv:1810.07842, equation 4.
    """

    def __init__(
        self,
        task: Task,
        *,
        alpha: float = 0.5,
        beta: float = 0.5,
        gamma: float = 1.0,
        smooth: float = 1.0,
        over: Over = "batch",
        ignore_index: int | None = None,
        name: str = "tversky_loss",
    ) -> None:
        super().__init__(name, adds=over == "sample")
        self.task: Task = task
        self.alpha, self.beta, self.gamma = alpha, beta, gamma
        self.smooth, self.ignore_index = smooth, whole_number(ignore_index)
        with collecting(name) as problems:
            check_common(problems, task, self.ignore_index)
            check_numbers(problems, alpha=alpha, beta=beta, gamma=gamma, smooth=smooth)
            problems.in_range("alpha", alpha, 0)
            problems.in_range("beta", beta, 0)
            problems.in_range("gamma", gamma, 0, above=True)
            problems.in_range("smooth", smooth, 0, above=True)
            problems.one_of("over", over, ("batch", "sample"))

    def denominators(self, target: torch.Tensor) -> torch.Tensor:
        """Give whether the batch has a class, or how many of its images have one, (1,) of the widest float."""
        if target.is_floating_point():
            present = target > 0
        else:
            present = valid_mask(target, self.ignore_index) if self.task == "multiclass" else target == 1
        return count_images(present, each=self.adds)

    def losses(self, logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Give the loss of the batch, 0-d, or of each image, (B,)."""
        regions = self._split(logits, target)
        hits = (regions.probs * regions.hot).sum(-1)
        predicted, present = regions.probs.sum(-1), regions.hot.sum(-1)
        whole = hits + self.alpha * (predicted - hits) + self.beta * (present - hits)
        losses = 1 - (hits + self.smooth) / (whole + self.smooth)
        if self.gamma != 1:
            # The slope of x^0.75 is infinite at 0, which a perfect class reaches.
            losses = losses.clamp(min=torch.finfo(losses.dtype).eps) ** self.gamma
        used = present > 0
        loss = torch.where(used, losses, 0).sum(-1) / used.sum(-1).clamp(min=1)
        return loss + torch.where(regions.bad > 0, torch.nan, 0.0).to(loss.dtype)

    def _split(self, logits: torch.Tensor, target: torch.Tensor) -> Regions:
        regions = split_regions(
            self.name, logits, target, task=self.task, ignore_index=self.ignore_index, each=self.adds
        )
        self.note_bad_labels(regions.bad)
        return regions


def split_regions(
    where: str,
    logits: torch.Tensor,
    target: torch.Tensor,
    *,
    task: Task,
    ignore_index: int | None,
    each: bool,
    soft: bool = True,
) -> Regions:
    """Give probabilities and one-hot target, of `each` image or of all, with the elements on one last axis."""
    softmax = task == "multiclass"
    aligned = check_tensors(where, logits, target, task=task, ignore_index=ignore_index, soft=soft)
    labels = read_labels(logits, aligned, softmax=softmax, ignore_index=ignore_index)
    bad = labels.bad.sum()
    refuse_bad_labels(bad, logits, aligned, softmax=softmax, ignore_index=ignore_index, where=where)
    counted = labels.counted.unsqueeze(1) if softmax else labels.counted
    if aligned.is_floating_point():
        hot = aligned
    elif softmax:
        kinds = torch.arange(logits.shape[1], device=logits.device).view(1, -1, *[1] * (logits.ndim - 2))
        hot = (labels.classes.unsqueeze(1) == kinds) & counted
    else:
        hot = labels.classes == 1
    # Masked before the softmax too: 0 times the gradient of a NaN logit would be NaN.
    x = widened(torch.where(counted, logits, 0))
    probs = (x.softmax(1) if softmax else x.sigmoid()) * counted
    return Regions(flatten_elements(probs, each=each), flatten_elements(hot.to(x.dtype), each=each), bad)


def flatten_elements(values: torch.Tensor, *, each: bool) -> torch.Tensor:
    """Give (B, K, N...) as (B, K, elements) of each image, or as (K, elements) of all."""
    return values.flatten(2) if each else values.transpose(0, 1).flatten(1)


def count_images(present: torch.Tensor, *, each: bool) -> torch.Tensor:
    """Count the images that have something, (1,) of the widest float; not `each` counts all of them as one."""
    per_image = present.flatten(1).any(1)
    return (per_image.sum() if each else per_image.any()).to(widest_float(present.device)).view(1)


def build_dice(config: DiceConfig, *, spec: ClassSpec, class_counts: Any = None) -> AdditiveLoss:
    """Build soft Dice."""
    return TverskyLoss(
        spec.task, smooth=config.smooth, over=config.over, ignore_index=spec.ignore_index, name="dice_loss"
    )


def build_tversky(config: TverskyConfig, *, spec: ClassSpec, class_counts: Any = None) -> AdditiveLoss:
    """Build the Tversky loss."""
    return TverskyLoss(
        spec.task,
        alpha=config.alpha,
        beta=config.beta,
        smooth=config.smooth,
        over=config.over,
        ignore_index=spec.ignore_index,
    )


def build_focal_tversky(config: FocalTverskyConfig, *, spec: ClassSpec, class_counts: Any = None) -> AdditiveLoss:
    """Build the focal Tversky loss."""
    return TverskyLoss(
        spec.task,
        alpha=config.alpha,
        beta=config.beta,
        gamma=config.gamma,
        smooth=config.smooth,
        over=config.over,
        ignore_index=spec.ignore_index,
        name="focal_tversky_loss",
    )
