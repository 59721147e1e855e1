"""Scores of all batches in a training loop, as a torchmetrics `Metric`; needs torchmetrics."""

from typing import Any

import torch
from torchmetrics import Metric

from segmeter.api.adapters import count_batch, score_counts
from segmeter.bridge.arrays import to_numpy, to_torch
from segmeter.classes import ClassSpec


class SegmentationMetric(Metric):
    """All overlap scores over every batch since the last reset, from one int64 matrix.

    Integers add up exactly, so ranks, batches and their order change no digit. The scores are those of
    `segmeter.evaluate` over the data set.

    Parameters
    ----------
    spec
        The classes, the task, and the ignored value.
    options
        Options of `torchmetrics.Metric`.

    Examples
    --------
    >>> spec = ClassSpec(task="binary", names=("rest", "cell"), colours=((0, 0, 0), (255, 0, 0)))
    >>> metric = SegmentationMetric(spec)
    >>> metric.update(torch.tensor([[[1, 1, 0]]]), torch.tensor([[[1, 0, 0]]]))
    >>> metric.compute()["iou/cell"]
    tensor(0.5000, dtype=torch.float64)
    """

    is_differentiable = False
    higher_is_better = True
    full_state_update = True  # a call counts its batch twice, but a refused batch does not lose the others

    counts: torch.Tensor

    def __init__(self, spec: ClassSpec, **options: Any) -> None:
        super().__init__(**options)
        self.spec = spec
        self.add_state("counts", default=torch.zeros(spec.counts_shape, dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, preds: torch.Tensor, target: torch.Tensor) -> None:
        """Count a batch.

        Parameters
        ----------
        preds, target : (B, ...), for multilabel (B, K, ...), integer or bool
            Decided classes, never logits, and their reference; for a binary task also (B, 1, ...).

        Raises
        ------
        InputError
            The tensors have other shapes or dtypes, or hold a value that is no class.
        """
        counts = count_batch("SegmentationMetric", preds, target, self.spec).sum(axis=0)
        self.counts += to_torch(counts).to(self.counts.device)

    def compute(self) -> dict[str, torch.Tensor]:
        """Return every aggregate, and IoU and Dice of each class as "iou/car", float64; NaN is undefined."""
        scores = score_counts(to_numpy(self.counts), self.spec)
        return {name: torch.tensor(score, dtype=torch.float64) for name, score in scores.items()}
