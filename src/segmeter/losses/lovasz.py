"""logits, target -> Lovasz loss: the convex stand-in for 1 - IoU, over all pixels of the batch."""

from typing import Any

import torch

from segmeter.checks import collecting
from segmeter.classes import ClassSpec, Task
from segmeter.losses.additive import AdditiveLoss, ImageLoss
from segmeter.losses.checks import check_common, check_tensors, refuse_bad_labels, whole_number
from segmeter.losses.config import LovaszConfig, Over
from segmeter.losses.region import count_images, flatten_elements, split_regions
from segmeter.losses.targets import read_labels, valid_mask, widened


class LovaszLoss(ImageLoss):
    """Lovasz-softmax for multiclass, Lovasz hinge per channel otherwise, averaged over the channels.

    Multiclass averages over the classes that the target has, and is 0 without any. Ignored pixels have error 0
    (softmax) or a hinge that is never active, and no target, so they move neither value nor gradient; nothing is
    indexed with a mask, so the shape never depends on the data. A soft target is refused: the loss is defined on sets.

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
    ConfigError
        An option is not known.
    InputError
        Shapes or dtypes do not fit, or labels are out of range (when called).

    References
    ----------
    Berman et al. 2018, arXiv:1705.08790, equations 8, 9 and 11, and algorithm 1.
    """

    def __init__(self, task: Task, *, over: Over = "batch", ignore_index: int | None = None) -> None:
        super().__init__("lovasz_loss", adds=over == "sample")
        self.task: Task = task
        self.ignore_index = whole_number(ignore_index)
        with collecting(self.name) as problems:
            check_common(problems, task, self.ignore_index)
            problems.one_of("over", over, ("batch", "sample"))

    def denominators(self, target: torch.Tensor) -> torch.Tensor:
        """Give whether the batch has a valid pixel, or how many of its images have one, (1,) of the widest float."""
        return count_images(valid_mask(target, self.ignore_index), each=self.adds)

    def losses(self, logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Give the loss of the batch, 0-d, or of each image, (B,)."""
        loss, bad = (self._softmax if self.task == "multiclass" else self._hinge)(logits, target)
        self.note_bad_labels(bad)
        return loss + torch.where(bad > 0, torch.nan, 0.0).to(loss.dtype)

    def _softmax(self, logits: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        options = {"task": self.task, "ignore_index": self.ignore_index, "each": self.adds, "soft": False}
        regions = split_regions(self.name, logits, target, **options)
        losses = _extend((regions.hot - regions.probs).abs(), regions.hot)
        used = regions.hot.amax(-1) > 0
        return torch.where(used, losses, 0).sum(-1) / used.sum(-1).clamp(min=1), regions.bad

    def _hinge(self, logits: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        aligned = check_tensors(self.name, logits, target, task=self.task, ignore_index=self.ignore_index, soft=False)
        labels = read_labels(logits, aligned, softmax=False, ignore_index=self.ignore_index)
        bad = labels.bad.sum()
        refuse_bad_labels(bad, logits, aligned, softmax=False, ignore_index=self.ignore_index, where=self.name)
        x = widened(torch.where(labels.counted, logits, 0))
        hot = (labels.classes == 1).to(x.dtype)
        margins = torch.where(labels.counted, 1 - x * (2 * hot - 1), -1)
        flat = [flatten_elements(values, each=self.adds) for values in (margins, hot)]
        return _extend(flat[0], flat[1]).mean(-1), bad


def build_lovasz(config: LovaszConfig, *, spec: ClassSpec, class_counts: Any = None) -> AdditiveLoss:
    """Build the Lovasz loss."""
    return LovaszLoss(spec.task, over=config.over, ignore_index=spec.ignore_index)


def _extend(errors: torch.Tensor, hot: torch.Tensor) -> torch.Tensor:
    """Give the Lovasz extension of the Jaccard loss for each row: errors in falling order, times its increments."""
    ordered, order = errors.sort(dim=-1, descending=True, stable=True)
    hits = hot.gather(-1, order)
    present = hits.sum(-1, keepdim=True)
    missed = present - hits.cumsum(-1)
    union = present + (1 - hits).cumsum(-1)
    # Without any target the union starts at 1, so it is never 0; the first increment is the first Jaccard itself.
    jaccard = 1 - missed / union
    steps = torch.diff(jaccard, dim=-1, prepend=torch.zeros_like(present))
    return (ordered.relu() * steps).sum(-1)
