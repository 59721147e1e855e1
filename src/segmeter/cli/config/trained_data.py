"""Completes the data configuration of `eval` from its checkpoint, so that users need not repeat it.

Command-line values override the checkpoint's, and these override defaults. A checkpoint holds values only, and the
schema checks them like any others. The user alone sets the split and the limits that protect the reader of files
(`max_pixels`, `timeout_s`, `allow_links`).
"""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from segmeter.checks import expected
from segmeter.cli.config.groups import TRAINED
from segmeter.cli.config.model_schema import ImagesConfig
from segmeter.data.config import DATA, DataConfig
from segmeter.data.folders.folds import check_dealing
from segmeter.errors import ConfigError, InputError
from segmeter.models.card import ModelCard
from segmeter.models.foreign.config import ForeignConfig
from segmeter.postprocess.config import SEPARATING
from segmeter.records import read_run
from segmeter.schema import REQUIRED, as_plain, defaults

_CARD = ("task", "classes", "colours", "ignore_index", "in_channels", "mean", "std")  # the card has these itself
_LOG = logging.getLogger(__name__)
_USERS = ("root", "nnunet", "split", "max_pixels", "timeout_s", "allow_links")


def describe_data(config: DataConfig) -> dict[str, Any]:
    """Return the settings of the data that a checkpoint stores, in addition to classes, channels and normalisation."""
    return {key: value for key, value in as_plain(config).items() if key not in (*_CARD, *_USERS)}


