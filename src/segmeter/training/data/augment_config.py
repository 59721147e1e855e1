"""Schema of the group `augment`: what a training sample is cut from and how it is changed, without torch."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import median_low
from typing import Any, Literal

from segmeter.checks import Problems, collecting

Size = tuple[int, int]

LARGEST_WHOLE = 512 * 512  # pixels; larger images are cut where the crop is "auto"
CROP_STEP = 32  # the usual stride of networks, so that no crop is padded
_CHANGES = ("rotate", "shear", "brightness", "contrast", "colour", "gamma", "noise", "blur")  # of every kind of image
LEAST_CROP = 16  # pixels; below it the deepest features of a U-Net have no extent left to learn from


@dataclass(frozen=True, kw_only=True)
class AugmentConfig:
    """How samples are drawn. Every draw is decided by the seed, the epoch and the case alone.

    Parameters
    ----------
    crop
        Height and width of a sample in pixels; null takes whole images, which then must be of one size per batch;
        "auto" takes whole images of one size up to `LARGEST_WHOLE` pixels, else see `choose_crop`.
    zoom
        Least and largest magnification, drawn evenly on a log scale; 2 makes objects twice as large.
    balance
        Part of the samples that are laid around a pixel of a class: each class as often, in the cases that have it.
    resolution
        Share of the full resolution at the start of the run. It grows in a straight line from `resolution_from` of
        the run on, until the whole of it is reached at `resolution_until`. Samples shrink with it: at 0.5 a step
        costs a quarter.
    flip_horizontal, flip_vertical
        Mirror half of the samples left to right, upside down.
    rotate, shear
        Largest angles in degrees, both ways.
    brightness, contrast, saturation, colour
        Largest relative change of the whole image, of its distance from its mean, of its distance from grey, and of
        each channel on its own.
    gamma
        Largest exponent less 1, on the image scaled to its own range; the exponents g and 1/g are as likely.
    noise
        Largest standard deviation of Gaussian noise, as a share of the image's own.
    blur
        Largest standard deviation of a Gaussian blur, in pixels.
    """

    crop: tuple[int, ...] | Literal["auto"] | None = "auto"
    zoom: tuple[float, ...] = (1.0, 1.0)
    balance: float = 0.0
    resolution: float = 1.0
    resolution_from: float = 0.0
    resolution_until: float = 0.7
    flip_horizontal: bool = True
    flip_vertical: bool = False
    rotate: float = 0.0
    shear: float = 0.0
    brightness: float = 0.2
    contrast: float = 0.2
    saturation: float = 0.0
    colour: float = 0.0
    gamma: float = 0.0
    noise: float = 0.0
    blur: float = 0.0

    def __post_init__(self) -> None:
        with collecting("augment") as problems:
            self._check_sample(problems)
            problems.in_range("rotate", self.rotate, 0, 180)
            problems.in_range("shear", self.shear, 0, 60)
            for name in ("brightness", "contrast", "saturation", "colour"):
                problems.in_range(name, getattr(self, name), 0, 0.95)
            problems.in_range("gamma", self.gamma, 0, 4)
            problems.in_range("noise", self.noise, 0, 4)
            problems.in_range("blur", self.blur, 0, 8)

    def _check_sample(self, problems: Problems) -> None:
        if isinstance(self.crop, tuple | list):
            for size in self.crop:
                problems.in_range("crop", size, LEAST_CROP, 16384)
            problems.expect(len(self.crop) == 2, "crop", "to be auto, null or [height, width]", self.crop)
        for factor in self.zoom:
            problems.in_range("zoom", factor, 0.1, 10)
        ordered = len(self.zoom) == 2 and self.zoom[0] <= self.zoom[1]
        problems.expect(ordered, "zoom", "to be [least, largest]", list(self.zoom))
        problems.in_range("balance", self.balance, 0, 1)
        problems.in_range("resolution", self.resolution, 0.1, 1)
        problems.in_range("resolution_until", self.resolution_until, 0, 1, above=True)
        grows = 0 <= self.resolution_from < self.resolution_until
        problems.expect(grows, "resolution_from", "from 0 to below resolution_until", self.resolution_from)

    @property
    def changes_values(self) -> bool:
        """Whether a sample differs each time it is drawn, wherever it is cut; mirroring alone gives few variants."""
        return any(getattr(self, name) > 0 for name in _CHANGES)


def choose_crop(config: AugmentConfig, sizes: Mapping[Any, int]) -> AugmentConfig:
    """Replace the crop "auto" by what suits the images.

    Whole images where all have one size of at most `LARGEST_WHOLE` pixels; else half of the images are at least as
    large as the crop, whose sides are multiples of `CROP_STEP` up to 512. What a crop has beyond a small image is
    ignored.

    Parameters
    ----------
    sizes
        Images of each (height, width).

    Examples
    --------
    >>> choose_crop(AugmentConfig(), {(360, 480): 367}).crop, choose_crop(AugmentConfig(), {(960, 999): 7}).crop
    (None, (512, 512))
    >>> choose_crop(AugmentConfig(), {(256, 256): 300, (260, 347): 90, (1040, 1388): 16}).crop
    (256, 256)
    """
    if config.crop != "auto":
        return config
    if len(sizes) < 2 and all(height * width <= LARGEST_WHOLE for height, width in sizes):
        return replace(config, crop=None)
    most = math.isqrt(LARGEST_WHOLE)
    every = [size for size, count in sizes.items() for _ in range(count)]
    sides = (median_low([size[axis] for size in every]) for axis in (0, 1))
    return replace(config, crop=tuple(min(most, max(CROP_STEP, side // CROP_STEP * CROP_STEP)) for side in sides))
