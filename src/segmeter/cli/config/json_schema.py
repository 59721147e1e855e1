"""Writes the JSON Schemas by which editors complete and check YAML files, and those of results."""

import json
from typing import Any

from pydantic import BaseModel

from segmeter.checks import nearest
from segmeter.cli.config.groups import GROUPS, ROOTS, TRAINED, WITH_TRAINED_DATA
from segmeter.errors import ConfigError
from segmeter.schema import Registry
from segmeter.schema.declared import json_schema_of
from segmeter.schema.registry import REGISTRIES

DIALECT = "https://json-schema.org/draft/2020-12/schema"
RESULTS = ("plan.json", "tune.json", "agree.json", "suspects.json", "label_next.json")  # files that commands write
_COMMANDS = {f"{name}_command" if name in GROUPS else name: name for name in ROOTS}  # `export` is a group too
_DEFAULTS = {"type": "array", "description": "Hydra's defaults list: what this file starts from."}


def names() -> list[str]:
    """Return the names of the JSON Schemas of configurations: every command that has one, and every group."""
    return [*_COMMANDS, *GROUPS]


def _result_models() -> dict[str, type[BaseModel]]:
    """Return the models of `RESULTS`; their modules import pyarrow, which the build of a wheel does without."""
    from segmeter.evaluation.decisions.label_next import LabelNext
    from segmeter.evaluation.decisions.suspects import Suspects
    from segmeter.metrics.summary.agreement import Agreement
    from segmeter.metrics.summary.plan import Plan
    from segmeter.metrics.summary.tune import Tuned

    return dict(zip(RESULTS, (Plan, Tuned, Agreement, Suspects, LabelNext), strict=True))


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
        return {
            "$schema": DIALECT,
            "$defs": {},
            **_result_models()[name].model_json_schema(by_alias=True),
            "title": f"segmeter: {name}",
        }
    command, definitions = _COMMANDS.get(name), dict[str, Any]()
    choice = ROOTS[command] if command else GROUPS[name]
    if isinstance(choice, Registry):
        content: dict[str, Any] = {"anyOf": _references(choice.group, definitions)}
    else:
        content = _model(choice, definitions)
    if command in WITH_TRAINED_DATA:  # any key of the kind of data that its checkpoint was trained on
        named = {"properties": {"name": {"const": TRAINED}}, "required": ["name"]}
        definitions[f"data.{TRAINED}"] = {"type": "object", **named}
        content["properties"]["data"]["anyOf"].append({"$ref": f"#/$defs/data.{TRAINED}"})
    title = f"segmeter {command}" if command else f"segmeter: an option of {name}"
    return {"$schema": DIALECT, **content, "title": title, "$defs": dict(sorted(definitions.items()))}


def _references(group: str, definitions: dict[str, Any]) -> list[dict[str, Any]]:
    """Define every component of a group, and refer to each."""
    choice = REGISTRIES[group]
    for name in choice.names():
        key, model = f"{group}.{name}", choice.schema_of(name)
        if key not in definitions and model is not None:
            definitions[key] = {}  # a component may hold others of its kind
            definitions[key] = _model(model, definitions)
            definitions[key]["properties"]["name"] = {"const": name}
    return [{"$ref": f"#/$defs/{group}.{name}"} for name in choice.names()]


def _model(model: type[BaseModel], definitions: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a model, with references to its components, which are added to the definitions."""

    def for_editors(node: dict[str, Any]) -> dict[str, Any]:
        if "component" in node:
            group = node.pop("component")
            node["anyOf"] = [{"enum": REGISTRIES[group].names()}, *_references(group, definitions)]
        if node.get("type") == "object" and "properties" in node:
            node["properties"] = {"defaults": _DEFAULTS, **node["properties"]}
            node.pop("required", None)  # a file holds a part of the values
        return node

    schema: dict[str, Any] = json.loads(json.dumps(json_schema_of(model)), object_hook=for_editors)
    definitions |= schema.pop("$defs", {})
    return schema
