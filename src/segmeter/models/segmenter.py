"""Runs a network on images of any size as they are stored: scales, normalises, pads, and crops the logits.

The network's library is loaded only when a network is built.

Axes: B batch, C channels of the image, H height, W width.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from segmeter.checks import expected
from segmeter.errors import InputError
from segmeter.models.config import MODELS, ModelCard

SIZE_MULTIPLE = 32  # For a network that doesn't say which sizes it takes
FULL_SCALE = {torch.uint8: 255.0, torch.uint16: 65535.0}


class Segmenter(nn.Module):
    """A network with the scaling, normalisation and padding of its images, so that it takes them as they are stored.

    Parameters
    ----------
    network
        Takes (B, C, H, W) float and gives (B, num_channels, H, W). Heights and widths must be multiples of its
        attribute `size_multiple` (default 32) and at least `size_least` (default 1). It sees images `downsample` times
        smaller (default 1).
    card
        Normalisation, channels and classes.
    """

    def __init__(self, network: nn.Module, card: ModelCard) -> None:
        super().__init__()
        self.network = network
        self.card = card
        self.downsample = int(getattr(network, "downsample", 1))
        self.size_multiple = self.downsample * int(getattr(network, "size_multiple", SIZE_MULTIPLE))
        self.size_least = self.downsample * int(getattr(network, "size_least", 1))
        mean = torch.tensor(card.mean, dtype=torch.float64)
        std = torch.tensor(card.std, dtype=torch.float64)
        self.gain: Tensor
        self.shift: Tensor
        # Not persistent: the card has them, so a state dict holds learned weights alone
        self.register_buffer("gain", (1 / std).float().view(1, -1, 1, 1), persistent=False)
        self.register_buffer("shift", (-mean / std).float().view(1, -1, 1, 1), persistent=False)
        self.limits: Tensor | None
        limits = torch.tensor(card.clip).T.reshape(2, 1, -1, 1, 1) if card.clip else None
        self.register_buffer("limits", limits, persistent=False)

    def forward(self, image: Tensor) -> Tensor:
        """Compute the logits of a batch of images.

        Parameters
        ----------
        image : (B, C, H, W)
            uint8 (divided by 255), uint16 (divided by 65535), or floating (taken as it is). Any H, W >= 1. A
            channels_last image stays channels_last.

        Returns
        -------
        (B, num_channels, H, W), floating. Gradients flow to the weights and to a floating image.

        Raises
        ------
        InputError
            Other axes, channels or dtype.
        """
        height, width = image.shape[-2:]
        padded = pad_to_multiple(self.normalise(image), multiple=self.size_multiple, least=self.size_least)
        return self.padded_logits(padded)[..., :height, :width]

    def padded_logits(self, image: Tensor) -> Tensor:
        """Compute the logits of a normalised image whose height and width are multiples of `size_multiple`."""
        logits: Tensor
        if self.downsample == 1:
            logits = self.network(image)
            return logits
        logits = self.network(functional.avg_pool2d(image, self.downsample))
        return functional.interpolate(logits, scale_factor=float(self.downsample), mode="bilinear")

    def normalise(self, image: Tensor) -> Tensor:
        """Compute (image / full scale - mean) / std in the buffers' dtype, clipped to the card's `clip` first.

        InputError for an image of other axes, channels or dtype, see `forward`.
        """
        channels = self.card.in_channels
        given = f"{image.dtype} {tuple(image.shape)}"
        if image.dim() != 4 or image.shape[1] != channels:
            raise InputError(expected("segmenter", "image", f"to be (B, {channels}, H, W)", given))
        if image.dtype not in FULL_SCALE and not image.is_floating_point():
            remedy = "The scale of other integers is not known: divide them into 0 .. 1 first."
            raise InputError(expected("segmenter", "image", "to be uint8, uint16 or floating", given, remedy))
        full_scale = FULL_SCALE.get(image.dtype, 1.0)
        gain = self.gain / full_scale
        image = image.to(gain.dtype)
        if self.limits is not None:
            image = image.clamp(self.limits[0] * full_scale, self.limits[1] * full_scale)
        return torch.addcmul(self.shift, image, gain)


def pad_to_multiple(image: Tensor, *, multiple: int, least: int = 1) -> Tensor:
    """Extend an image at the bottom and the right until both sides are multiples of `multiple` and at least `least`.

    The image is mirrored there, or its last row and column are repeated if it is too small for that. The top left stays
    in place, so the network's grid lies on the image as it would without padding.
    """
    height, width = image.shape[-2:]
    down, right = (-(-max(size, least) // multiple) * multiple - size for size in (height, width))
    if down == 0 and right == 0:
        return image
    mode = "reflect" if down < height and right < width else "replicate"
    return functional.pad(image, (0, right, 0, down), mode=mode)


class AtNetworkSize(nn.Module):
    """A segmenter for images that already have its network's size, such as samples in training."""

    def __init__(self, segmenter: Segmenter) -> None:
        super().__init__()
        self.segmenter = segmenter

    def forward(self, image: Tensor) -> Tensor:
        model = self.segmenter
        height, width = image.shape[-2:]
        multiple, least = model.size_multiple // model.downsample, model.size_least // model.downsample
        logits: Tensor = model.network(pad_to_multiple(model.normalise(image), multiple=multiple, least=least))
        return logits[..., :height, :width]


def build_segmenter(card: ModelCard, *, initialise: bool = True) -> Segmenter:
    """Build the segmenter that a card describes, on the CPU, in training mode.

    Parameters
    ----------
    card
        Network, classes, channels and normalisation.
    initialise
        False ignores ``model.weights`` (no download, no file): the caller loads weights next.

    Raises
    ------
    ConfigError
        The network is not registered, or can't be built.
    CheckpointError
        The file in ``model.weights`` can't be read or does not fit.
    """
    config: Any = MODELS.schema(str(card.model.get("name")))(**card.model)
    if not initialise and getattr(config, "weights", None) is not None:
        config = config.replace(weights=None)
    network = MODELS.build(config, spec=card.spec, in_channels=card.in_channels)
    return Segmenter(network, card)
