"""Opens a model that others trained: finds its family, completes its card, and maps its classes to the data's."""

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import torch

from segmeter.checks import expected, shorten
from segmeter.classes import ClassSpec, Task
from segmeter.data.classes_config import default_colours
from segmeter.errors import ConfigError
from segmeter.files import sha256_file
from segmeter.models.card import ModelCard, default_normalisation
from segmeter.models.foreign import hub, libraries, onnx_file
from segmeter.models.foreign.config import PLUGINS, Facts, ForeignConfig
from segmeter.models.foreign.network import ForeignModel
from segmeter.records import flatten, read_yaml
from segmeter.remote import fetch
from segmeter.schema import as_plain

CARD = "model.yaml"
_USUAL = {  # defaults that need no mention
    "input": {"axes": "BCHW"},
    "size": {"filter": "bilinear", "antialias": True, "backend": "torchvision"},
    "output": {"score": 0.5, "overlap": 0.7, "axes": "BKHW"},
}
_GUESSED = {"input": {"channels": 3, "order": "rgb"}, "output": {"kind": "logits", "activation": "softmax"}}


class Source(NamedTuple):
    """A model as the command line names it, its family, and where it is."""

    text: str
    family: str
    place: str


@dataclass(frozen=True, kw_only=True)
class Described:
    """A model's complete card, the keys that were guessed, and the hash of its files and card."""

    source: Source
    config: ForeignConfig
    guessed: tuple[str, ...]
    sha256: str


@dataclass(frozen=True, kw_only=True)
class ForeignCheckpoint(Described):
    """A model that others trained, as a member of `Checkpoints`; nobody knows how it was trained."""

    card: ModelCard
    progress: ClassVar[Mapping[str, Any]] = {}

    @property
    def folder(self) -> str:
        """The name by which the user gave it."""
        return self.source.text

    def load_segmenter(self, device: str | torch.device = "cpu") -> ForeignModel:
        """Build the network and load its weights, in evaluation mode.

        Raises
        ------
        CheckpointError
            It can't be read, or weights are missing.
        ConfigError
            Its card does not fit the network.
        """
        network = _FAMILIES[self.source.family][1](self.source.place, self.config)
        return ForeignModel(network, self.card, self.config).to(device).eval()


def find_source(checkpoint: str | Path) -> Source | None:
    """Find the family of a model that others trained; None for a checkpoint or run of ours."""
    text = Path(checkpoint).as_posix() if isinstance(checkpoint, Path) else checkpoint
    family, sign, place = text.partition(":")
    if sign and family in ("hf", "torchvision", "smp"):
        return Source(text, family, place)
    if text in PLUGINS:
        return Source(text, "plugin", text)
    return Source(text, "onnx", text) if text.endswith(".onnx") else None


def describe(source: Source, told: ForeignConfig) -> Described:
    """Complete the card of a model from its own files, its card file, and the command line, which comes first.

    Raises
    ------
    ConfigError
        A key is unknown, or wrong.
    CheckpointError
        The model can't be read, or would run code.
    """
    facts = _FAMILIES[source.family][0](source.place, told)
    values = overlay(overlay(facts.values, _read_card(source, told)), told.model_dump(mode="json"))
    guesses = overlay(_GUESSED, facts.guesses)
    known = {key for key, value in flatten(values).items() if value is not None}
    guessed = sorted(flatten(guesses).keys() - known)
    config = ForeignConfig(**overlay(overlay(_USUAL, guesses), values))
    if config.output.kind in ("labels", "instances"):
        guessed = [key for key in guessed if key != "output.activation"]  # which these lack
    scaling = config.input.scale if config.input.mean is None else config.input.mean
    asked: dict[str, Any] = {"classes": config.classes, "size.fit": config.size.fit}
    asked |= {"input.mean (and std; [] for none), or input.scale": scaling}
    lacking = ", ".join(f"model.{key}" for key, value in asked.items() if value is None)
    if lacking:
        raise ConfigError(
            f"{source.text}: nothing tells {lacking}. Set them, or write them to {CARD} beside the model."
        )
    hashes = [sha256_file(path) for path in facts.files]
    plain = json.dumps([hashes, as_plain(config.replace(card=None, weights=None))], sort_keys=True)
    digest = hashlib.sha256(plain.encode()).hexdigest()
    return Described(source=source, config=config, guessed=tuple(guessed), sha256=digest)


