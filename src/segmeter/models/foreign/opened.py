"""Opens a model that others trained: finds its family, completes its card, and maps its classes to the data's."""

import re
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from segmeter.checks import expected, shorten
from segmeter.classes import ClassSpec, Task
from segmeter.data.classes_config import default_colours
from segmeter.errors import ConfigError
from segmeter.files import sha256_file, sha256_json
from segmeter.models.config import ModelCard, default_normalisation
from segmeter.models.foreign import hub, libraries, onnx_file
from segmeter.models.foreign.config import PLUGINS, Facts, ForeignConfig, Source, overlay
from segmeter.models.foreign.network import ForeignModel
from segmeter.records import flatten, read_yaml
from segmeter.remote import fetch
from segmeter.schema import as_plain

CARD = "model.yaml"
_SCALING = "input.mean (and std; [] for none), or input.scale"
_DEFAULTS = {  # no warning names these
    "input": {"axes": "BCHW"},
    "size": {"filter": "bilinear", "antialias": True, "backend": "torchvision"},
    "output": {"score": 0.5, "overlap": 0.7, "axes": "BKHW"},
}
_GUESSED = {"input": {"channels": 3, "order": "rgb"}, "output": {"kind": "logits", "activation": "softmax"}}


@dataclass(frozen=True, kw_only=True)
class Described:
    """A model's complete card, the keys that were guessed, and the hash of its files and card."""

    source: Source
    config: ForeignConfig
    guessed: tuple[str, ...]
    sha256: str


@dataclass(frozen=True, kw_only=True)
class ForeignCheckpoint(Described):
    """A model that others trained, as a member of `Checkpoints`. Its training is unknown."""

    card: ModelCard

    def load_segmenter(self, device: str | torch.device = "cpu") -> ForeignModel:
        """Build the network and load its weights, in evaluation mode.

        Raises
        ------
        CheckpointError
            It can't be read, or weights are missing.
        ConfigError
            Its card does not fit the network.
        """
        network = _FAMILIES[self.source.family].load(self.source, self.config)
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


def describe(source: Source, user_card: ForeignConfig) -> Described:
    """Complete the card of a model from its own files, its card file, and the command line, which comes first.

    Raises
    ------
    ConfigError
        A key is unknown, or wrong.
    CheckpointError
        The model can't be read, or would run code.
    """
    facts: Facts = _FAMILIES[source.family].describe(source, user_card)
    path = beside(source, user_card) if user_card.card is None else fetch(user_card.card)
    written = read_yaml(path) if path is not None and (user_card.card is not None or path.is_file()) else {}
    layers = [config.model_dump(mode="json") for config in (ForeignConfig(**written), user_card)]
    values = overlay(facts.values, *layers)
    guesses = overlay(_GUESSED, facts.guesses or {})
    config = ForeignConfig(**overlay(_DEFAULTS, guesses, values))
    guessed = flatten(guesses).keys() - flatten(values).keys()
    if config.output.kind in ("labels", "instances"):
        guessed -= {"output.activation"}  # labels and instances have none
    scaling = config.input.scale if config.input.mean is None else config.input.mean
    required = {"classes": config.classes, "size.fit": config.size.fit, _SCALING: scaling}
    if config.output.kind == "instances":
        required["output.background"] = config.output.background
    lacking = ", ".join(f"model.{key}" for key, value in required.items() if value is None)
    if lacking:
        raise ConfigError(f"{source.text}: nothing tells {lacking}. Set them, or write {CARD} beside the model.")
    hashes = [sha256_file(path) for path in facts.files]
    card = as_plain(config.replace(card=None, weights=None))
    return Described(source=source, config=config, guessed=tuple(sorted(guessed)), sha256=sha256_json([hashes, card]))


