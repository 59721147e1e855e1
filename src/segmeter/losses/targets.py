"""Reads targets and logits for every loss: classes, which elements count, enough digits, and memory layouts."""

from itertools import pairwise
from typing import NamedTuple

import torch

LABEL_DTYPES = (torch.uint8, torch.int16, torch.int32, torch.int64)
SHARE_SLACK = 1e-5  # of a soft target that was interpolated in float32


class Labels(NamedTuple):
    """A target that is safe to index with: a class for every element, which elements count, and which are bad."""

    classes: torch.Tensor
    counted: torch.Tensor
    bad: torch.Tensor


def read_labels(logits: torch.Tensor, target: torch.Tensor, *, softmax: bool, ignore_index: int | None) -> Labels:
    """Give int64 classes that are safe to index with, and the masks; of soft targets every element counts."""
    if target.is_floating_point():
        shape = logits[:, 0].shape if softmax else logits.shape
        classes = torch.zeros(shape, dtype=torch.int64, device=logits.device)
        return Labels(classes, torch.ones_like(classes, dtype=torch.bool), ~is_share(target))
    known = is_class(target, logits.shape[1] if softmax else 2)
    valid = valid_mask(target, ignore_index)
    counted = known & valid
    return Labels(torch.where(counted, target, 0).long(), counted, valid & ~known)


def is_class(target: torch.Tensor, count: int) -> torch.Tensor:
    """Say which labels lie in 0 to count - 1."""
    return (target >= 0) & (target < count) if _holds(target.dtype, count) else target >= 0


def valid_mask(target: torch.Tensor, ignore_index: int | None) -> torch.Tensor:
    """Say which elements are not ignored, as bools; of soft targets none is."""
    if ignore_index is None or target.is_floating_point() or not _holds(target.dtype, ignore_index):
        return torch.ones_like(target, dtype=torch.bool)
    return target != ignore_index


def is_share(target: torch.Tensor) -> torch.Tensor:
    """Say which values of a soft target lie in 0 to 1; NaN does not."""
    return (target >= -SHARE_SLACK) & (target <= 1 + SHARE_SLACK)


def _holds(dtype: torch.dtype, label: int) -> bool:
    """Say whether the dtype can hold the label: a comparison would wrap any other round to one that it can."""
    if dtype == torch.bool:
        return label in (0, 1)
    limits = torch.iinfo(dtype)
    return limits.min <= label <= limits.max


def widest_float(device: torch.device) -> torch.dtype:
    """Float64 for sums over many pixels, or float32 on an Apple GPU, which has no wider one."""
    return torch.float32 if device.type == "mps" else torch.float64


def widened(logits: torch.Tensor) -> torch.Tensor:
    """Float32, or float64 as it is: half precision loses the loss of every confident pixel."""
    return logits if logits.dtype == torch.float64 else logits.float()


def pixel_stride(tensor: torch.Tensor) -> int | None:
    """Give the stride in elements from pixel to pixel of (B, K, N...), or None where they are not evenly spaced."""
    wide = [place for place in zip(tensor.shape[2:], tensor.stride()[2:], strict=True) if place[0] > 1]
    if any(outer != size * inner for (_, outer), (size, inner) in pairwise(wide)):
        return None
    return wide[-1][1] if wide else 1


def with_pixel_stride(tensor: torch.Tensor) -> tuple[torch.Tensor, int]:
    """Give the tensor, or a contiguous copy where its pixels are not evenly spaced, and its pixel stride."""
    stride = pixel_stride(tensor)
    return (tensor.contiguous(), 1) if stride is None else (tensor, stride)
