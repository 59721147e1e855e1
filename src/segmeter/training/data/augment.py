"""Augments a batch on its device: mirrors, turns, blurs and recolours it, and adds noise.

Axes: B batch, C channels of the image, K classes, H height, W width.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from segmeter.bridge.arrays import to_torch
from segmeter.classes import ClassSpec
from segmeter.models.segmenter import FULL_SCALE
from segmeter.training.data.augment_config import AugmentConfig
from segmeter.training.data.batches import RandomNumbers
from segmeter.training.data.epoch import AUGMENT, make_rng

Uniforms = Mapping[str, Tensor]  # a random number from 0 to 1 for each sample, (B,), by a name from `_DRAWN`

# Each sample has a random number for each name, always in this order, so that no setting affects another one's numbers
_DRAWN = (
    *("flip_horizontal", "flip_vertical", "rotate", "shear_x", "shear_y"),
    *("blur", "brightness", "contrast", "saturation", "gamma", "noise"),
)
_TONES = ("blur", "brightness", "colour", "contrast", "saturation", "gamma", "noise")
_TINY = 1e-6  # keeps divisions by the range of a constant image finite


@dataclass(frozen=True)
class Augment:
    """Changes image and target of a batch together.

    The seed, the epoch and the number of a sample alone decide how it changes, whatever batch it is in. Noise is
    computed on the device, so it differs between a CPU and a GPU.

    Parameters
    ----------
    config
        The changes, and how large they are.
    spec
        Names the value of the target that is excluded from loss and metrics.
    """

    config: AugmentConfig
    spec: ClassSpec

    def draw(self, *, seed: int, epoch: int, indices: NDArray[np.int64], channels: int) -> RandomNumbers:
        """Draw the random numbers for a batch, on the host.

        Parameters
        ----------
        seed, epoch
            Decide every number, together with the index.
        indices : (B,)
            The number of each sample, unique within the epoch.
        channels
            Number of channels of the images.
        """
        generators = [make_rng(AUGMENT, seed=seed, epoch=epoch, index=int(index)) for index in indices]
        table = [rng.random(len(_DRAWN) + channels, dtype=np.float32) for rng in generators]
        return RandomNumbers(to_torch(np.stack(table)), tuple(int(rng.integers(2**63)) for rng in generators))

    def __call__(self, image: Tensor, target: Tensor, random_numbers: RandomNumbers) -> tuple[Tensor, Tensor]:
        """Apply the changes; nothing here waits for the device.

        Parameters
        ----------
        image : (B, C, H, W), uint8, uint16 or floating
        target : (B, H, W), or (B, K, H, W) for multilabel, integer
        random_numbers
            From the method of this name for these samples, with the table on the image's device.

        Returns
        -------
        The image, and the target in its dtype. If values were changed, the image is floating: 0 to 1 for integers, not
        scaled for floats. Pixels turned in from outside are mirrored in the image and ignored in the target, or
        mirrored there too if the data has no ignored value.
        """
        uniforms = dict(zip(_DRAWN, random_numbers.table.T, strict=False))
        turns = self.config.rotate or self.config.shear
        recolours = any(getattr(self.config, name) for name in _TONES)
        full_scale = FULL_SCALE.get(image.dtype)
        if full_scale is not None and (turns or recolours):
            image = image.to(torch.float32).div_(full_scale)
        for name, axis in (("flip_horizontal", -1), ("flip_vertical", -2)):
            if getattr(self.config, name):
                flipped = uniforms[name] < 0.5
                image = torch.where(_beside(flipped, image), image.flip(axis), image)
                target = torch.where(_beside(flipped, target), target.flip(axis), target)
        if turns:
            image, target = self._turn(image, target, uniforms)
        if recolours:
            image = self._recolour(image, uniforms, random_numbers.table[:, len(_DRAWN) :])
            if self.config.noise:
                image = add_noise(image, uniforms["noise"] * self.config.noise, random_numbers.seeds)
            image = image if full_scale is None else image.clamp(0.0, 1.0)
        return image, target

    def _turn(self, image: Tensor, target: Tensor, uniforms: Uniforms) -> tuple[Tensor, Tensor]:
        """Rotate and shear in one resampling: bilinear in the image, nearest in the target."""
        angle = spread(uniforms["rotate"], math.radians(self.config.rotate))
        shear_x, shear_y = (
            spread(uniforms[name], math.radians(self.config.shear)).tan() for name in ("shear_x", "shear_y")
        )
        grid = turned_grid(image.shape[-2:], angle=angle, shear_x=shear_x, shear_y=shear_y)
        planes = target.view(len(target), -1, *target.shape[-2:])
        look_up = partial(functional.grid_sample, grid=grid, padding_mode="reflection", align_corners=False)
        labels = look_up(planes.to(torch.float32), mode="nearest").to(target.dtype)
        if self.spec.has_ignored:
            outside = (grid.abs() > 1).any(-1)
            labels = labels.masked_fill(outside[:, None], self.spec.unlabelled_value)
        return look_up(image, mode="bilinear"), labels.view(target.shape)

    def _recolour(self, image: Tensor, uniforms: Uniforms, gains: Tensor) -> Tensor:
        """Change the focus, then the light, then what a camera does to tones."""
        config = self.config
        if config.blur:
            image = blur(image, uniforms["blur"] * config.blur, most=config.blur)
        if config.brightness:
            image = image * _beside(1 + spread(uniforms["brightness"], config.brightness), image)
        if config.colour:
            image = image * (1 + spread(gains, config.colour))[:, :, None, None]
        if config.contrast:
            factor = _beside(1 + spread(uniforms["contrast"], config.contrast), image)
            image = torch.lerp(image.mean((1, 2, 3), keepdim=True), image, factor)
        if config.saturation:
            factor = _beside(1 + spread(uniforms["saturation"], config.saturation), image)
            image = torch.lerp(image.mean(1, keepdim=True), image, factor)
        if config.gamma:
            image = apply_gamma(image, torch.exp(spread(uniforms["gamma"], math.log1p(config.gamma))))
        return image


def spread(uniform: Tensor, most: float) -> Tensor:
    """Map random numbers from 0 .. 1 to -most .. most."""
    return (2 * uniform - 1) * most


def turned_grid(size: torch.Size, *, angle: Tensor, shear_x: Tensor, shear_y: Tensor) -> Tensor:
    """Return where each pixel of a sheared and turned image comes from: (B, H, W, 2) as (x, y), in half images.

    Parameters
    ----------
    size
        (H, W). Turning keeps the shape of objects in images that are not square.
    angle : (B,)
        In radians.
    shear_x, shear_y : (B,)
        Pixels moved along an axis per pixel along the other.
    """
    height, width = size
    cos, sin = angle.cos(), angle.sin()
    to_x = torch.stack([cos - sin * shear_y, (cos * shear_x - sin) * (height / width)], dim=1)
    to_y = torch.stack([(sin + cos * shear_y) * (width / height), sin * shear_x + cos], dim=1)
    unshifted = functional.pad(torch.stack([to_x, to_y], dim=1), (0, 1))
    return functional.affine_grid(unshifted, [len(angle), 1, height, width], align_corners=False)


def apply_gamma(image: Tensor, exponent: Tensor) -> Tensor:
    """Raise each image to its exponent (B,), on the scale from its smallest to its largest value."""
    low = image.amin((1, 2, 3), keepdim=True)
    extent = (image.amax((1, 2, 3), keepdim=True) - low).clamp(min=_TINY)
    return low + extent * ((image - low) / extent).pow(_beside(exponent, image))


def blur(image: Tensor, sigma: Tensor, *, most: float) -> Tensor:
    """Blur each image by its own Gaussian sigma (B,), in pixels and at most `most`; edges are repeated."""
    radius = math.ceil(3 * most)
    distance = torch.arange(-radius, radius + 1, device=image.device, dtype=image.dtype)
    weight = torch.exp(-(distance**2) / (2 * sigma.clamp(min=_TINY)[:, None] ** 2))
    weight = (weight / weight.sum(1, keepdim=True)).repeat_interleave(image.shape[1], 0)[:, None]
    planes = image.reshape(1, -1, *image.shape[-2:])
    padded = functional.pad(planes, (radius,) * 4, mode="replicate")
    rows = functional.conv2d(padded, weight[:, :, :, None], groups=len(weight))
    return functional.conv2d(rows, weight[:, :, None, :], groups=len(weight)).view(image.shape)


def add_noise(image: Tensor, share: Tensor, seeds: Sequence[int]) -> Tensor:
    """Add Gaussian noise with a standard deviation that is a share (B,) of each image's own."""
    noise = torch.empty(image.shape, dtype=image.dtype, device=image.device)
    generator = torch.Generator(image.device)
    for sample, seed in zip(noise, seeds, strict=True):
        sample.normal_(generator=generator.manual_seed(seed))
    return image + noise * image.std((1, 2, 3), keepdim=True) * _beside(share, image)


def _beside(values: Tensor, batch: Tensor) -> Tensor:
    """Shape one value per sample so that it broadcasts over a batch."""
    return values.view(-1, *[1] * (batch.dim() - 1))
