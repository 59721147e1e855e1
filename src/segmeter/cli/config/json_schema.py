"""schemas -> JSON Schema, by which editors complete and check YAML files."""

from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel

from segmeter.checks import nearest
from segmeter.cli.config.groups import GROUPS
from segmeter.cli.config.schema import ROOTS
from segmeter.cli.config.trained_data import TRAINED
from segmeter.errors import ConfigError
from segmeter.schema import Component, Registry
from segmeter.schema.declared import Choice, choice_of, hint_of, inner_hints

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_COMMANDS = {f"{name}_command" if name in GROUPS else name: name for name in ROOTS}  # `export` is a group too
_DEFAULTS = {"type": "array", "description": "Hydra's defaults list: what this file starts from."}


def names() -> list[str]:
    """What has a JSON Schema: every command with a configuration, and every group."""
    return [*_COMMANDS, *GROUPS]


def json_schema(name: str) -> dict[str, Any]:
    """The JSON Schema of a command's configuration ("train") or of the options of a group ("loss").

    Nothing is required in it, since a YAML file holds a part of the values.

    Raises
    ------
    ConfigError
        There is no such command or group.
    """
    if name not in names():
        raise ConfigError(f"schema: expected a command or a group, got {name!r}. {nearest(name, names())}")
    command = _COMMANDS.get(name)
    choice = ROOTS[command] if command else GROUPS[name]
    definitions: dict[str, Any] = {}
    if isinstance(choice, Registry):
        content: dict[str, Any] = {"anyOf": _references(Component(choice), definitions)}
    else:
        content = _part(choice, definitions)
    if name == "eval":
        _add_trained(content, definitions)
    title = f"segmeter {command}" if command else f"segmeter: an option of {name}"
    return {"$schema": DIALECT, **content, "title": title, "$defs": dict(sorted(definitions.items()))}


def _add_trained(content: dict[str, Any], definitions: dict[str, Any]) -> None:
    """Let eval take the data that its checkpoint was trained on, with any key of their kind."""
    named = {"properties": {"name": {"const": TRAINED}}, "required": ["name"]}
    definitions[f"data.{TRAINED}"] = {"type": "object", **named}
    content["properties"]["data"]["anyOf"].append({"$ref": f"#/$defs/data.{TRAINED}"})


def _references(choice: Choice, definitions: dict[str, Any]) -> list[dict[str, Any]]:
    """Define every component that can be chosen, and refer to each."""
    for name in choice.names():
        key, model = f"{choice.group}.{name}", choice.schema_of(name)
        if key not in definitions and model is not None:
            definitions[key] = {}  # a component may hold others of its kind
            definitions[key] = _part(model, definitions)
            definitions[key]["properties"]["name"] = {"const": name}
    return [{"$ref": f"#/$defs/{choice.group}.{name}"} for name in choice.names()]


def _part(model: type[BaseModel], definitions: dict[str, Any]) -> dict[str, Any]:
    content = model.model_json_schema()
    nested = content.pop("$defs", {})
    chosen = {choice.group: choice for choice in _choices(model)}
    for schema in (content, *nested.values()):
        schema.pop("required", None)
        schema["description"] = " ".join(schema.get("description", "").split())
        schema["properties"] = {
            "defaults": _DEFAULTS,
            **{key: _key(value, chosen, definitions) for key, value in schema["properties"].items()},
        }
    definitions |= nested
    return content


def _choices(model: type[BaseModel]) -> Iterator[Choice]:
    """Every choice of components in a schema and its nested groups."""
    for field in model.model_fields.values():
        hint = hint_of(field)
        yield from filter(None, map(choice_of, (hint, *inner_hints(hint))))
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from _choices(field.annotation)


def _key(value: Any, chosen: dict[str, Choice], definitions: dict[str, Any]) -> Any:
    """The schema of a key as editors show it: texts on one line, components by reference, no titles."""
    if isinstance(value, list):
        return [_key(item, chosen, definitions) for item in value]
    if not isinstance(value, dict):
        return value
    kept = {key: _key(item, chosen, definitions) for key, item in value.items() if key != "title"}
    if isinstance(kept.get("description"), str):
        kept["description"] = " ".join(kept["description"].split())
    if group := kept.pop("component", None):
        kept["anyOf"] = [{"enum": kept.pop("enum")}, *_references(chosen[group], definitions)]
    return kept
