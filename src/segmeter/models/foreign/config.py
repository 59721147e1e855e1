"""The card of a model that others trained: the keys of `model` and of a `model.yaml`; torch is not imported here.

Null means that nobody has said it yet. The model's own files fill such a key, then a convention of its library does,
and a key that none of them knows is asked for.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from segmeter.checks import shorten
from segmeter.classes import ClassSpec
from segmeter.schema import Config, Given, RuleError, Unit, rule

_RULE = re.compile(r"any|multiple:\d+|fixed:\d+x\d+|short:\d+|long:\d+|letterbox:\d+x\d+|letterbox:\d+")

Values = tuple[float, ...]
OutputKind = Literal["logits", "probs", "labels", "instances"]


class InputConfig(Config, title="model.input"):
    """The images that the network takes."""

    channels: Annotated[int | None, Unit("channels")] = Field(None, ge=1)
    """Channels of an image."""
    order: Literal["rgb", "bgr", "grey"] | None = None
    """The order in which the network takes colours; images are read as RGB. "grey" repeats grey images `channels`
    times."""
    dtype: Literal["uint8", "uint16", "float32"] | None = None
    """The dtype of the stored images that the model was trained on; images of another are refused. null takes any."""
    scale: Annotated[float | None, Unit("times")] = Field(None, gt=0)
    """The stored values are multiplied by this first; null divides by the largest value of their dtype (255, 65535)."""
    mean: Values | None = None
    """Subtracted from the scaled values, per channel; [] subtracts nothing."""
    std: tuple[Annotated[float, Field(gt=0)], ...] | None = None
    """The scaled values are divided by this after `mean` was subtracted, per channel; [] divides by nothing."""
    axes: Literal["BCHW", "BHWC"] | None = None
    """The order of the network's axes: B images, C channels, H height, W width."""


class SizeConfig(Config, title="model.size"):
    """The sizes that the network takes, and how images are brought to them."""

    fit: str | None = None
    """"any"; "multiple:32" pads to it; "fixed:512x512" (height x width), "short:512" and "long:1024" (the shorter or
    the longer side) resize; "letterbox:640" resizes to fit, and pads with grey."""
    longest: Annotated[int | None, Unit("pixels")] = Field(None, ge=1)
    """Most pixels of the longer side with "short:512"; null sets no limit."""
    multiple: Annotated[int | None, Unit("pixels")] = Field(None, ge=1)
    """The sides of a resized image are rounded up to a multiple of this."""
    filter: Literal["nearest", "bilinear", "bicubic"] | None = None
    """How images are resized."""
    antialias: bool | None = None
    """Whether images are smoothed where resizing makes them smaller."""
    backend: Literal["torchvision", "opencv"] | None = None
    """The library whose arithmetic resizes the stored values; their results differ by one grey level in places."""

    @rule("fit")
    def _known(cls, text: str | None, given: Given) -> None:
        if text is not None and not _RULE.fullmatch(text):
            raise RuleError("to be any, multiple:32, fixed:512x512, short:512, long:1024 or letterbox:640")


class OutputConfig(Config, title="model.output"):
    """The output of the network."""

    kind: OutputKind | None = None
    """"logits", "probs", "labels" (class numbers), or "instances" (masks of objects with scores and classes)."""
    name: str | None = None
    """The output to take of an ONNX file that has several."""
    axes: Literal["BKHW", "BHWK", "BHW"] | None = None
    """The order of the output's axes; K is the classes. Labels are BHW."""
    activation: Literal["softmax", "sigmoid"] | None = None
    """"softmax" if the classes exclude each other, "sigmoid" if each channel stands alone, as in a binary model."""
    score: Annotated[float | None, Unit("probability")] = Field(None, ge=0, le=1)
    """Instances: those with a lower score are dropped."""
    overlap: Annotated[float | None, Unit("IoU")] = Field(None, ge=0, le=1)
    """Instances: of two boxes of a class that overlap more than this, the one with the lower score is dropped."""
    background: str | None = None
    """Instances: the data's class of pixels without an object."""


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
    """The data's classes in their order, where no data set says them, as in `predict`."""
    input: InputConfig = InputConfig()
    """The images that the network takes."""
    size: SizeConfig = SizeConfig()
    """The sizes that it takes."""
    output: OutputConfig = OutputConfig()
    """The output of the network."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Further arguments of segmentation-models-pytorch's network, such as decoder_channels."""


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Values of a card that a model's own files say, those that its library's conventions suggest, and its files."""

    values: dict[str, Any]
    guesses: dict[str, Any]
    files: tuple[Path, ...]


def overlay(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Lay values over others; null and empty mappings hide nothing."""
    found = dict(below)
    for key, value in above.items():
        if isinstance(value, dict) and isinstance(found.get(key, {}), dict):
            found[key] = overlay(found.get(key) or {}, value)
        elif value is not None:
            found[key] = value
    return found


SYNONYMS = (  # names of one thing in the data sets that segmeter knows
    ("person", "pedestrian", "people", "human"), ("bicycle", "bicyclist", "bike", "cyclist", "rider"),
    ("tree", "vegetation"), ("sidewalk", "pavement", "footpath"), ("sign", "traffic sign", "signsymbol", "signboard"),
    ("car", "auto", "automobile"), ("motorcycle", "motorbike"), ("background", "bg", "none", "void"),
    ("building", "edifice", "house"), ("pole", "column", "column_pole"), ("road", "street", "route"),
    ("airplane", "aeroplane", "plane"), ("television", "tvmonitor", "tv"), ("couch", "sofa"),
    ("cell", "nucleus", "cells", "nuclei"),
)  # fmt: skip


def normal(name: str) -> str:
    """A class's name without case and signs, to compare it."""
    return re.sub(r"[\W_]+", " ", name).strip().lower()


def propose(classes: tuple[str, ...], targets: tuple[str, ...]) -> dict[str, str]:
    """Find the data's class of each class of the model, by equal names and then by synonyms; others are left out."""
    known = {normal(name): name for name in targets}
    found: dict[str, Any] = {}
    for name in classes:
        parts = [normal(part) for part in (name, *re.split(r"[,;/]", name))]  # ADE20K lists synonyms in a name
        same = [
            word for part in parts for group in SYNONYMS if part in map(normal, group) for word in map(normal, group)
        ]
        hits = [known[word] for word in (*parts, *same) if word in known]
        found |= {name: hits[0]} if hits else {}
    return found


def class_numbers(config: ForeignConfig, spec: ClassSpec) -> tuple[tuple[int, ...], list[str]]:
    """The number of the data's class of each of the model's classes, and a line per problem."""
    names, given = config.classes or (), dict(config.class_map or {})
    rest, equal = given.pop("*", None), {normal(name): name for name in spec.names}
    by_key = {**{str(i): name for i, name in enumerate(names)}, **{name: name for name in names}}
    wanted = {by_key[key]: value for key, value in given.items() if key in by_key}
    targets = {name: wanted.get(name, equal.get(normal(name), rest)) for name in names}
    spoken = {*targets.values(), *given.values(), rest, config.output.background} - {None}
    problems = []
    for what, found in (
        ("names classes that the model lacks", [key for key in given if key not in by_key]),
        ("names classes that the data lacks", sorted(str(name) for name in spoken - {*spec.names})),
        ("says nothing of the model's classes", [name for name, target in targets.items() if target is None]),
        ("gives no source of the data's classes", [name for name in spec.names if name not in spoken]),
    ):
        if found:
            problems.append(f"{what} {shorten(found)}")
    return tuple(spec.names.index(name) if name in spec.names else 0 for name in map(str, targets.values())), problems
