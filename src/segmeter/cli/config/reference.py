"""Describes every key (name, default, values, unit, meaning) for help, the reference page and completion alike."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel

from segmeter.cli.config.groups import (
    CONFIGS,
    GROUPS,
    ROOTS,
    TRAINED,
    WITH_TRAINED_DATA,
    groups_of,
    options,
    schemas_of,
)
from segmeter.data.config import DataConfig
from segmeter.schema import REQUIRED, Registry
from segmeter.schema.declared import MISSING, Node, node_of, text_of
from segmeter.schema.registry import name_of

_PATHS = ("root", "data.root", "weights", "model.weights")  # texts that are paths


@dataclass(frozen=True)
class Key:
    """One key: its path, its default as YAML writes it, and its schema."""

    path: str
    default: str
    node: Node

    @property
    def range(self) -> str:
        """The values that the key takes, with the unit."""
        return "; ".join(filter(None, (self.node.describe(), self.node.unit)))

    @property
    def completions(self) -> list[str] | str:
        """The words that the key may be, or "path"."""
        if "path" in self.node.kinds or self.path in _PATHS:
            return "path"
        return ["true", "false"] if self.node.kinds == {"boolean"} else [text_of(word) for word in self.node.choices]


def keys_of(node: Node, values: Mapping[str, Any], prefix: str = "") -> Iterator[Key]:
    """List every key of a schema and of its nested groups, without components and the names that choose them.

    Parameters
    ----------
    values
        Set by an option instead of the schema's defaults.
    """
    for name, key in node.keys.items():
        if is_component_name(name, key) or key.choice:
            continue
        if (group := key.group(MISSING)) is not None:
            yield from keys_of(group, values.get(name, {}), f"{prefix}{name}.")
        else:
            default = values.get(name, key.default)
            yield Key(f"{prefix}{name}", "(required)" if default in (MISSING, REQUIRED) else as_yaml(default), key)


def is_component_name(name: str, node: Node) -> bool:
    """Tell whether a key is the name by which a component is chosen, which is not a setting of it."""
    return name == "name" and node.schema.get("type") == "string"


def as_yaml(value: Any) -> str:
    """Return a value on one line of YAML."""
    text = yaml.safe_dump(value, default_flow_style=True, width=10**6, allow_unicode=True, sort_keys=False)
    return text.strip().removesuffix("...").strip()


def own_keys(command: str) -> Iterator[Key]:
    """Return the keys of a command that belong to no configuration group."""
    groups = groups_of(command)
    return (key for key in keys_of(node_of(ROOTS[command]), {}) if key.path.partition(".")[0] not in groups)


def options_of(command: str, group: str, folders: Sequence[Path] = (CONFIGS,)) -> list[str]:
    """Return the options of a group that a command can choose; eval alone takes the data of its checkpoint."""
    return [name for name in options(folders).get(group, []) if name != TRAINED or command in WITH_TRAINED_DATA]


def option(group: str, name: str, folders: Sequence[Path] = (CONFIGS,)) -> tuple[type[BaseModel], dict[str, Any]]:
    """Return the schema of an option, and the values that its YAML file, if there is one, sets instead of defaults."""
    if (group, name) == ("data", TRAINED):
        return DataConfig, {}
    path = _file(group, name, folders)
    if path is None:
        return schemas_of(group)[name], {}
    values = yaml.safe_load(path.read_text("utf-8")) or {}
    bases = [base for base in values.pop("defaults", []) if isinstance(base, str) and base != "_self_"]
    schema, inherited = option(group, bases[0], folders) if bases else (None, {})
    choice = GROUPS[group]
    if not isinstance(choice, Registry):
        return choice, inherited | values
    return schema or choice.schema(name_of(values)), inherited | values


def preset_summary(group: str, name: str, folders: Sequence[Path] = (CONFIGS,)) -> str:
    """Read what a preset is for: the comment below its package line."""
    path = _file(group, name, folders)
    lines = path.read_text("utf-8").splitlines() if path else []
    return next((line.lstrip("# ") for line in lines if line.startswith("#") and "@package" not in line), "")


def _file(group: str, name: str, folders: Sequence[Path]) -> Path | None:
    return next((path for folder in folders if (path := folder / group / f"{name}.yaml").is_file()), None)


def parts_of(model: type[BaseModel]) -> Iterator[tuple[str, Registry]]:
    """Return the keys of a schema that hold a list of components, such as metrics.measures."""
    for name, node in node_of(model).keys.items():
        yield from ((name, item.choice) for arm in node.arms for item in arm.items if item.choice)
