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
from segmeter.data.folds import check_dealing
from segmeter.errors import ConfigError, InputError
from segmeter.models.config import ModelCard
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


def fill_trained(values: Mapping[str, Any], overrides: Sequence[str], *, data: bool) -> dict[str, Any]:
    """Complete the composed values of eval, tune or predict with what the checkpoint says.

    Objects are split by the cores that a checkpoint was trained on, unless steps are chosen.

    Parameters
    ----------
    values
        As composed. A data set with classes of its own, such as camvid, keeps them unless the checkpoint was trained
        on the same kind.
    overrides
        The overrides, which distinguish set values from defaults.
    data
        Whether the command has a data set to complete.

    Raises
    ------
    ConfigError
        The data contradicts the checkpoint, or no data set is chosen and the checkpoint names none.
    CheckpointError
        The checkpoint can't be read.
    """
    given, filled = values.get("checkpoint"), dict(values)
    paths = [str(path) for path in (given if isinstance(given, list | tuple) else [given])]
    if given in (None, REQUIRED) or not paths:
        return filled  # the schema reports what is missing
    from segmeter.models.foreign.opened import find_source  # imports torch

    source = find_source(Path(paths[0]))
    if data and isinstance(values.get("data"), Mapping):
        own = source is None
        filled["data"] = _of_ours(paths, values["data"], overrides) if own else _of_foreign(source, values, overrides)
    chosen = any(line.lstrip("+~").startswith("postprocess") for line in overrides)
    resumed = values.get("resume") not in (None, "auto")  # its own configuration has the steps, or none
    group = values.get("postprocess")
    is_open = not chosen and not resumed and isinstance(group, Mapping) and not group.get("steps")
    if is_open and source is None and _read(paths[0])[0].data.get("core_depth") is not None:
        filled["postprocess"] = {**filled["postprocess"], "steps": [as_plain(step) for step in SEPARATING]}
    return filled


def _of_ours(paths: Sequence[str], data: Mapping[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """Return the data for checkpoints of ours, which are all of the same classes."""
    card, root = _read(paths[0])
    if data["name"] == TRAINED:
        filled = _own(card, root) | {key: value for key, value in data.items() if value not in (REQUIRED, TRAINED)}
    elif data["name"] in DATA.names():
        chosen, known = _chosen(data, overrides), dict[str, Any]()
        if data["name"] == card.data.get("name"):
            known = _own(card, root)
        elif _asks_for_classes(data["name"]):
            known = _of_card(card)
        filled = {**data, **{key: value for key, value in known.items() if key in data and key not in chosen}}
    else:
        return dict(data)
    theirs = _of_card(card)
    theirs |= {"channels": card.data.get("channels") or filled.get("channels"), "clip": card.data.get("clip")}
    problems = [
        expected("eval", f"data.{key}", f"to be the checkpoint's {theirs[key]}", filled[key], "Leave it out.")
        for key in ("task", "classes", "in_channels", "channels", "mean", "std", "clip")
        if as_plain(filled.get(key)) not in (None, [], REQUIRED, theirs[key])
    ]
    if problems:
        raise ConfigError(problems)
    for path in paths:
        check_dealing(filled, _read(path)[0].data, split=filled["split"], model=path)
    return filled


def _of_foreign(source: Any, values: Mapping[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """Return the data for a model that others trained, with its classes if the data has none."""
    from segmeter.models.foreign.opened import describe, open_foreign  # imports torch

    data = dict(values["data"])
    if data["name"] == TRAINED:
        raise _untold(source.text)
    if _asks_for_classes(data["name"]) and "classes" not in _chosen(data, overrides):
        card = open_foreign(describe(source, ForeignConfig(**values["model"])), None).card
        data |= {key: value for key, value in _of_card(card).items() if key in data and key not in ("mean", "std")}
    return data


def _asks_for_classes(kind: str) -> bool:
    return kind in DATA.names() and defaults(DATA.schema(kind)).get("classes") in ([], REQUIRED)


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


def _read(path: str | Path) -> tuple[ModelCard, str | None]:
    """Return the model card, and the root of the data in the record of the checkpoint's run."""
    from segmeter.models.checkpoint import read_checkpoint  # imports torch, which --cfg must not

    found, root = read_checkpoint(path, verify_weights=False), None
    try:
        root = read_run(found.folder.parents[1]).get("data_root")
    except FileNotFoundError:  # a checkpoint outside a run
        pass
    except (OSError, InputError) as error:
        _LOG.warning("%s So the location of the training data is unknown.", error)
    return found.card, root if isinstance(root, str) else None


def _own(card: ModelCard, root: str | None) -> dict[str, Any]:
    """Return the data set that the checkpoint was trained on, with defaults for missing settings."""
    if "name" not in card.data:
        raise _untold("this checkpoint")
    usual = defaults(DATA.schema(card.data["name"]))
    return {**usual, **card.data, **_of_card(card), **({} if root is None else {"root": root})}


def _untold(model: str) -> ConfigError:
    remedy = f"Choose it: data={' | '.join(DATA.names())}, with data.root=PATH."
    return ConfigError(f"eval: {model} does not say which data it was trained on. {remedy}")


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
