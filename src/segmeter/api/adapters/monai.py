"""Scores of each case and of all cases in a MONAI loop, as a `CumulativeIterationMetric`; needs MONAI."""

from typing import Any

import torch
from monai.metrics.metric import CumulativeIterationMetric

from segmeter.api.adapters import count_batch, score_counts
from segmeter.bridge.arrays import to_numpy, to_torch
from segmeter.checks import expected
from segmeter.classes import ClassSpec
from segmeter.errors import InputError


class SegmentationMetric(CumulativeIterationMetric):
    """Counts of every case since the last reset, gathered over ranks by MONAI, and the scores of their sum.

    Parameters
    ----------
    spec
        The classes, the task, and the ignored value.
    """

    def __init__(self, spec: ClassSpec) -> None:
        super().__init__()
        self.spec = spec

    def _compute_tensor(self, y_pred: torch.Tensor, y: torch.Tensor | None = None, **_: Any) -> torch.Tensor:
        """Count (B, 1, ...) labels, or one channel per class as MONAI's transforms give them.

        In a binary task, one of the two may lack its channel.
        """
        if y is None:
            raise InputError(expected("SegmentationMetric", "y", "to be given", "None"))
        labels, target = self._labels("y_pred", y_pred, y), self._labels("y", y, y_pred)
        return to_torch(count_batch("SegmentationMetric", labels, target, self.spec))

    def aggregate(self, reduction: str = "dataset") -> dict[str, float]:
        """Score all cases together, or with "cases" score each one and take the mean of the defined values.

        Raises
        ------
        InputError
            Nothing was counted, or there is no such reduction.
        """
        counts = self.get_buffer()  # type: ignore[no-untyped-call]
        if counts is None:
            raise InputError(expected("SegmentationMetric", "cases", "to be counted before they are scored", "none"))
        cases = to_numpy(counts)
        if reduction == "dataset":
            return score_counts(cases.sum(axis=0), self.spec)
        if reduction != "cases":
            raise InputError(expected("SegmentationMetric", "reduction", 'to be "dataset" or "cases"', repr(reduction)))
        scores = [score_counts(case, self.spec) for case in cases]
        columns = {name: torch.tensor([case[name] for case in scores], dtype=torch.float64) for name in scores[0]}
        return {name: float(values.nanmean()) for name, values in columns.items()}

    def _labels(self, name: str, tensor: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        """Read labels as MONAI's transforms give them: whole numbers as floats, or a channel for each class."""
        labels = tensor.long()
        if tensor.is_floating_point() and not torch.equal(labels.to(tensor.dtype), tensor):
            rule, remedy = "to hold labels", "Decide on classes first, with AsDiscrete."
            raise InputError(expected("SegmentationMetric", name, rule, f"fractions in {tensor.dtype}", remedy))
        if self.spec.is_multilabel or (self.spec.task == "binary" and other.ndim == tensor.ndim + 1):
            return labels
        if labels.shape[1] == 1:
            return labels[:, 0]
        if labels.shape[1] != self.spec.num_classes or not bool(
            ((labels == 0) | (labels == 1)).all() & (labels.sum(1) == 1).all()
        ):
            rule = f"to be (B, 1, ...) labels, or one-hot with {self.spec.num_classes} channels"
            raise InputError(expected("SegmentationMetric", name, rule, tuple(tensor.shape)))
        return labels.argmax(1)
