"""Describes every key in words, as commented YAML and as JSON Schema.

Help, reference page, completion, --cfg and editors are all made from these descriptions.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel

from segmeter.checks import nearest
from segmeter.cli.config.groups import (
    CONFIGS,
    GROUPS,
    ROOTS,
    TRAINED,
    WITH_TRAINED_DATA,
    Declared,
    groups_of,
    options,
    schemas_of,
)
from segmeter.data.config import DataConfig
from segmeter.errors import ConfigError
from segmeter.schema import REQUIRED, Registry
from segmeter.schema.json_schema import MISSING, Node, node_of, text_of
from segmeter.schema.registry import REGISTRIES, name_of

_OBVIOUS = ("a group of keys", "true or false", "text", "a path")  # a comment leaves these out: the value shows them
DIALECT = "https://json-schema.org/draft/2020-12/schema"
# The files that commands write. Their modules import pyarrow, which isn't there when a wheel is built.
RESULTS = Declared(
    {
        "plan.json": "metrics.summary.needed_cases:Plan",
        "tune.json": "metrics.summary.tune:Tuned",
        "agree.json": "metrics.summary.agreement:Agreement",
        "suspects.json": "evaluation.decisions.suspects:Suspects",
        "label_next.json": "evaluation.decisions.suspects:LabelNext",
    }
)
_COMMANDS = {f"{name}_command" if name in GROUPS else name: name for name in ROOTS}  # `export` is a group too
_DEFAULTS = {"type": "array", "description": "Hydra's defaults list: what this file starts from."}


@dataclass(frozen=True)
class Key:
    """One key: its path, its default as YAML writes it, and its schema."""

    path: str
    default: str
    node: Node

    @property
    def range(self) -> str:
        """The values that the key takes, and their unit."""
        return "; ".join(filter(None, (self.node.describe(), self.node.unit)))

    @property
    def completions(self) -> list[str]:
        """The words that the key may be."""
        return ["true", "false"] if self.node.kinds == {"boolean"} else [text_of(word) for word in self.node.choices]


def keys_of(node: Node, values: Mapping[str, Any], prefix: str = "") -> Iterator[Key]:
    """List every key of a schema and of its nested groups, without components and the names that choose them.

    Parameters
    ----------
    values
        The values that an option sets instead of the schema's defaults.
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
    """Tell whether a key is the name that chooses a component. Such a name is not one of its settings."""
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
    """Return the options of a group that a command can choose. Only eval and tune can take a checkpoint's data."""
    return [name for name in options(folders).get(group, []) if name != TRAINED or command in WITH_TRAINED_DATA]


def option(group: str, name: str, folders: Sequence[Path] = (CONFIGS,)) -> tuple[type[BaseModel], dict[str, Any]]:
    """Return the schema of an option, and the values that its YAML file, if it has one, sets instead of defaults."""
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


def yaml_text(node: Node | None, values: Any, *, part: str | None) -> str:
    """Write a configuration as YAML that can be read back, with the meaning of each key beside it: ``--cfg job``.

    Parameters
    ----------
    part
        The key of a group or value to show instead of the whole.

    Raises
    ------
    ConfigError
        There is no such part.
    """
    for name in part.split(".") if part else ():
        known = values if isinstance(values, dict) else {}
        if name not in known:
            raise ConfigError(f"config: there is no {part!r} to show. {nearest(name, known) if known else ''}".rstrip())
        values = known[name]
        key = node.keys.get(name) if node else None
        node = key.group(values) if key else None
    lines = _lines(node, values) if isinstance(values, dict) else [as_yaml(values)]
    return "".join(f"{line}\n" for line in lines)


def _lines(node: Node | None, values: dict[Any, Any], indent: str = "") -> Iterator[str]:
    for key, value in values.items():
        inner_values = value if isinstance(value, dict) else {}
        key_node = node.keys.get(str(key)) if node else None
        comment = ""
        if key_node and not is_component_name(str(key), key_node):  # the first sentence, and the allowed values
            allowed = ", ".join(filter(None, (key_node.describe(), key_node.unit)))
            comment = key_node.meaning.partition(". ")[0].rstrip(".")
            comment += "" if allowed in _OBVIOUS or key_node.choice else f" [{allowed}]"
        text = f"{indent}{as_yaml(key)}:{'' if inner_values else f' {as_yaml(value)}'}"
        yield f"{text}  # {comment}" if comment else text
        yield from _lines(key_node.group(value) if key_node else None, inner_values, f"{indent}  ")


def names() -> list[str]:
    """Return the names of the JSON Schemas of configurations: every command that has one, and every group."""
    return [*_COMMANDS, *GROUPS]


def json_schema(name: str) -> dict[str, Any]:
    """Return the JSON Schema of a command's keys ("train"), a group's options ("loss") or a result ("plan.json").

    Raises
    ------
    ConfigError
        There is no such command or group.
    """
    if name not in (*names(), *RESULTS):
        raise ConfigError(f"schema: expected a command or a group, got {name!r}. {nearest(name, [*names(), *RESULTS])}")
    if name in RESULTS:
        schema = RESULTS[name].model_json_schema(by_alias=True)
        return {"$schema": DIALECT, "$defs": {}, **schema, "title": f"segmeter: {name}"}
    command = _COMMANDS.get(name)
    definitions: dict[str, Any] = {}
    choice = ROOTS[command] if command else GROUPS[name]
    if isinstance(choice, Registry):
        content: dict[str, Any] = {"anyOf": _references(choice.group, definitions)}
    else:
        content = _model(choice, definitions)
    if command in WITH_TRAINED_DATA:  # allows any key, as the checkpoint decides which kind of data it is
        named = {"properties": {"name": {"const": TRAINED}}, "required": ["name"]}
        definitions[f"data.{TRAINED}"] = {"type": "object", **named}
        content["properties"]["data"]["anyOf"].append({"$ref": f"#/$defs/data.{TRAINED}"})
    title = f"segmeter {command}" if command else f"segmeter: an option of {name}"
    return {"$schema": DIALECT, **content, "title": title, "$defs": dict(sorted(definitions.items()))}


def _references(group: str, definitions: dict[str, Any]) -> list[dict[str, Any]]:
    """Define every component of a group, and refer to each."""
    choice = REGISTRIES[group]
    for name in choice.names():
        key = f"{group}.{name}"
        model = choice.schema_of(name)
        if key not in definitions and model is not None:
            definitions[key] = {}  # ends the recursion if the component holds others of its kind
            definitions[key] = _model(model, definitions)
            definitions[key]["properties"]["name"] = {"const": name}
    return [{"$ref": f"#/$defs/{group}.{name}"} for name in choice.names()]


def _model(model: type[BaseModel], definitions: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a model, with references to its components, and add these to the definitions."""

    def for_editors(node: dict[str, Any]) -> dict[str, Any]:
        if "component" in node:
            group = node.pop("component")
            node["anyOf"] = [{"enum": REGISTRIES[group].names()}, *_references(group, definitions)]
        if node.get("type") == "object" and "properties" in node:
            node["properties"] = {"defaults": _DEFAULTS, **node["properties"]}
            node.pop("required", None)  # a file may hold only some of the values
        return node

    schema: dict[str, Any] = json.loads(json.dumps(node_of(model).schema), object_hook=for_editors)
    definitions |= schema.pop("$defs", {})
    return schema
