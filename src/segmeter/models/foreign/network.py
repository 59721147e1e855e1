"""Runs a network that others trained on images as they are stored, by its card.

Images are brought to the size that the network takes as the tool that trained it does, and its maps back to theirs.
Axes: B batch, C channels, H height, W width, K the model's classes, N objects.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torchvision.transforms.v2 import InterpolationMode
from torchvision.transforms.v2 import functional as vision

from segmeter.bridge.arrays import to_torch
from segmeter.checks import expected
from segmeter.errors import InputError, RunError
from segmeter.models.card import ModelCard
from segmeter.models.foreign.config import ForeignConfig, SizeConfig
from segmeter.models.segmenter import pad_to_multiple

_FULL_SCALE = {torch.uint8: 255.0, torch.uint16: 65535.0}
_GREY = 114  # with which ultralytics pads
_BITS = 11  # of the weights of OpenCV's bilinear filter


@dataclass(frozen=True)
class Fitted:
    """An image at the network's size, and the rectangle in it that the image covers."""

    image: Tensor
    top: int
    left: int
    height: int
    width: int

    def restore(self, maps: Tensor, size: tuple[int, int], *, padded: bool) -> Tensor:
        """Bring logits (bilinear) or labels (nearest) from the network's size, or a part of it, to the image's.

        With `padded`, the maps cover more than the image: they are brought to the network's size and cropped first.
        """
        if padded:
            maps = _resized(maps, self.image.shape[-2:])
            maps = maps[..., self.top : self.top + self.height, self.left : self.left + self.width]
        return _resized(maps, size)


