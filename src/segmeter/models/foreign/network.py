"""Runs a network that others trained on images as they are stored, by its card.

Axes: B batch, C channels, H height, W width, K the model's classes, N objects.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from segmeter.checks import expected
from segmeter.errors import InputError, RunError
from segmeter.models.card import ModelCard
from segmeter.models.foreign.config import ForeignConfig
from segmeter.models.foreign.sizing import Fitted, fit

_FULL_SCALE = {torch.uint8: 255.0, torch.uint16: 65535.0}


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
        kind, numbers = config.size.parsed
        self.size_multiple = numbers[0] if kind == "multiple" else 1
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
        maps = fitted.restore(self._checked(found), size)
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
        output, wanted, name = self.config.output, self.config.num_channels, self.card.model["name"]
        if not isinstance(found, Tensor):
            raise InputError(f"model: expected {name} to give a tensor, got {type(found).__name__}.")
        labels, maps = output.kind == "labels", found
        if labels:
            maps = found[:, 0] if found.dim() == 4 and found.shape[1] == 1 else found
        elif output.axes == "BHWK" and found.dim() == 4:
            maps = found.permute(0, 3, 1, 2)
        right = maps.dim() == 3 if labels else maps.dim() == 4 and maps.shape[1] == wanted
        if not right or maps.is_floating_point() == labels:
            rule = "to be labels (B, H, W), integers" if labels else f"to be (B, {wanted}, H, W), floating"
            remedy = f"{name} has other classes than model.classes, or model.output is wrong."
            raise InputError(expected("model", "output", rule, f"{found.dtype} {tuple(found.shape)}", remedy))
        return maps.int() if labels else maps.float()

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
            mask = fitted.restore(masks[index][None].to(torch.uint8), size)[0] > 0
            painted[0][mask], painted[1][mask] = numbers[index].int(), number
        return painted[None]
