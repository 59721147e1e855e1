"""Computes losses over whole regions: Dice, Tversky and focal Tversky from soft counts, and the Lovasz loss.

Letters: B batch, K channels, N... the spatial axes.
"""

from typing import Any, get_args

import torch

from segmeter.checks import collecting, real_number, require_name, whole_number
from segmeter.classes import TASKS, ClassSpec, Task
from segmeter.losses.additive import AdditiveLoss
from segmeter.losses.config import DiceConfig, LovaszConfig, Over, TverskyConfig
from segmeter.losses.targets import (
    check_tensors,
    one_hot,
    read_labels,
    refuse_bad_labels,
    valid_mask,
    widened,
    widest_float,
)


class RegionLoss(AdditiveLoss):
    """A loss defined on the regions of a whole batch, or of each image with over="sample".

    A soft target is refused, as regions are sets of pixels.
    """

    def __init__(self, task: Task, over: Over, ignore_index: int | None, *, name: str) -> None:
        super().__init__(name, is_additive=over == "sample")
        require_name(name, "task", task, TASKS)
        require_name(name, "over", over, get_args(Over))
        self.task: Task = task
        self.ignore_index = None if ignore_index is None else whole_number(name, "ignore_index", ignore_index)

    def present(self, target: torch.Tensor) -> torch.Tensor:
        """Mask the elements that make the loss of their image count."""
        raise NotImplementedError

    def image_losses(
        self, logits: torch.Tensor, probs: torch.Tensor, hot: torch.Tensor, counted: torch.Tensor
    ) -> torch.Tensor:
        """Compute the loss of the batch, 0-d, or of each image, (B,).

        Elements are on the last axis, (K, elements), or (B, K, elements) of each image. Logits, probabilities and the
        target as 0 to 1 are 0 where they are not `counted`.
        """
        raise NotImplementedError

    def sums(self, logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Return the loss of the batch, or the summed losses of its images, (1,)."""
        softmax, ignore_index = self.task == "multiclass", self.ignore_index
        aligned = check_tensors(self.name, logits, target, task=self.task, ignore_index=ignore_index, soft=False)
        classes, counted, wrong = read_labels(logits, aligned, softmax=softmax, ignore_index=ignore_index)
        bad = wrong.sum()
        refuse_bad_labels(bad, logits, aligned, softmax=softmax, ignore_index=ignore_index, where=self.name)
        counted = counted.unsqueeze(1) if softmax else counted
        hot = one_hot(classes, logits) & counted if softmax else classes == 1
        # Masked before the softmax too: 0 times the gradient of a NaN logit would be NaN.
        x = widened(torch.where(counted, logits, 0))
        probs = (x.softmax(1) if softmax else x.sigmoid()) * counted
        maps = (x, probs, hot.to(x.dtype), counted)
        regions = [values.flatten(2) if self.is_additive else values.transpose(0, 1).flatten(1) for values in maps]
        return self.mark(self.image_losses(*regions), bad).sum().view(1)

    def denominators(self, target: torch.Tensor) -> torch.Tensor:
        """Return how many images count, or 1 or 0 for a batch that counts or not: (1,) of the widest float."""
        per_image = self.present(target).flatten(1).any(1)
        return (per_image.sum() if self.is_additive else per_image.any()).to(widest_float(target.device)).view(1)


class TverskyLoss(RegionLoss):
    """``(1 - T)^gamma`` averaged over the classes, with ``T = (TP + s) / (TP + alpha FP + beta FN + s)``.

    Soft counts TP = sum(p t), FP = sum(p (1 - t)), FN = sum((1 - p) t) over the valid pixels of all images together or
    of each image; p from a softmax for multiclass, background included, else from a sigmoid. A class that the
    target lacks is left out of the mean, as its T has no meaning; without any class the loss is 0.
    alpha = beta = 0.5 is Dice.

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
        The label of pixels that are excluded.
    name
        First word of its messages.

    Raises
    ------
    ConfigError
        A number is out of range.
    InputError
        `task` or `over` is unknown, or an option is not a number; when called: shapes or dtypes do not fit, or labels
        are out of range.

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
        super().__init__(task, over, ignore_index, name=name)
        numbers = {"alpha": alpha, "beta": beta, "gamma": gamma, "smooth": smooth}
        self.alpha, self.beta, self.gamma, self.smooth = (real_number(name, key, numbers[key]) for key in numbers)
        with collecting(name) as problems:
            for key, value in numbers.items():
                problems.in_range(key, value, 0, above=key in ("gamma", "smooth"))

    def present(self, target: torch.Tensor) -> torch.Tensor:
        """Mask the elements that have a class."""
        return valid_mask(target, self.ignore_index) if self.task == "multiclass" else target == 1

    def image_losses(
        self, logits: torch.Tensor, probs: torch.Tensor, hot: torch.Tensor, counted: torch.Tensor
    ) -> torch.Tensor:
        hits, predicted, present = (probs * hot).sum(-1), probs.sum(-1), hot.sum(-1)
        weighted = hits + self.alpha * (predicted - hits) + self.beta * (present - hits)
        losses = 1 - (hits + self.smooth) / (weighted + self.smooth)
        if self.gamma != 1:
            # The slope of x^0.75 is infinite at 0, which a perfect class reaches.
            losses = losses.clamp(min=torch.finfo(losses.dtype).eps) ** self.gamma
        used = present > 0
        return torch.where(used, losses, 0).sum(-1) / used.sum(-1).clamp(min=1)


class LovaszLoss(RegionLoss):
    """Lovasz-softmax for multiclass, Lovasz hinge per channel otherwise, averaged over the channels.

    Multiclass averages over the classes that the target has, and is 0 without any. Ignored pixels have error 0
    (softmax) or a hinge that is never active, and no target, so they move neither value nor gradient; nothing is
    indexed with a mask, so the shape never depends on the data.

    Parameters
    ----------
    task
        "binary", "multiclass" or "multilabel".
    over
        "batch" takes the pixels of all images together; the loss of several batches is the mean of theirs. "sample"
        takes those of each image, and is the mean over the images with a valid pixel; it adds over batches.
    ignore_index
        The label of pixels that are excluded.

    Raises
    ------
    InputError
        `task` or `over` is unknown; when called: shapes or dtypes do not fit, or labels are out of range.

    References
    ----------
    Berman et al. 2018, arXiv:1705.08790, equations 8, 9 and 11, and algorithm 1.
    """

    def __init__(self, task: Task, *, over: Over = "batch", ignore_index: int | None = None) -> None:
        super().__init__(task, over, ignore_index, name="lovasz_loss")

    def present(self, target: torch.Tensor) -> torch.Tensor:
        """Mask the valid elements."""
        return valid_mask(target, self.ignore_index)

    def image_losses(
        self, logits: torch.Tensor, probs: torch.Tensor, hot: torch.Tensor, counted: torch.Tensor
    ) -> torch.Tensor:
        if self.task == "multiclass":
            losses, used = _extend((hot - probs).abs(), hot), hot.any(-1)
            return torch.where(used, losses, 0).sum(-1) / used.sum(-1).clamp(min=1)
        margins = torch.where(counted, 1 - logits * (2 * hot - 1), -1)
        return _extend(margins, hot).mean(-1)


def _extend(errors: torch.Tensor, hot: torch.Tensor) -> torch.Tensor:
    """Compute the Lovasz extension of the Jaccard loss for each row: sorted errors, largest first, times its
    increments.
    """
    ordered, order = errors.sort(dim=-1, descending=True, stable=True)
    hits = hot.gather(-1, order)
    present = hits.sum(-1, keepdim=True)
    missed = present - hits.cumsum(-1)
    union = present + (1 - hits).cumsum(-1)
    # Without any target the union starts at 1, so it is never 0; the first increment is the first Jaccard itself.
    jaccard = 1 - missed / union
    steps = torch.diff(jaccard, dim=-1, prepend=torch.zeros_like(present))
    return (ordered.relu() * steps).sum(-1)


def build_region_loss(
    config: DiceConfig | TverskyConfig | LovaszConfig, *, spec: ClassSpec, class_counts: Any = None
) -> AdditiveLoss:
    """Build the Lovasz loss, or Dice, Tversky or focal Tversky, which differ only in their options."""
    options = config.model_dump(exclude={"name"}) | {"ignore_index": spec.ignore_index}
    if isinstance(config, LovaszConfig):
        return LovaszLoss(spec.task, **options)
    return TverskyLoss(spec.task, **options, name=f"{config.name}_loss")