def fill_data(values: Mapping[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """Complete the composed values of eval with the data settings of its checkpoint.

    Parameters
    ----------
    values
        As composed. A data set with classes of its own, such as camvid, keeps them unless the checkpoint was trained
        on the same kind.
    overrides
        The overrides, which distinguish set values from defaults.

    Raises
    ------
    ConfigError
        The data contradicts the checkpoint, or no data set is chosen and the checkpoint names none.
    CheckpointError
        The checkpoint can't be read.
    """
    data = values.get("data")
    given = values.get("checkpoint")
    first, *others = given if isinstance(given, list | tuple) and given else [given]  # all are of the same classes
    if first in (None, REQUIRED, []) or not isinstance(data, Mapping):
        return dict(values)  # the schema reports what is missing
    foreign = _of_foreign(str(first), values, overrides)
    if foreign is not None:
        return {**values, "data": foreign}
    card, root = _read(Path(str(first)))
    if data["name"] == TRAINED:
        filled = _own(card, root) | {key: value for key, value in data.items() if value not in (REQUIRED, TRAINED)}
    elif data["name"] in DATA.names():
        chosen = _chosen(data, overrides)
        known = _own(card, root) if data["name"] == card.data.get("name") else _classes(card, data["name"])
        filled = {**data, **{key: value for key, value in known.items() if key in data and key not in chosen}}
    else:
        return dict(values)
    _refuse_contradictions(filled, card)
    for path in (first, *others):
        card, _ = _read(Path(str(path)))
        check_dealing(filled, card.data, split=filled["split"], model=str(path))
    return {**values, "data": filled}


def fill_steps(values: Mapping[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """Split objects by the cores that a checkpoint was trained on, unless steps are chosen: eval, tune, predict."""
    chosen = any(line.lstrip("+~").startswith("postprocess") for line in overrides)
    resumed = values.get("resume") not in (None, "auto")  # its own configuration has the steps, or none
    given, group = values.get("checkpoint"), values.get("postprocess")
    first = given[0] if isinstance(given, list | tuple) and given else given
    if chosen or resumed or first in (None, REQUIRED, []) or not isinstance(group, Mapping) or group.get("steps"):
        return dict(values)
    from segmeter.models.foreign.opened import find_source  # imports torch

    if find_source(Path(str(first))) is not None or _read(Path(str(first)))[0].data.get("core_depth") is None:
        return dict(values)
    return {**values, "postprocess": {**group, "steps": [as_plain(step) for step in SEPARATING]}}


def _of_foreign(checkpoint: str, values: Mapping[str, Any], overrides: Sequence[str]) -> dict[str, Any] | None:
    """Return the data for a model that others trained, with its classes if the data has none; None for one of ours."""
    from segmeter.models.foreign.opened import describe, find_source, open_foreign  # imports torch

    data, source = dict(values["data"]), find_source(Path(checkpoint))
    if source is None:
        return None
    if data["name"] == TRAINED:
        remedy = f"Choose it: data={' | '.join(DATA.names())}, with data.root=PATH."
        raise ConfigError(f"eval: {checkpoint} does not say which data it was trained on. {remedy}")
    asks = data["name"] in DATA.names() and defaults(DATA.schema(data["name"])).get("classes") in ([], REQUIRED)
    if asks and "classes" not in _chosen(data, overrides):
        card = open_foreign(describe(source, ForeignConfig(**values["model"])), None).card
        data |= {key: value for key, value in _of_card(card).items() if key in data and key not in ("mean", "std")}
    return data


def own_data(checkpoint: Path, limits: ImagesConfig) -> DataConfig:
    """Return the data set that a checkpoint was trained on, read with the user's limits.

    Raises
    ------
    ConfigError
        The checkpoint names none, it is no longer there, or its settings are not valid (any more).
    """
    values = _own(*_read(checkpoint))
    root = values.get("root")
    if root in (None, REQUIRED) or not ("://" in str(root) or Path(str(root)).is_dir()):
        raise ConfigError(f"data: the data set that {checkpoint} was trained on is not known here.")
    limited = values | {"max_pixels": limits.max_pixels, "timeout_s": limits.timeout_s}
    config = DATA.schema(values["name"])(**limited)
    assert isinstance(config, DataConfig)
    return config


def _read(path: Path) -> tuple[ModelCard, str | None]:
    """Return the model card, and the root of the data in the record of the checkpoint's run."""
    from segmeter.models.checkpoints.checkpoint import (
        read_description,
    )  # imports torch, which --help and --cfg must not

    found = read_description(path)
    try:
        root = read_run(found.folder.parents[1]).get("data_root")
    except FileNotFoundError:  # a checkpoint outside a run
        root = None
    except (OSError, InputError) as error:
        _LOG.warning("%s So the location of the training data is unknown.", error)
        root = None
    return found.card, root if isinstance(root, str) else None


def _own(card: ModelCard, root: str | None) -> dict[str, Any]:
    """Return the data set that the checkpoint was trained on, with defaults for missing settings."""
    if "name" not in card.data:
        remedy = f"Choose it: data={' | '.join(DATA.names())}, with data.root=PATH."
        raise ConfigError(f"eval: this checkpoint does not say which data it was trained on. {remedy}")
    usual = defaults(DATA.schema(card.data["name"]))
    return {**usual, **card.data, **_of_card(card), **({} if root is None else {"root": root})}


def _refuse_contradictions(data: Mapping[str, Any], card: ModelCard) -> None:
    """Refuse options that contradict the network's input and output."""
    theirs = _of_card(card)
    theirs |= {"channels": card.data.get("channels") or data.get("channels"), "clip": card.data.get("clip")}
    problems = [
        expected("eval", f"data.{key}", f"to be the checkpoint's {theirs[key]}", data[key], "Leave it out.")
        for key in ("task", "classes", "in_channels", "channels", "mean", "std", "clip")
        if as_plain(data.get(key)) not in (None, [], REQUIRED, theirs[key])
    ]
    if problems:
        raise ConfigError(problems)


def _classes(card: ModelCard, kind: str) -> dict[str, Any]:
    """Return the checkpoint's classes and channels, for a kind of data set without its own."""
    own = defaults(DATA.schema(kind)).get("classes")
    return _of_card(card) if own in ([], REQUIRED) else {}


def _of_card(card: ModelCard) -> dict[str, Any]:
    spec = card.spec.model_dump()
    own = card.plane_channels
    known = {**spec, "classes": spec["names"], "in_channels": own, "mean": card.mean[:own], "std": card.std[:own]}
    return {key: as_plain(known[key]) for key in _CARD}


def _chosen(data: Mapping[str, Any], overrides: Sequence[str]) -> set[str]:
    """Return the keys that the user set, on the command line or in a file with values other than the defaults."""
    usual = defaults(DATA.schema(data["name"]))
    keys = [line.partition("=")[0].lstrip("+~") for line in overrides]
    named = {key.split(".")[1] for key in keys if key.startswith("data.")}
    return named | {"name"} | {key for key, value in data.items() if value not in (REQUIRED, usual.get(key))}
