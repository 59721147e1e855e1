"""Declares the card of a model that others trained, and registers models of plugins, without importing torch.

A card has the keys of `model` and of a `model.yaml`. A null key is filled from the model's own files, or else by a
convention of its library. If neither knows it, the user is asked for it.
"""

import inspect
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

from pydantic import Field

from segmeter.errors import ConfigError
from segmeter.schema import Config, Unit

_FITS = "any, multiple:32, fixed:512x512, short:512, long:1024 or letterbox:640"
Fit = Annotated[
    str,
    Field(
        pattern=r"^(any|(multiple|short|long|letterbox):\d+|(fixed|letterbox):\d+x\d+)$",
        json_schema_extra={"words": _FITS},
    ),
]

Model = TypeVar("Model", bound=Callable[..., Any])


class InputConfig(Config, title="model.input"):
    """The images that the network takes."""

    channels: Annotated[int | None, Unit("channels")] = Field(None, ge=1)
    """Channels of an image."""
    order: Literal["rgb", "bgr", "grey"] | None = None
    """The order in which the network takes colours; images are read as RGB. "grey" repeats grey images `channels`
    times."""
    dtype: Literal["uint8", "uint16", "float32"] | None = None
    """The dtype of the stored images that the model was trained on. Images of another dtype are refused; null takes
    any."""
    scale: Annotated[float | None, Unit("times")] = Field(None, gt=0)
    """The stored values are multiplied by this first; null divides by the largest value of their dtype (255, 65535)."""
    mean: tuple[float, ...] | None = None
    """Subtracted from the scaled values, per channel; [] subtracts nothing."""
    std: tuple[Annotated[float, Field(gt=0)], ...] | None = None
    """The scaled values are divided by this after `mean` was subtracted, per channel; [] divides by nothing."""
    axes: Literal["BCHW", "BHWC"] | None = None
    """The order of the network's axes: B images, C channels, H height, W width."""


class SizeConfig(Config, title="model.size"):
    """The sizes that the network takes, and how images are brought to them."""

    fit: Fit | None = None
    """"any"; "multiple:32" pads to it; "fixed:512x512" (height x width), "short:512" and "long:1024" (the shorter or
    the longer side) resize; "letterbox:640" resizes to fit, and pads with grey."""
    longest: Annotated[int | None, Unit("pixels")] = Field(None, ge=1)
    """Largest length of the longer side with "short:512"; null sets no limit."""
    multiple: Annotated[int | None, Unit("pixels")] = Field(None, ge=1)
    """The sides of a resized image are rounded up to a multiple of this."""
    filter: Literal["nearest", "bilinear", "bicubic"] | None = None
    """How images are resized."""
    antialias: bool | None = None
    """Whether images are smoothed where resizing makes them smaller."""
    backend: Literal["torchvision", "opencv"] | None = None
    """The library whose arithmetic resizes the stored values; their results differ by one grey level in places."""

    @property
    def parsed(self) -> tuple[str, list[int]]:
        """The kind of `fit` and its numbers: ("fixed", [512, 512])."""
        kind, _, numbers = str(self.fit).partition(":")
        return kind, [int(number) for number in re.findall(r"\d+", numbers)]


class OutputConfig(Config, title="model.output"):
    """The output of the network."""

    kind: Literal["logits", "probs", "labels", "instances"] | None = None
    """"logits", "probs", "labels" (class numbers), or "instances" (masks of objects with scores and classes)."""
    name: str | None = None
    """The output to take of an ONNX file that has several."""
    axes: Literal["BKHW", "BHWK", "BHW"] | None = None
    """The order of the output's axes; K is the classes. Labels are BHW."""
    activation: Literal["softmax", "sigmoid"] | None = None
    """"softmax" if the classes exclude each other, "sigmoid" if the channels are independent, as in a binary model."""
    score: Annotated[float | None, Unit("probability")] = Field(None, ge=0, le=1)
    """Instances with a lower score are dropped."""
    overlap: Annotated[float | None, Unit("IoU")] = Field(None, ge=0, le=1)
    """If two boxes of a class overlap by more than this, the instance with the lower score is dropped."""
    background: str | None = None
    """The data's class of pixels without an object, for instances."""


