"""Takes the settings of the data from a checkpoint, so that users of `eval`, `tune` and `predict` need not repeat them.

Command-line values override the checkpoint's, and these override defaults. A checkpoint holds values only, and the
schema checks them like any others. Only the user sets the split and the limits that protect the reading of files
(`max_pixels`, `timeout_s`, `allow_links`). `describe_data` gives the values that `train` stores in a checkpoint, and
`own_data` the data set on which `export` tries a model.
"""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from segmeter.checks import expected
from segmeter.cli.config.groups import TRAINED
from segmeter.cli.config.model_command_configs import ImagesConfig
from segmeter.data.config import DATA, DataConfig
from segmeter.data.folds import check_dealing
from segmeter.errors import ConfigError, InputError
from segmeter.models.config import ModelCard
from segmeter.models.foreign.config import ForeignConfig
from segmeter.postprocess.config import SEPARATING
from segmeter.records import read_run
from segmeter.schema import REQUIRED, as_plain, defaults

_CARD_KEYS = ("task", "classes", "colours", "ignore_index", "in_channels", "mean", "std")  # stored in the model card
_LOG = logging.getLogger(__name__)
_USER_KEYS = ("root", "nnunet", "split", "max_pixels", "timeout_s", "allow_links")  # only the user sets these


def describe_data(config: DataConfig) -> dict[str, Any]:
    """Return the settings of the data that a checkpoint stores, in addition to classes, channels and normalisation."""
    return {key: value for key, value in as_plain(config).items() if key not in (*_CARD_KEYS, *_USER_KEYS)}


def fill_trained(command: str, values: Mapping[str, Any], overrides: Sequence[str], *, data: bool) -> dict[str, Any]:
    """Complete the composed values of eval, tune or predict from the checkpoint.

    A checkpoint trained with `data.core_depth` gets the post-processing that splits touching objects, unless the user
    chose steps.

    Parameters
    ----------
    command
        "eval", "tune" or "predict", for messages.
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
    filled = dict(values)
    checkpoint = values.get("checkpoint")
    paths = [str(path) for path in (checkpoint if isinstance(checkpoint, list | tuple) else [checkpoint])]
    if checkpoint in (None, REQUIRED) or not paths:
        return filled  # the schema reports that the checkpoint is missing
    from segmeter.models.foreign.opened import find_source  # imports torch

    source = find_source(Path(paths[0]))
    if data and isinstance(values.get("data"), Mapping):
        filled["data"] = (
            _data_of_ours(command, paths, values["data"], overrides)
            if source is None
            else _data_of_foreign(command, source, values, overrides)
        )
    is_chosen = any(line.lstrip("+~").startswith("postprocess") for line in overrides)
    is_resumed = values.get("resume") not in (None, "auto")  # the run's own configuration says which steps it has
    postprocess = values.get("postprocess")
    is_open = not is_chosen and not is_resumed and isinstance(postprocess, Mapping) and not postprocess.get("steps")
    if is_open and source is None and _read(paths[0])[0].data.get("core_depth") is not None:
        filled["postprocess"] = {**filled["postprocess"], "steps": [as_plain(step) for step in SEPARATING]}
    return filled


def _data_of_ours(
    command: str, paths: Sequence[str], data: Mapping[str, Any], overrides: Sequence[str]
) -> dict[str, Any]:
    """Return the data for checkpoints of ours, which all have the same classes."""
    card, root = _read(paths[0])
    if data["name"] == TRAINED:
        trained_data = _trained_data(command, card, root)
        filled = trained_data | {key: value for key, value in data.items() if value not in (REQUIRED, TRAINED)}
    elif data["name"] in DATA.names():
        chosen = _chosen(data, overrides)
        known: dict[str, Any] = {}
        if data["name"] == card.data.get("name"):
            known = _trained_data(command, card, root)
        elif _asks_for_classes(data["name"]):
            known = _card_values(card)
        filled = {**data, **{key: value for key, value in known.items() if key in data and key not in chosen}}
    else:
        return dict(data)
    trained = _card_values(card)
    trained |= {"channels": card.data.get("channels") or filled.get("channels"), "clip": card.data.get("clip")}
    problems = [
        expected(command, f"data.{key}", f"to be the checkpoint's {trained[key]}", filled[key], "Leave it out.")
        for key in ("task", "classes", "in_channels", "channels", "mean", "std", "clip")
        if as_plain(filled.get(key)) not in (None, [], REQUIRED, trained[key])
    ]
    if problems:
        raise ConfigError(problems)
    for path in paths:
        check_dealing(filled, _read(path)[0].data, split=filled["split"], model=path)
    return filled


def _data_of_foreign(command: str, source: Any, values: Mapping[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """Return the data for a model that others trained. Data without classes gets those of the model."""
    from segmeter.models.foreign.opened import describe, open_foreign  # imports torch

    data = dict(values["data"])
    if data["name"] == TRAINED:
        raise _unknown_data(command, source.text)
    if _asks_for_classes(data["name"]) and "classes" not in _chosen(data, overrides):
        card = open_foreign(describe(source, ForeignConfig(**values["model"])), None).card
        data |= {key: value for key, value in _card_values(card).items() if key in data and key not in ("mean", "std")}
    return data


def _asks_for_classes(kind: str) -> bool:
    return kind in DATA.names() and defaults(DATA.schema(kind)).get("classes") in ([], REQUIRED)


def own_data(checkpoint: Path, limits: ImagesConfig) -> DataConfig:
    """Return the data set that a checkpoint was trained on, read with the user's limits.

    Raises
    ------
    ConfigError
        The checkpoint names none, the data is no longer there, or its settings are not valid (any more).
    """
    values = _trained_data("export", *_read(checkpoint))
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

    checkpoint = read_checkpoint(path, verify_weights=False)
    root = None
    try:
        root = read_run(checkpoint.folder.parents[1]).get("data_root")
    except FileNotFoundError:  # a checkpoint outside a run
        pass
    except (OSError, InputError) as error:
        _LOG.warning("%s So the location of the training data is unknown.", error)
    return checkpoint.card, root if isinstance(root, str) else None


def _trained_data(command: str, card: ModelCard, root: str | None) -> dict[str, Any]:
    """Return the data set that the checkpoint was trained on, with defaults for missing settings."""
    if "name" not in card.data:
        raise _unknown_data(command, "this checkpoint")
    usual = defaults(DATA.schema(card.data["name"]))
    return {**usual, **card.data, **_card_values(card), **({} if root is None else {"root": root})}


def _unknown_data(command: str, model: str) -> ConfigError:
    remedy = f"Choose it: data={' | '.join(DATA.names())}, with data.root=PATH."
    return ConfigError(f"{command}: {model} does not say which data it was trained on. {remedy}")


def _card_values(card: ModelCard) -> dict[str, Any]:
    """Return the settings of the data that a model card has itself."""
    spec = card.spec.model_dump()
    n = card.plane_channels
    values = {**spec, "classes": spec["names"], "in_channels": n, "mean": card.mean[:n], "std": card.std[:n]}
    return {key: as_plain(values[key]) for key in _CARD_KEYS}


def _chosen(data: Mapping[str, Any], overrides: Sequence[str]) -> set[str]:
    """Return the keys that the user set, on the command line or, with values other than the defaults, in a file."""
    usual = defaults(DATA.schema(data["name"]))
    keys = [line.partition("=")[0].lstrip("+~") for line in overrides]
    typed = {key.split(".")[1] for key in keys if key.startswith("data.")}
    return typed | {"name"} | {key for key, value in data.items() if value not in (REQUIRED, usual.get(key))}
