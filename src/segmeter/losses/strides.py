"""Memory layouts: when the pixels of an image are evenly spaced, a kernel needs one stride for all of them."""

from itertools import pairwise

import torch


def pixel_stride(tensor: torch.Tensor) -> int | None:
    """Give the stride in elements from pixel to pixel of (B, K, N...), or None where they are not evenly spaced."""
    sizes, strides = tensor.shape[2:], tensor.stride()[2:]
    wide = [(size, stride) for size, stride in zip(sizes, strides, strict=True) if size > 1]
    for (_, outer), (size, inner) in pairwise(wide):
        if outer != size * inner:
            return None
    return wide[-1][1] if wide else 1


def with_pixel_stride(tensor: torch.Tensor) -> tuple[torch.Tensor, int]:
    """Give the tensor, or a contiguous copy where its pixels are not evenly spaced, and its pixel stride."""
    stride = pixel_stride(tensor)
    if stride is not None:
        return tensor, stride
    return tensor.contiguous(), 1