class ForeignConfig(Config, title="model"):
    """The card of a model that others trained; a checkpoint of ours has its own."""

    card: str | None = None
    """A YAML file with these keys. null takes `model.yaml` beside the model's file, if there is one."""
    weights: str | None = None
    """The weights of a torchvision or segmentation-models-pytorch network: safetensors, or a state dict."""
    classes: tuple[str, ...] | None = None
    """The model's classes, in the order of its channels or numbers."""
    class_map: dict[str, str] | None = None
    """The data's class of each of the model's classes, by name or number: {bus: Car, 3: Sky}. Classes of equal names in
    both need no entry; "*" stands for all that are not named."""
    data_classes: tuple[str, ...] | None = None
    """The data's classes in their order, for commands without a data set, such as `predict`."""
    input: InputConfig = InputConfig()
    """The images that the network takes."""
    size: SizeConfig = SizeConfig()
    """The sizes that it takes."""
    output: OutputConfig = OutputConfig()
    """The output of the network."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Further arguments of segmentation-models-pytorch's network, such as decoder_channels."""

    @property
    def num_channels(self) -> int:
        """Channels of the logits or probabilities: one per class, or a single one of a binary model."""
        count = len(self.classes or ())
        return 1 if self.output.activation == "sigmoid" and count == 2 else count


class Source(NamedTuple):
    """A model as the command line names it, its family, and its path or name within the family."""

    text: str
    family: str
    place: str


class Facts(NamedTuple):
    """Values of a card that a model's own files give, the files, and guesses by its library's conventions."""

    values: dict[str, Any]
    files: tuple[Path, ...]
    guesses: Mapping[str, Any] | None = None


PLUGINS: dict[str, tuple[Callable[..., Any], Facts]] = {}
_STORED = {
    "input": {"scale": 1.0, "mean": (), "order": "rgb"},
    "size": {"fit": "any"},
}  # A plugin gets images as they are stored


def overlay(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """Merge the values of cards; later layers override earlier ones, except by null and by empty mappings."""
    merged: dict[str, Any] = {}
    for layer in layers:
        for key, value in layer.items():
            if isinstance(value, Mapping):
                merged[key] = overlay(merged.get(key) or {}, value)
            elif value is not None:
                merged[key] = value
    return merged


def register_model(name: str, **card: Any) -> Callable[[Model], Model]:
    """Register the decorated callable as a model: ``checkpoint=NAME plugins=[MODULE]`` runs it.

    Parameters
    ----------
    name
        The name on the command line.
    card
        Keys of the group `model`, such as ``classes=["background", "cell"]``; a card file and the command line
        override them. Without ``input``, the callable gets images as they are stored.

    Returns
    -------
    A decorator for a callable that takes a tensor (B, C, H, W) and returns the kind in ``output={"kind": ...}``:
    "logits" or "probs" (B, K, H, W), "labels" (B, H, W), or "instances". Instances are, for each image, a tuple of
    scores (N,), classes (N,) and masks (N, H, W).

    Raises
    ------
    ConfigError
        The name is taken, or the card has an unknown key or value.

    Examples
    --------
    >>> from segmeter.models import register_model
    >>> @register_model("dark-is-cell", classes=["background", "cell"], output={"kind": "labels"})
    ... def dark_is_cell(images):
    ...     return (images.float().mean(1) < 100).int()
    """

    def add(call: Model) -> Model:
        file = Path(inspect.getsourcefile(inspect.unwrap(call)) or "")
        _, known = PLUGINS.get(name, (None, None))
        if known is not None and known.files != (file,):
            raise ConfigError(f"model: expected a new name, got {name!r}, which {known.files[0]} registered already.")
        PLUGINS[name] = call, Facts(overlay(_STORED, ForeignConfig(**card).model_dump(mode="json")), (file,))
        return call

    return add
