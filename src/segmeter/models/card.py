"""Defines the card of a model: everything that a checkpoint records to rebuild the model and interpret its output."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from segmeter.checks import collecting
from segmeter.classes import ClassSpec

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
_FOREIGN = ("foreign", "output", "class_map", "resizes")


def default_normalisation(in_channels: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return mean and deviation per channel for images in 0 .. 1: ImageNet's for three channels, else 0.5 and 0.25."""
    if in_channels == 3:
        return IMAGENET_MEAN, IMAGENET_STD
    return (0.5,) * in_channels, (0.25,) * in_channels


@dataclass(frozen=True, kw_only=True)
class ModelCard:
    """Everything needed to build a segmenter and to interpret its output.

    Parameters
    ----------
    model
        The network's registered name under "name", and its fields: ``as_plain`` of its configuration.
    spec
        Task, class names, colours, ignore_index.
    in_channels
        Channels of the image.
    mean, std
        Per channel, for images scaled to 0 .. 1 (uint8 / 255, uint16 / 65535, float as it is). std > 0.
    clip
        Lowest and highest value per channel, on that scale; values beyond are clipped. Empty: no clipping.
    data
        The kind of data set it was trained on, and how its files are found and read, as JSON values; empty where
        unknown. It has no root: a checkpoint names no folder of the machine that it comes from.
    class_pixels
        Pixels of each class in the training set, ignored ones excluded; empty where unknown.
    foreign
        Whether others trained it. Only then can the next three differ from their defaults; no checkpoint records them.
    output
        Whether the model gives logits, labels, or instances: for each image the class and the object of every pixel.
    class_map
        The class of each number or channel of the model; empty if it gives the classes themselves.
    resizes
        Whether it resizes images, so that it can't run in tiles or on mirrored images.

    Raises
    ------
    ConfigError
        A length does not match `in_channels`, or a value is unusable.
    """

    model: Mapping[str, Any]
    spec: ClassSpec
    in_channels: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    clip: tuple[tuple[float, float], ...] = ()
    data: Mapping[str, Any] = field(default_factory=dict)
    class_pixels: tuple[int, ...] = ()
    foreign: bool = False
    output: Literal["logits", "labels", "instances"] = "logits"
    class_map: tuple[int, ...] = ()
    resizes: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "model", {key: _as_tuple(value) for key, value in self.model.items()})
        with collecting("model card") as problems:
            problems.in_range("in_channels", self.in_channels, 1)
            for name, values in (("mean", self.mean), ("std", self.std)):
                rule = f"to be {self.in_channels} values, one per channel"
                problems.expect(len(values) == self.in_channels, name, rule, list(values))
                for value in values:
                    problems.in_range(name, value, 0 if name == "std" else -1e6, 1e6, above=name == "std")
            fits = not self.clip or (len(self.clip) == self.in_channels and all(low < high for low, high in self.clip))
            counted = len(self.class_pixels) in (0, self.spec.num_classes)
            rule = f"to be {self.spec.num_classes} counts, one per class"
            problems.expect(counted, "class_pixels", rule, list(self.class_pixels))
            problems.expect(fits, "clip", f"to be {self.in_channels} pairs of a lower and a higher value", self.clip)

    @property
    def context(self) -> int:
        """Neighbouring planes of a volume on each side that are channels of an image, see `data.context`."""
        return int(self.data.get("context", 0))

    @property
    def plane_channels(self) -> int:
        """Channels of one plane; `in_channels` without neighbouring planes."""
        return self.in_channels // (2 * self.context + 1)

    @property
    def runs_whole(self) -> bool:
        """Whether it only takes whole images: resized tiles look different, and labels can't be blended."""
        return self.resizes or self.output != "logits"

    def to_dict(self) -> dict[str, Any]:
        """Return the card as JSON values."""
        kept = {key: value for key, value in vars(self).items() if key not in _FOREIGN}
        return {**kept, "spec": self.spec.model_dump()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "ModelCard":
        """Rebuild a card from the values of `to_dict` after a round trip through JSON.

        Raises
        ------
        KeyError, TypeError, ConfigError
            A key is missing or its value is invalid.
        """
        return cls(
            model=values["model"],
            spec=ClassSpec(**{key: values["spec"][key] for key in ("task", "names", "colours", "ignore_index")}),
            in_channels=values["in_channels"],
            mean=tuple(values["mean"]),
            std=tuple(values["std"]),
            clip=tuple((low, high) for low, high in values.get("clip", ())),
            data=dict(values.get("data", {})),  # older checkpoints lack it
            class_pixels=tuple(int(count) for count in values.get("class_pixels", ())),
        )


def _as_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