class ForeignModel(nn.Module):
    """A foreign network with the scaling, resizing and decoding that its card describes.

    Images are run one at a time, as their tools do: in some networks the others of a batch change the result.

    Parameters
    ----------
    network
        Takes (1, C, h, w) float32 and returns the kind of ``config.output``.
    card
        The data's classes, and how the output maps to them.
    config
        The model's card, complete.
    """

    def __init__(self, network: Callable[[Tensor], Any], card: ModelCard, config: ForeignConfig) -> None:
        super().__init__()
        self.network, self.card, self.config = network, card, config
        kind, _, number = str(config.size.fit).partition(":")
        self.padded = kind in ("multiple", "letterbox")
        self.size_multiple = int(number) if kind == "multiple" else 1
        self.size_least = 1
        told, ones = config.input, (1.0,) * (config.input.channels or 1)
        self.normalises = bool(told.mean or told.std)
        self.register_buffer("mean", torch.tensor(told.mean or (0.0,) * len(ones)).view(-1, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(told.std or ones).view(-1, 1, 1), persistent=False)

    def forward(self, image: Tensor) -> Tensor:
        """Run images (B, C, H, W) as they are stored.

        Returns
        -------
        Logits (B, K, H, W) float32; labels (B, H, W); or for instances (B, 2, H, W), the class of each pixel and the
        number of its object. Pixels without one have class K and number 0.

        Raises
        ------
        InputError
            The channels or dtype are wrong, or the network's output is not that of its card.
        """
        self._check(image)
        found = [self._run(each[None].contiguous()) for each in image]
        return torch.cat(found) if len(found) > 1 else found[0]  # logits are large, and even one would be copied

    def prepare(self, image: Tensor) -> Tensor:
        """Scale and normalise an image that has the network's size."""
        told = self.config.input
        values = image.flip(1) if told.order == "bgr" else image
        values = values.expand(-1, told.channels or 1, -1, -1) if told.order == "grey" else values
        divisor = _FULL_SCALE.get(image.dtype, 1.0) if told.scale is None else 1 / told.scale
        if self.normalises:  # in this order, as transformers computes it
            values = (values.float() - self.get_buffer("mean") * divisor) / (self.get_buffer("std") * divisor)
        elif told.scale is None:
            values = values.float() / divisor
        elif told.scale != 1:  # a product, as in transformers: a quotient has other last bits
            values = values.float() * told.scale
        return values.permute(0, 2, 3, 1) if told.axes == "BHWC" else values

    def _run(self, image: Tensor) -> Tensor:
        size = (int(image.shape[-2]), int(image.shape[-1]))
        fitted = fit(image, self.config.size)
        found = self.network(self.prepare(fitted.image))
        if self.config.output.kind == "instances":
            return self._painted(found, fitted, size)
        maps = fitted.restore(self._checked(found), size, padded=self.padded)
        return self._as_logits(maps) if self.config.output.kind == "probs" else maps

    def _check(self, image: Tensor) -> None:
        told = self.config.input
        channels = self.card.in_channels
        if image.dim() != 4 or image.shape[1] != channels:
            given = f"{image.dtype} {tuple(image.shape)}"
            remedy = "model.input.order=grey repeats grey images." if image.shape[1] == 1 else ""
            raise InputError(expected("model", "image", f"to be (B, {channels}, H, W)", given, remedy))
        if told.dtype is not None and image.dtype != getattr(torch, told.dtype):
            remedy = "The model was trained on others: convert them, or set model.input.dtype and model.input.scale."
            raise InputError(expected("model", "image", f"to be {told.dtype}", image.dtype, remedy))

    def _checked(self, found: Any) -> Tensor:
        output, wanted = self.config.output, self.config.num_channels
        name = self.card.model["name"]
        if not isinstance(found, Tensor):
            raise InputError(f"model: expected {name} to give a tensor, got {type(found).__name__}.")
        if output.kind == "labels":
            found = found[:, 0] if found.dim() == 4 and found.shape[1] == 1 else found
            if found.dim() != 3 or found.is_floating_point():
                given = f"{found.dtype} {tuple(found.shape)}"
                raise InputError(expected("model", "output", "to be labels (B, H, W), integers", given))
            labels: Tensor = found.int()
            return labels
        found = found.permute(0, 3, 1, 2) if output.axes == "BHWK" and found.dim() == 4 else found
        if found.dim() != 4 or found.shape[1] != wanted or not found.is_floating_point():
            given = f"{found.dtype} {tuple(found.shape)}"
            remedy = f"{name} has other classes than model.classes, or model.output is wrong."
            raise InputError(expected("model", "output", f"to be (B, {wanted}, H, W), floating", given, remedy))
        logits: Tensor = found.float()
        return logits

    def _as_logits(self, probs: Tensor) -> Tensor:
        if self.config.output.activation == "sigmoid":
            return torch.logit(probs.double(), eps=1e-12).float()
        return probs.clamp_min(torch.finfo(torch.float32).tiny).log()

    def _painted(self, found: Any, fitted: Fitted, size: tuple[int, int]) -> Tensor:
        """Paint the objects of an image, those with the highest scores on top."""
        output, classes = self.config.output, len(self.config.classes or ())
        found = found[0] if isinstance(found, list) and len(found) == 1 else found
        if not isinstance(found, tuple) or len(found) != 3:
            raise RunError("model: expected instances as a tuple of scores (N,), classes (N,) and masks (N, H, W).")
        scores, numbers, masks = found
        painted = torch.zeros((2, *size), dtype=torch.int32, device=scores.device)
        painted[0] = classes
        kept = [int(i) for i in scores.argsort(stable=True) if scores[i] >= (output.score or 0)]
        for number, index in enumerate(kept, 1):
            mask = fitted.restore(masks[index][None].to(torch.uint8), size, padded=self.padded)[0] > 0
            painted[0][mask], painted[1][mask] = numbers[index].int(), number
        return painted[None]


def fit(image: Tensor, config: SizeConfig) -> Fitted:
    """Bring images (B, C, H, W), as they are stored, to the network's size."""
    kind, _, text = str(config.fit).partition(":")
    height, width = image.shape[-2:]
    if kind == "any":
        return Fitted(image, 0, 0, height, width)
    if kind == "multiple":
        return Fitted(pad_to_multiple(image.float(), multiple=int(text)).to(image.dtype), 0, 0, height, width)
    rows, columns = target_size(height, width, config)
    resized = _resize(image, rows, columns, config)
    if kind != "letterbox":
        return Fitted(resized, 0, 0, rows, columns)
    frame = [int(part) for part in text.split("x")]
    missing = (frame[0] - rows, frame[-1] - columns)
    if config.multiple is not None:  # a network of any size needs no more grey than its stride
        missing = (missing[0] % config.multiple, missing[1] % config.multiple)
    full = image.new_full((*image.shape[:2], rows + missing[0], columns + missing[1]), _GREY)
    top, left = (round(part / 2 - 0.1) for part in missing)
    full[..., top : top + rows, left : left + columns] = resized
    return Fitted(full, top, left, rows, columns)


def target_size(height: int, width: int, config: SizeConfig) -> tuple[int, int]:
    """Compute height and width of a resized image, without its padding.

    Examples
    --------
    >>> target_size(100, 200, SizeConfig(fit="short:50")), target_size(100, 200, SizeConfig(fit="letterbox:64"))
    ((50, 100), (32, 64))
    """
    kind, _, text = str(config.fit).partition(":")
    numbers = [int(part) for part in text.split("x")]
    if kind == "fixed":
        rows, columns = numbers
    elif kind == "letterbox":
        gain = min(numbers[0] / height, numbers[-1] / width)
        rows, columns = max(round(height * gain), 1), max(round(width * gain), 1)
    elif kind == "long":
        rows, columns = (max(1, int(numbers[0] * edge / max(height, width))) for edge in (height, width))
    else:
        rows, columns = _by_shorter_side(height, width, numbers[0], config.longest)
    step = 1 if kind == "letterbox" else config.multiple or 1
    return -(-rows // step) * step, -(-columns // step) * step


def _by_shorter_side(height: int, width: int, side: int, longest: int | None) -> tuple[int, int]:
    """Return the size whose shorter side is `side`; the other is rounded down, as in torchvision and transformers."""
    low, high = sorted((height, width))
    exact: float = side
    if longest is not None and high / low * side > longest:
        exact = longest * low / high
        side = round(exact)
    if low == side:
        return height, width
    return (int(exact * height / width), side) if width < height else (side, int(exact * width / height))


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
    first, second, weight = _taps(width, columns)
    weight[first == second] = 0  # beyond the first and the last column; rows there keep two truncated shares
    across = wide[..., first] * ((1 << _BITS) - weight) + wide[..., second] * weight
    first, second, weight = _taps(height, rows)
    upper, lower, weight = across[..., first, :], across[..., second, :], weight[:, None]
    found = ((((1 << _BITS) - weight) * (upper >> 4)) >> 16) + ((weight * (lower >> 4)) >> 16)
    return ((found + 2) >> 2).to(image.dtype)


def _taps(size: int, wanted: int) -> tuple[Tensor, Tensor, Tensor]:
    """Find the two pixels that each wanted pixel lies between, and the weight of the second, in 2048ths."""
    places = ((np.arange(wanted) + 0.5) * (size / wanted) - 0.5).astype(np.float32)
    first = np.floor(places).astype(np.int64)
    weight = np.rint((places - first) * np.float32(1 << _BITS)).astype(np.int32)
    pair = (first.clip(0, size - 1), (first + 1).clip(0, size - 1))
    return to_torch(pair[0]), to_torch(pair[1]), to_torch(weight)


def _resized(maps: Tensor, size: tuple[int, ...]) -> Tensor:
    if tuple(maps.shape[-2:]) == tuple(size):
        return maps
    if maps.is_floating_point():
        return functional.interpolate(maps, size, mode="bilinear", align_corners=False)
    planes = maps.reshape(1, -1, *maps.shape[-2:]).float()
    return functional.interpolate(planes, size, mode="nearest").to(maps.dtype).view(*maps.shape[:-2], *size)
