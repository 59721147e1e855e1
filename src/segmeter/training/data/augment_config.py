"""Schema of the group `augment`: how training samples are cut and changed, without torch."""

from collections.abc import Mapping
from statistics import median_low
from typing import Annotated, Any, Literal

from pydantic import Field

from segmeter.schema import Config, Given, RuleError, Unit, rule

Size = tuple[int, int]

LARGEST_SIDE = 512  # pixels; with the crop "auto", images larger than a square of this side are cropped
CROP_STEP = 32  # the usual stride of networks, so that no crop is padded
# The changes that make each repeat of a sample another one. Mirroring has few variants, and saturation none in grey.
_VARYING = ("rotate", "shear", "brightness", "contrast", "colour", "gamma", "noise", "blur")
LEAST_CROP = 16  # pixels; below it the deepest features of a U-Net have no extent left

Edge = Annotated[int, Unit("pixels"), Field(ge=LEAST_CROP, le=16384)]
Magnification = Annotated[float, Unit("magnification"), Field(ge=0.1, le=10)]
Change = Annotated[float, Unit("relative change"), Field(ge=0, le=0.95)]
RunShare = Annotated[float, Unit("share of the run")]


class AugmentConfig(Config, title="augment"):
    """The way samples are drawn. The seed, the epoch and the case alone decide every draw."""

    crop: tuple[Edge, Edge] | Literal["auto"] | None = "auto"
    """Size of a sample: [height, width]. With null, samples are whole images, which must have one size per batch. With
    "auto", images of one size up to 512 x 512 are taken whole, and others are cropped to a usual size up to that."""
    zoom: tuple[Magnification, Magnification] = (1.0, 1.0)
    """[smallest, largest] magnification, drawn evenly on a log scale; 2 makes objects twice as large."""
    balance: Annotated[float | None, Unit("share of the samples")] = Field(None, ge=0, le=1)
    """Samples that are cut around a pixel of a class, each class equally often, in cases that have it. With null, this
    is a third for planes of volumes, and for crops with training=auto. Otherwise it is none."""
    resolution: Annotated[float, Unit("share of the full resolution")] = Field(1.0, ge=0.1, le=1)
    """Resolution at the start of the run. It grows linearly from `resolution_from` to `resolution_until` of the run.
    Samples shrink with it: at 0.5 a step costs a quarter."""
    resolution_until: RunShare = Field(0.7, gt=0, le=1)
    """When the images reach their full resolution."""
    resolution_from: RunShare = Field(0.0, ge=0, lt=1)
    """When the resolution starts to grow, before `resolution_until`."""
    flip_horizontal: bool = True
    """Mirror half of the samples left to right."""
    flip_vertical: bool = False
    """Mirror half of the samples upside down; for images without a natural up."""
    rotate: Annotated[float, Unit("degrees")] = Field(0.0, ge=0, le=180)
    """Largest angle of rotation, both ways."""
    shear: Annotated[float, Unit("degrees")] = Field(0.0, ge=0, le=60)
    """Largest angle of shear, both ways."""
    brightness: Change = 0.2
    """Largest change of the whole image."""
    contrast: Change = 0.2
    """Largest change of the distance from the image's mean."""
    saturation: Change = 0.0
    """Largest change of the distance from grey."""
    colour: Change = 0.0
    """Largest change of each channel on its own."""
    gamma: float = Field(0.0, ge=0, le=4)
    """Largest exponent minus 1, on the image scaled to its own range; exponents g and 1/g are equally likely."""
    noise: Annotated[float, Unit("share of the image's standard deviation")] = Field(0.0, ge=0, le=4)
    """Largest standard deviation of Gaussian noise."""
    blur: Annotated[float, Unit("pixels")] = Field(0.0, ge=0, le=8)
    """Largest standard deviation of a Gaussian blur."""

    @rule("zoom", "resolution_from")
    def _ordered(cls, value: Any, given: Given) -> None:
        if given.own_key == "zoom" and value[0] > value[1]:
            raise RuleError("to be [least, largest]")
        if given.own_key == "resolution_from" and value >= given.resolution_until:
            raise RuleError("to be below resolution_until")

    @property
    def changes_values(self) -> bool:
        """Whether a sample's values differ each time it is drawn, often enough to repeat it within an epoch."""
        return any(getattr(self, name) > 0 for name in _VARYING)

    @property
    def can_repeat(self) -> bool:
        """Whether two draws of a case give different samples, in values or in place."""
        return self.changes_values or self.crop is not None or tuple(self.zoom) != (1.0, 1.0)


def choose_crop(config: AugmentConfig, sizes: Mapping[Any, int], *, side: int = LARGEST_SIDE) -> AugmentConfig:
    """Replace the crop "auto" by one that suits the images.

    Images of a single size of at most `side` x `side` pixels are taken whole. Otherwise the crop's sides are multiples
    of `CROP_STEP` up to `side`, and half of the images are at least that large. Where a crop reaches beyond a small
    image, its pixels are ignored.

    Parameters
    ----------
    sizes
        Number of images of each (height, width).
    side
        Pixels of the largest crop's edge.

    Examples
    --------
    >>> choose_crop(AugmentConfig(), {(360, 480): 367}).crop, choose_crop(AugmentConfig(), {(960, 999): 7}).crop
    (None, (512, 512))
    >>> choose_crop(AugmentConfig(), {(256, 256): 300, (260, 347): 90, (1040, 1388): 16}).crop
    (256, 256)
    """
    if config.crop != "auto":
        return config
    if len(sizes) < 2 and all(height * width <= side * side for height, width in sizes):
        return config.replace(crop=None)
    size_of_each = [size for size, count in sizes.items() for _ in range(count)]
    edges = (median_low([size[axis] for size in size_of_each]) for axis in (0, 1))
    return config.replace(crop=tuple(min(side, max(CROP_STEP, edge // CROP_STEP * CROP_STEP)) for edge in edges))