def open_foreign(described: Described, spec: ClassSpec | None, *, remedy: str = "") -> ForeignCheckpoint:
    """Map a model's classes to the data's.

    Parameters
    ----------
    spec
        The data's classes; None takes those that the card names.
    remedy
        Advice about classes without a partner; by default, to let `segmeter check` propose some.

    Raises
    ------
    ConfigError
        A class of either side has no partner, or the model can't have this task.
    """
    config = described.config
    text = described.source.text
    images, output = config.input, config.output
    tasks: tuple[Task, ...] = ("multiclass", "binary")
    if output.kind in ("logits", "probs") and output.activation == "sigmoid":
        tasks = ("binary",) if config.num_channels == 1 else ("multilabel",)
    if spec is None:
        if config.class_map and config.data_classes is None:
            rule = "with model.class_map to name the data's classes in their order"
            raise ConfigError(expected("model", "data_classes", rule, "null"))
        names = config.data_classes or config.classes or ()
        spec = ClassSpec(task=tasks[0], names=names, colours=default_colours(len(names)))
    if spec.task not in tasks:
        given = f"{spec.task} data for a model of {output.kind} with {output.activation}"
        advice = "Set model.output.activation if that is wrong."
        raise ConfigError(expected("model", "output", "to go with the data's task", given, advice))
    numbers, problems = class_numbers(config, spec)
    if problems:
        sides = f"{', '.join(config.classes or ())} | {', '.join(spec.names)}"
        advice = remedy or f"segmeter check proposes one. Names of both sides: {sides}."
        raise ConfigError([*(f"{text}: model.class_map {problem}." for problem in problems), f"{text}: {advice}"])
    equal = output.activation == "sigmoid" or (spec.task != "binary" and numbers == (*range(spec.num_classes),))
    if output.kind == "instances":
        numbers = (*numbers, spec.names.index(str(output.background)))
    elif equal and output.kind != "labels":
        numbers = ()
    kind = output.kind if output.kind in ("labels", "instances") else "logits"
    channels = 1 if images.order == "grey" else images.channels or 3
    default_mean, default_std = default_normalisation(channels)
    factor = 1.0 if images.scale is None else images.scale * 255
    card = ModelCard(
        model={"name": text},
        spec=spec,
        in_channels=channels,
        mean=tuple(value / factor for value in (images.mean or ())[:channels]) or default_mean,
        std=tuple(value / factor for value in (images.std or ())[:channels]) or default_std,
        class_map=numbers,
        output=kind,
        runs_whole=kind != "logits" or not str(config.size.fit).startswith(("any", "multiple")),
        foreign=True,
    )
    return ForeignCheckpoint(**vars(described), card=card)


def beside(source: Source, user_card: ForeignConfig) -> Path | None:
    """Return the path of a model's card, beside its file or in its folder; None if the model has neither here."""
    path = Path(user_card.weights or source.place)
    if source.family == "plugin":  # a folder of its name is unrelated
        return None
    return path / CARD if path.is_dir() else path.parent / CARD if path.is_file() else None


# Synonyms of classes in the data sets that segmeter knows, in the form of `normal`
SYNONYMS = """person, pedestrian, people, human; bicycle, bicyclist, bike, cyclist, rider; tree, vegetation;
    sidewalk, pavement, footpath; sign, traffic sign, signsymbol, signboard; car, auto, automobile; pole, column,
    column pole; motorcycle, motorbike; background, bg, none, void; building, edifice, house; road, street, route;
    airplane, aeroplane, plane; television, tvmonitor, tv; couch, sofa; cell, nucleus, cells, nuclei"""


def normal(name: str) -> str:
    """Strip case and punctuation from a class's name, to compare it."""
    return re.sub(r"[\W_]+", " ", name).strip().lower()


def propose(classes: tuple[str, ...], targets: tuple[str, ...]) -> dict[str, str]:
    """Find the data's class of each class of the model, by equal names and then by synonyms; others are left out."""
    targets_by_name = {normal(name): name for name in targets}
    proposed = dict[str, str]()
    groups = [[normal(word) for word in group.split(",")] for group in SYNONYMS.split(";")]
    for name in classes:
        parts = [normal(part) for part in (name, *re.split(r"[,;/]", name))]  # ADE20K lists synonyms in a name
        synonyms = (word for part in parts for group in groups if part in group for word in group)
        target = next((targets_by_name[word] for word in (*parts, *synonyms) if word in targets_by_name), None)
        proposed |= {} if target is None else {name: target}
    return proposed


def class_numbers(config: ForeignConfig, spec: ClassSpec) -> tuple[tuple[int, ...], list[str]]:
    """Return the number of the data's class for each of the model's classes, and a line per problem."""
    names = config.classes or ()
    equal_names = {normal(name): name for name in spec.names}
    by_key = {str(i): name for i, name in enumerate(names)} | {name: name for name in names}
    class_map = {by_key.get(key, key): value for key, value in (config.class_map or {}).items()}
    targets = {name: class_map.get(name, equal_names.get(normal(name), class_map.get("*"))) for name in names}
    reached = {*targets.values(), config.output.background if config.output.kind == "instances" else None}
    mentioned = (reached | {*(config.class_map or {}).values()}) - {None}
    problems = {
        "names classes that the model lacks": [key for key in class_map if key not in (*names, "*")],
        "names classes that the data lacks": sorted(str(name) for name in mentioned - {*spec.names}),
        "says nothing of the model's classes": [name for name, target in targets.items() if target is None],
        "gives no source of the data's classes": [name for name in spec.names if name not in reached],
    }
    numbers = tuple(spec.names.index(name) if name in spec.names else 0 for name in map(str, targets.values()))
    return numbers, [f"{problem} {shorten(classes)}" for problem, classes in problems.items() if classes]


# Each family has `describe`, which finds the Facts of a Source, and `load`, which builds the network by its card
_FAMILIES: dict[str, Any] = {"hf": hub, "onnx": onnx_file, "torchvision": libraries, "smp": libraries}
_FAMILIES["plugin"] = SimpleNamespace(
    describe=lambda source, user_card: PLUGINS[source.place][1], load=lambda source, config: PLUGINS[source.place][0]
)
