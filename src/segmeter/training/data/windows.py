"""Cuts the part of image and target inside a window, and resizes it on the host or the device."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from segmeter.bridge.arrays import to_numpy, to_torch
from segmeter.classes import ClassSpec
from segmeter.training.data.augment_config import Size

Image = NDArray[Any]


@dataclass(frozen=True)
class Window:
    """A rectangle of an image; it may reach beyond the image."""

    top: int
    left: int
    height: int
    width: int


def slide(image: int, window: int, part: float) -> int:
    """Draw the start of a window inside an image, or around it if the window is larger; all are equally likely."""
    low, high = sorted((0, image - window))
    return low + int(part * (high - low + 1))


def cut(image: Image, target: NDArray[Any], window: Window, spec: ClassSpec) -> tuple[Image, NDArray[Any]]:
    """Cut image and target to a window. Outside, the image is mirrored, and the target ignored if the data allows."""
    full = image.shape[:2]
    rows, above, below = _span(window.top, window.height, full[0])
    columns, before, after = _span(window.left, window.width, full[1])
    inner, inner_target = image[rows, columns], target[..., rows, columns]
    border = ((above, below), (before, after))
    if not any(map(any, border)):
        return inner, inner_target
    return np.pad(inner, (*border, (0, 0)), mode="symmetric"), spec.pad(inner_target, border)


@dataclass(frozen=True)
class Resizing:
    """The resizing that is left to the device: each sample's window, at the top left, and the size of the batch."""

    windows: tuple[Size, ...]
    size: Size


def resize_image(image: Image, size: Size) -> Image:
    """Resize bilinearly and antialiased, so that every pixel of a larger image counts; the dtype stays.

    Parameters
    ----------
    image : (H, W, C), uint8, uint16 or float32
    size
        Height and width.
    """
    if image.shape[:2] == size:
        return image
    resized = resize_planes(to_torch(image).permute(2, 0, 1)[None], size)
    return to_numpy(resized[0].permute(1, 2, 0))


def resize_planes(image: Tensor, size: Size) -> Tensor:
    """Resize (B, C, H, W) on any device, like `resize_image`; on a GPU uint8 may differ by 1 from the CPU."""
    bits = {torch.uint8: 255, torch.uint16: 65535}.get(image.dtype)
    exact = bits is None or (image.dtype == torch.uint8 and image.device.type == "cpu")  # a GPU only resizes floats
    wide = image if exact else image.float()
    resized = functional.interpolate(wide, size, mode="bilinear", antialias=True, align_corners=False)
    if bits is None or exact:
        return resized
    return resized.round_().clamp_(0, bits).to(image.dtype)  # the weights of a pixel add up to 1, up to rounding


def resize_batch(image: Tensor, target: Tensor, resizing: Resizing) -> tuple[Tensor, Tensor]:
    """Resize the windows of a batch on its device, as `resize_image` and `resize_target` do, without waiting.

    Parameters
    ----------
    image : (B, C, H, W), uint8, uint16 or float32
        Each window begins at the top left.
    target : (B, H, W) or (B, K, H, W)
    """
    images, targets = [], []
    for index, (height, width) in enumerate(resizing.windows):
        part = image[index : index + 1, :, :height, :width]
        images.append(part if (height, width) == resizing.size else resize_planes(part, resizing.size))
        rows, columns = (
            ((2 * torch.arange(new, device=target.device) + 1) * old) // (2 * new)
            for old, new in zip((height, width), resizing.size, strict=True)
        )
        targets.append(target[index][..., rows[:, None], columns])
    return torch.cat(images), torch.stack(targets)


def stack_windows(windows: list[NDArray[Any]], *, axis: int) -> NDArray[Any]:
    """Stack arrays that differ in `axis` and the next one, with zeros below and to the right.

    Examples
    --------
    >>> stack_windows([np.ones((1, 2)), np.ones((2, 1))], axis=0).sum((1, 2)).tolist()
    [2.0, 2.0]
    """
    most = [max(each.shape[axis + k] for each in windows) for k in (0, 1)]
    first = windows[0]
    out = np.zeros((len(windows), *first.shape[:axis], *most, *first.shape[axis + 2 :]), first.dtype)
    for place, each in zip(out, windows, strict=True):
        height, width = each.shape[axis : axis + 2]
        place[(slice(None),) * axis + (slice(height), slice(width))] = each
    return out


def resize_target(target: NDArray[Any], size: Size) -> NDArray[Any]:
    """Resize by taking the value at the centre of each new pixel; nothing is blended.

    Parameters
    ----------
    target : (..., H, W), any dtype
    size
        Height and width.
    """
    if target.shape[-2:] == size:
        return target
    rows, columns = (
        ((2 * np.arange(new) + 1) * old) // (2 * new) for old, new in zip(target.shape[-2:], size, strict=True)
    )
    return np.ascontiguousarray(target[..., rows[:, None], columns])


def _span(start: int, length: int, full: int) -> tuple[slice, int, int]:
    """Return the part of a span that is inside, and the lengths before and after it."""
    inside = slice(max(start, 0), min(start + length, full))
    return inside, inside.start - start, start + length - inside.stop
