"""schemas -> every key in words: name, default, what it takes, unit, meaning."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel

from segmeter.cli.config.groups import CONFIGS, GROUPS, options, schemas_of
from segmeter.cli.config.schema import ROOTS
from segmeter.cli.config.trained_data import TRAINED
from segmeter.data.config import DataConfig
from segmeter.schema import REQUIRED, Registry, as_plain
from segmeter.schema.declared import (
    Choice,
    choice_of,
    choices,
    describe,
    hint_of,
    inner_hints,
    leaves,
    meaning,
    name_of,
    unit_of,
)

PRESETS = ("experiment", "debug")  # groups of training whose options set keys of several groups
_PATHS = ("root", "data.root", "weights", "model.weights")  # texts that are paths


@dataclass(frozen=True, kw_only=True)
class Key:
    """One key: its path, its default as YAML writes it, what it takes, in which unit, and what it means.

    `choices` are the words that it may be, and `is_path` says that it is a file or folder.
    """

    path: str
    default: str
    takes: str
    unit: str
    meaning: str
    choices: tuple[str, ...]
    is_path: bool

    @property
    def range(self) -> str:
        """What the key takes, with the unit."""
        return f"{self.takes}; {self.unit}" if self.unit else self.takes


def keys_of(model: type[BaseModel], values: dict[str, Any], prefix: str = "") -> Iterator[Key]:
    """Every key of a schema, those of nested groups too, but for components and what names one.

    Parameters
    ----------
    values
        What an option sets instead of the schema's defaults.
    """
    for name, field in model.model_fields.items():
        hint, inner = hint_of(field), field.annotation
        if is_component_name(name, inner) or choice_of(hint) is not None:
            continue
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            yield from keys_of(inner, values.get(name, {}), f"{prefix}{name}.")
            continue
        default = REQUIRED if field.is_required() else as_plain(field.get_default(call_default_factory=True))
        default = values.get(name, default)
        shown = "(required)" if default == REQUIRED else as_yaml(default)
        kinds = set(leaves(hint))
        yield Key(
            path=f"{prefix}{name}",
            default=shown,
            takes=describe(hint),
            unit=unit_of(hint),
            meaning=meaning(field),
            choices=("true", "false") if kinds == {bool} else tuple(choices(hint)),
            is_path=Path in kinds or f"{prefix}{name}" in _PATHS,
        )


def is_component_name(key: str, hint: Any) -> bool:
    """Whether a key is the name by which a component is chosen, which is no setting of it."""
    return key == "name" and hint is str


def as_yaml(value: Any) -> str:
    """A value on one line of YAML."""
    text = yaml.safe_dump(value, default_flow_style=True, width=10**6, allow_unicode=True, sort_keys=False)
    return text.strip().removesuffix("...").strip()


def own_keys(command: str) -> Iterator[Key]:
    """The keys of a command that belong to no configuration group."""
    groups = groups_of(command)
    for key in keys_of(ROOTS[command], {}):
        if key.path.partition(".")[0] not in groups:
            yield key


def groups_of(command: str) -> list[str]:
    """The configuration groups that a command has; training has presets too."""
    fields = ROOTS[command].model_fields
    named = [name for name in fields if name in GROUPS and _same(GROUPS[name], fields[name])]
    return [*named, *PRESETS] if command == "train" else named


def _same(choice: Registry | type, field: Any) -> bool:
    return choice_of(hint_of(field)) is not None or field.annotation is choice


def default_option(command: str, group: str) -> str:
    """What a command takes of a group where nothing is chosen; "" where it takes nothing."""
    listed = yaml.safe_load((CONFIGS / f"{command}.yaml").read_text())["defaults"]
    return next((item[group] or "" for item in listed if isinstance(item, dict) and group in item), "")


def options_of(command: str, group: str, folders: Sequence[Path] = (CONFIGS,)) -> list[str]:
    """What a command can choose in a group; eval alone takes the data of its checkpoint."""
    return [name for name in options(folders).get(group, []) if name != TRAINED or command == "eval"]


def option(group: str, name: str, folders: Sequence[Path] = (CONFIGS,)) -> tuple[type[BaseModel], dict[str, Any]]:
    """The schema of an option and the values that its YAML file, where it has one, sets instead of the defaults."""
    if (group, name) == ("data", TRAINED):
        return DataConfig, {}
    files = [folder / group / f"{name}.yaml" for folder in folders]
    path = next((path for path in files if path.is_file()), None)
    if path is None:
        return schemas_of(group)[name], {}
    values = yaml.safe_load(path.read_text()) or {}
    bases = [base for base in values.pop("defaults", []) if isinstance(base, str) and base != "_self_"]
    schema, inherited = option(group, bases[0], folders) if bases else (None, {})
    choice = GROUPS[group]
    if not isinstance(choice, Registry):
        return choice, inherited | values
    return schema or choice.schema(name_of(values)), inherited | values


def preset_summary(group: str, name: str, folders: Sequence[Path] = (CONFIGS,)) -> str:
    """What a preset is for: the comment below its package line."""
    paths = (folder / group / f"{name}.yaml" for folder in folders)
    lines = next(path for path in paths if path.is_file()).read_text().splitlines()
    return next((line.lstrip("# ") for line in lines if line.startswith("#") and "@package" not in line), "")


def parts_of(model: type[BaseModel]) -> Iterator[tuple[str, Choice]]:
    """The keys of a schema that hold a list of components, such as metrics.measures."""
    for name, field in model.model_fields.items():
        for hint in inner_hints(hint_of(field)):
            if (choice := choice_of(hint)) is not None:
                yield name, choice


def summary(model: type[BaseModel]) -> str:
    """What a schema is: the docstring of its class, on one line."""
    return " ".join((model.__doc__ or "").split())