def open_foreign(described: Described, spec: ClassSpec | None, *, remedy: str = "") -> ForeignCheckpoint:
    """Map a model's classes to the data's.

    Parameters
    ----------
    spec
        The data's classes; None takes those that the card names.
    remedy
        What to do about classes without a partner; by default to let `segmeter check` propose some.

    Raises
    ------
    ConfigError
        A class of either side has no partner, or the model can't have this task.
    """
    config, text = described.config, described.source.text
    spec = spec or _own_spec(config)
    if spec.task not in _tasks(config):
        given = f"{spec.task} data for a model of {config.output.kind} with {config.output.activation}"
        advice = "Set model.output.activation if that is wrong."
        raise ConfigError(expected("model", "output", "to go with the data's task", given, advice))
    numbers, problems = class_numbers(config, spec)
    if problems:
        sides = f"{', '.join(config.classes or ())} | {', '.join(spec.names)}"
        advice = remedy or f"segmeter check proposes one. Names of both sides: {sides}."
        raise ConfigError([*(f"{text}: model.class_map {problem}." for problem in problems), f"{text}: {advice}"])
    same = config.output.activation == "sigmoid" or (spec.task != "binary" and numbers == (*range(spec.num_classes),))
    if config.output.kind == "instances":
        numbers = (*numbers, spec.names.index(config.output.background or spec.names[0]))
    elif same and config.output.kind != "labels":
        numbers = ()
    channels = 1 if config.input.order == "grey" else config.input.channels or 3
    usual = default_normalisation(channels)
    factor = 1.0 if config.input.scale is None else config.input.scale * 255
    card = ModelCard(
        model={"name": text},
        spec=spec,
        in_channels=channels,
        mean=tuple(value / factor for value in (config.input.mean or ())[:channels]) or usual[0],
        std=tuple(value / factor for value in (config.input.std or ())[:channels]) or usual[1],
        class_map=numbers,
        output=config.output.kind if config.output.kind in ("labels", "instances") else "logits",
        resizes=not str(config.size.fit).startswith(("any", "multiple")),
        foreign=True,
    )
    return ForeignCheckpoint(**vars(described), card=card)


def _own_spec(config: ForeignConfig) -> ClassSpec:
    """Return the classes that a model's card names, for commands without a data set."""
    names = config.data_classes or config.classes or ()
    if config.class_map and config.data_classes is None:
        rule = "with model.class_map to name the data's classes in their order"
        raise ConfigError(expected("model", "data_classes", rule, "null"))
    return ClassSpec(task=_tasks(config)[0], names=names, colours=default_colours(len(names)))


def _tasks(config: ForeignConfig) -> tuple[Task, ...]:
    """Return the tasks that a model can have, the usual one first."""
    if config.output.kind in ("labels", "instances") or config.output.activation == "softmax":
        return "multiclass", "binary"
    return ("binary",) if config.num_channels == 1 else ("multilabel",)


def beside(source: Source, told: ForeignConfig) -> Path | None:
    """Return the path of a model's card, beside its file or in its folder; None if the model has neither here."""
    near = Path(told.weights or source.place)
    if source.family == "plugin":  # a folder of its name is unrelated
        return None
    return near / CARD if near.is_dir() else near.parent / CARD if near.is_file() else None


def _read_card(source: Source, told: ForeignConfig) -> dict[str, Any]:
    path = beside(source, told) if told.card is None else fetch(told.card)
    if path is None or (told.card is None and not path.is_file()):
        return {}
    return ForeignConfig(**read_yaml(path)).model_dump(mode="json")


def _describe_plugin(place: str, told: ForeignConfig) -> Facts:
    plugin = PLUGINS[place]
    stored = {"input": {"scale": 1.0, "mean": (), "order": "rgb"}, "size": {"fit": "any"}}  # images as they are
    return Facts(overlay(stored, plugin.card.model_dump(mode="json")), (plugin.file,), {})


def overlay(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Lay values over others; null and empty mappings hide nothing."""
    found = dict(below)
    for key, value in above.items():
        if value is not None:
            found[key] = overlay(found.get(key) or {}, value) if isinstance(value, dict) else value
    return found


SYNONYMS = (  # names of one class in the data sets that segmeter knows, as `normal` gives them
    ("person", "pedestrian", "people", "human"), ("bicycle", "bicyclist", "bike", "cyclist", "rider"),
    ("tree", "vegetation"), ("sidewalk", "pavement", "footpath"), ("sign", "traffic sign", "signsymbol", "signboard"),
    ("car", "auto", "automobile"), ("motorcycle", "motorbike"), ("background", "bg", "none", "void"),
    ("building", "edifice", "house"), ("pole", "column", "column pole"), ("road", "street", "route"),
    ("airplane", "aeroplane", "plane"), ("television", "tvmonitor", "tv"), ("couch", "sofa"),
    ("cell", "nucleus", "cells", "nuclei"),
)  # fmt: skip


def normal(name: str) -> str:
    """Strip case and signs from a class's name, to compare it."""
    return re.sub(r"[\W_]+", " ", name).strip().lower()


def propose(classes: tuple[str, ...], targets: tuple[str, ...]) -> dict[str, str]:
    """Find the data's class of each class of the model, by equal names and then by synonyms; others are left out."""
    known, found = {normal(name): name for name in targets}, dict[str, str]()
    for name in classes:
        parts = [normal(part) for part in (name, *re.split(r"[,;/]", name))]  # ADE20K lists synonyms in a name
        same = [word for part in parts for group in SYNONYMS if part in group for word in group]
        hits = [known[word] for word in (*parts, *same) if word in known]
        found |= {name: hits[0]} if hits else {}
    return found


def class_numbers(config: ForeignConfig, spec: ClassSpec) -> tuple[tuple[int, ...], list[str]]:
    """Return the number of the data's class for each of the model's classes, and a line per problem."""
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


_FAMILIES: dict[str, tuple[Callable[[str, ForeignConfig], Facts], Callable[[str, ForeignConfig], Any]]] = {
    "hf": (hub.describe, hub.load),
    "torchvision": (partial(libraries.describe, fit="any"), partial(libraries.load, build=libraries.build_torchvision)),
    "smp": (partial(libraries.describe, fit="multiple:32"), partial(libraries.load, build=libraries.build_smp)),
    "onnx": (onnx_file.describe, onnx_file.load),
    "plugin": (_describe_plugin, lambda place, config: PLUGINS[place].call),
}
