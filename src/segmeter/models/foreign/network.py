"""Runs a network that others trained on images as they are stored, by its card.

Images are resized as the tool that trained the network does, and the network's maps are brought back to their size.

Axes: B batch, C channels, H height, W width, K the model's classes, N objects.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torchvision.transforms.v2 import InterpolationMode
from torchvision.transforms.v2 import functional as vision

from segmeter.checks import expected
from segmeter.errors import InputError, RunError
from segmeter.models.config import ModelCard
from segmeter.models.foreign.config import ForeignConfig, SizeConfig
from segmeter.models.segmenter import FULL_SCALE, pad_to_multiple

_GREY = 114  # ultralytics pads with this value
_BITS = 11  # The weights of OpenCV's bilinear filter have this precision
Restore = Callable[[Tensor], Tensor]


class ForeignModel(nn.Module):
    """A foreign network with the scaling, resizing and decoding that its card describes.

    Images are run one at a time, as the networks' own tools do: in some networks the result depends on the batch.

    Parameters
    ----------
    network
        Takes (1, C, h, w) float32 and returns the kind of ``config.output``.
    card
        The data's classes, and how the output maps to them.
    config
        The model's card, complete.
    """

    size_least = 1

    def __init__(self, network: Callable[[Tensor], Any], card: ModelCard, config: ForeignConfig) -> None:
        super().__init__()
        self.network = network
        self.card = card
        self.config = config
        kind, numbers = config.size.parsed
        self.size_multiple = numbers[0] if kind == "multiple" else 1
        self.normalises = bool(config.input.mean or config.input.std)
        for name, values in (("mean", config.input.mean or (0.0,)), ("std", config.input.std or (1.0,))):
            self.register_buffer(name, torch.tensor(values).view(-1, 1, 1), persistent=False)

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
        maps = [self._run(single[None].contiguous()) for single in image]
        return torch.cat(maps) if len(maps) > 1 else maps[0]  # logits are large, and torch.cat would copy even one

    def prepare(self, image: Tensor) -> Tensor:
        """Scale and normalise an image that has the network's size."""
        config = self.config.input
        values = image.flip(1) if config.order == "bgr" else image
        values = values.expand(-1, config.channels or 1, -1, -1) if config.order == "grey" else values
        if config.scale is None:  # as torchvision computes it
            values = values.float() / FULL_SCALE.get(image.dtype, 1.0)
        elif config.scale != 1 and not self.normalises:  # a product, as in transformers; a quotient rounds differently
            values = values.float() * config.scale
        if self.normalises:  # a factor scales the mean and the deviation, as in transformers
            divisor = 1 / (config.scale or 1)
            values = (values.float() - self.get_buffer("mean") * divisor) / (self.get_buffer("std") * divisor)
        return values.permute(0, 2, 3, 1) if config.axes == "BHWC" else values

    def _run(self, image: Tensor) -> Tensor:
        config = self.config.output
        size = image.shape[-2:]
        image, restore = fit(image, self.config.size)
        output = self.network(self.prepare(image))
        if config.kind == "instances":
            return self._painted(output, restore, size)
        maps = restore(self._checked(output))
        if config.kind == "probs" and config.activation == "sigmoid":
            return torch.logit(maps.double(), eps=1e-12).float()
        return maps.clamp_min(torch.finfo(torch.float32).tiny).log() if config.kind == "probs" else maps

    def _check(self, image: Tensor) -> None:
        channels = self.card.in_channels
        if image.dim() != 4 or image.shape[1] != channels:
            given = f"{image.dtype} {tuple(image.shape)}"
            remedy = "model.input.order=grey repeats grey images." if image.shape[1] == 1 else ""
            raise InputError(expected("model", "image", f"to be (B, {channels}, H, W)", given, remedy))
        dtype = self.config.input.dtype
        if self.config.size.backend == "opencv":  # its arithmetic is in 8 bits
            dtype = "uint8"
        if dtype is not None and image.dtype != getattr(torch, dtype):
            remedy = "The model was trained on others: convert them, or set model.input.dtype and model.input.scale."
            raise InputError(expected("model", "image", f"to be {dtype}", image.dtype, remedy))

    def _checked(self, output: Any) -> Tensor:
        """Return integer labels (B, H, W) or float32 logits (B, K, H, W); InputError if the output is neither."""
        channels = self.config.num_channels
        name = self.card.model["name"]
        if not isinstance(output, Tensor):
            raise InputError(f"model: expected {name} to give a tensor, got {type(output).__name__}.")
        maps = output
        is_labels = self.config.output.kind == "labels"
        if maps.dim() == 4 and self.config.output.axes == "BHWK" and not is_labels:
            maps = maps.permute(0, 3, 1, 2)
        if maps.dim() == 4 and maps.shape[1] == 1 and is_labels:
            maps = maps[:, 0]
        fits = maps.dim() == 3 if is_labels else maps.dim() == 4 and maps.shape[1] == channels
        if not fits or maps.is_floating_point() == is_labels:
            rule = "to be labels (B, H, W), integers" if is_labels else f"to be (B, {channels}, H, W), floating"
            remedy = f"{name} has other classes than model.classes, or model.output is wrong."
            raise InputError(expected("model", "output", rule, f"{output.dtype} {tuple(output.shape)}", remedy))
        return maps.int() if is_labels else maps.float()

    def _painted(self, output: Any, restore: Restore, size: tuple[int, ...]) -> Tensor:
        """Paint the objects of an image, those with the highest scores on top."""
        output = output[0] if isinstance(output, list) and len(output) == 1 else output
        if not isinstance(output, tuple) or len(output) != 3:
            raise RunError("model: expected instances as a tuple of scores (N,), classes (N,) and masks (N, H, W).")
        scores, classes, masks = output
        painted = torch.zeros((2, *size), dtype=torch.int32, device=scores.device)
        painted[0] = len(self.config.classes or ())
        least_score = self.config.output.score or 0
        indices = [int(index) for index in scores.argsort(stable=True) if scores[index] >= least_score]
        for number, index in enumerate(indices, 1):
            mask = restore(masks[index][None].to(torch.uint8))[0] > 0
            painted[0][mask] = classes[index].int()
            painted[1][mask] = number
        return painted[None]


