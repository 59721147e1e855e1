"""Brings images to the size that a network takes, as the tool that trained it does, and its maps back to the image's.

Axes: B batch, C channels, H height, W width.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional
from torchvision.transforms.v2 import InterpolationMode
from torchvision.transforms.v2 import functional as vision

from segmeter.models.foreign.config import SizeConfig
from segmeter.models.segmenter import pad_to_multiple

_GREY = 114  # with which ultralytics pads
_BITS = 11  # of the weights of OpenCV's bilinear filter

Restore = Callable[[Tensor], Tensor]


def fit(image: Tensor, config: SizeConfig) -> tuple[Tensor, Restore]:
    """Bring images (B, C, H, W), as they are stored, to the network's size.

    Returns
    -------
    The images, and a function that brings logits (bilinear) or labels (nearest) back to the images' size. Maps of
    padded images are first brought to the network's size, and cropped.
    """
    kind, numbers = config.parsed
    height, width = rows, columns = image.shape[-2:]
    top = left = 0
    if kind == "multiple":
        image = pad_to_multiple(image.float(), multiple=numbers[0]).to(image.dtype)
    elif kind != "any":
        rows, columns = target_size(height, width, config)
        image = _resize(image, rows, columns, config)
    if kind == "letterbox":
        missing = [numbers[0] - rows, numbers[-1] - columns]
        if config.multiple is not None:  # a network of any size needs no more grey than its stride
            missing = [part % config.multiple for part in missing]
        top, left = (round(part / 2 - 0.1) for part in missing)
        image = functional.pad(image, (left, missing[1] - left, top, missing[0] - top), value=_GREY)
    fitted = image.shape[-2:]  # the images themselves are not kept

    def restore(maps: Tensor) -> Tensor:
        if kind in ("multiple", "letterbox"):
            maps = _resized(maps, fitted)[..., top : top + rows, left : left + columns]
        return _resized(maps, (height, width))

    return image, restore


def target_size(height: int, width: int, config: SizeConfig) -> tuple[int, int]:
    """Compute height and width of a resized image, without its padding.

    Examples
    --------
    >>> target_size(100, 200, SizeConfig(fit="short:50")), target_size(100, 200, SizeConfig(fit="letterbox:64"))
    ((50, 100), (32, 64))
    """
    kind, numbers = config.parsed
    if kind == "letterbox":
        gain = min(numbers[0] / height, numbers[-1] / width)
        return max(round(height * gain), 1), max(round(width * gain), 1)
    if kind == "fixed":
        rows, columns = numbers
    elif kind == "long":
        rows, columns = (max(1, int(numbers[0] * edge / max(height, width))) for edge in (height, width))
    else:  # the longer side is rounded down, as torchvision and transformers do
        low, high = sorted((height, width))
        exact = min(numbers[0], (config.longest or math.inf) * low / high)
        sides = (low, high) if round(exact) == low else (round(exact), int(exact * high / low))
        rows, columns = sides if height <= width else sides[::-1]
    step = config.multiple or 1
    return -(-rows // step) * step, -(-columns // step) * step


def _resize(image: Tensor, rows: int, columns: int, config: SizeConfig) -> Tensor:
    if tuple(image.shape[-2:]) == (rows, columns):
        return image
    if config.backend == "opencv":
        return resize_as_opencv(image, rows, columns)
    mode = InterpolationMode("nearest-exact" if config.filter == "nearest" else config.filter)
    found: Tensor = vision.resize(image.contiguous(), [rows, columns], mode, antialias=config.antialias is not False)
    return found


def resize_as_opencv(image: Tensor, rows: int, columns: int) -> Tensor:
    """Resize uint8 images (B, C, H, W) bilinearly, in the fixed-point arithmetic of OpenCV's `INTER_LINEAR`.

    Weights have 11 bits; a reduction by 2 in both directions averages 2 x 2 pixels.
    """
    height, width = image.shape[-2:]
    wide = image.to(torch.int32)
    if (height, width) == (2 * rows, 2 * columns):
        total = wide[..., ::2, ::2] + wide[..., ::2, 1::2] + wide[..., 1::2, ::2] + wide[..., 1::2, 1::2]
        return ((total + 2) >> 2).to(image.dtype)
    first, second, weight = _taps(width, columns, image.device)
    weight[first == second] = 0  # beyond the first and the last column; rows there keep two truncated shares
    across = wide[..., first] * ((1 << _BITS) - weight) + wide[..., second] * weight
    first, second, weight = _taps(height, rows, image.device)
    upper, lower, weight = across[..., first, :], across[..., second, :], weight[:, None]
    found = ((((1 << _BITS) - weight) * (upper >> 4)) >> 16) + ((weight * (lower >> 4)) >> 16)
    return ((found + 2) >> 2).to(image.dtype)


def _taps(size: int, wanted: int, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Find the two pixels that each wanted pixel lies between, and the weight of the second, in 2048ths."""
    places = ((torch.arange(wanted, dtype=torch.float64, device=device) + 0.5) * (size / wanted) - 0.5).float()
    first = places.floor().long()
    weight = ((places.double() - first) * (1 << _BITS)).round().int()
    return first.clamp(0, size - 1), (first + 1).clamp(0, size - 1), weight


def _resized(maps: Tensor, size: tuple[int, ...]) -> Tensor:
    if tuple(maps.shape[-2:]) == tuple(size):
        return maps
    if maps.is_floating_point():
        return functional.interpolate(maps, size, mode="bilinear", align_corners=False)
    planes = maps.reshape(1, -1, *maps.shape[-2:]).float()
    return functional.interpolate(planes, size, mode="nearest").to(maps.dtype).view(*maps.shape[:-2], *size)