def fit(image: Tensor, config: SizeConfig) -> tuple[Tensor, Restore]:
    """Bring images (B, C, H, W), as they are stored, to the network's size.

    Returns
    -------
    The images, and a function that brings logits (bilinear) or labels (nearest) back to the images' size. It first
    brings maps of padded images to the network's size, and crops them.
    """
    kind, numbers = config.parsed
    height, width = rows, columns = image.shape[-2:]
    top = left = 0
    if kind == "multiple":
        image = pad_to_multiple(image.float(), multiple=numbers[0]).to(image.dtype)
    elif kind != "any":
        rows, columns = target_size(height, width, config)
        if config.backend == "opencv" and (rows, columns) != (height, width):
            image = resize_as_opencv(image, rows, columns)
        else:
            mode = "nearest-exact" if config.filter == "nearest" else config.filter
            image = resize(image.contiguous(), (rows, columns), mode, antialias=config.antialias is not False)
    if kind == "letterbox":
        missing = [numbers[0] - rows, numbers[-1] - columns]
        if config.multiple is not None:  # a network of any size needs no more grey than its stride
            missing = [part % config.multiple for part in missing]
        top, left = (round(part / 2 - 0.1) for part in missing)
        image = functional.pad(image, (left, missing[1] - left, top, missing[0] - top), value=_GREY)
    fitted_size = image.shape[-2:]  # `restore` must not keep the images alive

    def restore(maps: Tensor) -> Tensor:
        if kind in ("multiple", "letterbox"):
            maps = resize(maps, fitted_size)[..., top : top + rows, left : left + columns]
        return resize(maps, (height, width))

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
        factor = min(numbers[0] / height, numbers[-1] / width)
        return max(round(height * factor), 1), max(round(width * factor), 1)
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


def resize(maps: Tensor, size: tuple[int, ...], mode: str | None = None, *, antialias: bool = False) -> Tensor:
    """Resize (..., H, W) as torchvision does. Without a mode, logits are resized bilinearly, labels to the nearest."""
    if mode is not None or maps.is_floating_point():
        resized: Tensor = vision.resize(maps, [*size], InterpolationMode(mode or "bilinear"), antialias=antialias)
        return resized
    # torchvision resizes integers as float32, which rounds labels above 2^24. In float64 the nearest pixel is sometimes
    # another one. So the numbers of the rows and columns are resized instead.
    rows, columns = (
        vision.resize(
            torch.arange(old, dtype=torch.float32, device=maps.device)[None, None], [1, new], InterpolationMode.NEAREST
        )
        for old, new in zip(maps.shape[-2:], size, strict=True)
    )
    return maps[..., rows.flatten().long()[:, None], columns.flatten().long()]


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
    upper = across[..., first, :]
    lower = across[..., second, :]
    weight = weight[:, None]
    total = ((((1 << _BITS) - weight) * (upper >> 4)) >> 16) + ((weight * (lower >> 4)) >> 16)
    return ((total + 2) >> 2).to(image.dtype)


def _taps(size: int, wanted: int, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Find the two pixels that each wanted pixel lies between, and the weight of the second, in 2048ths."""
    positions = ((torch.arange(wanted, dtype=torch.float64, device=device) + 0.5) * (size / wanted) - 0.5).float()
    first = positions.floor().long()
    weight = ((positions.double() - first) * (1 << _BITS)).round().int()
    return first.clamp(0, size - 1), (first + 1).clamp(0, size - 1), weight
