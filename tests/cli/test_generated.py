"""The JSON Schemas agree with the values that Hydra composes and with our YAML files."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from segmeter.cli.config.compose import Request, compose_jobs
from segmeter.cli.config.groups import CONFIGS, GROUPS, PRESETS, ROOTS, TRAINED, groups_of, options, schemas_of
from segmeter.cli.config.reference import json_schema, option
from segmeter.cli.main import main
from segmeter.schema import Registry, defaults


def fits(value: Any, schema: dict[str, Any], top: dict[str, Any]) -> bool:
    """A check of a value by the part of JSON Schema that is used here, written for this test alone."""
    if "$ref" in schema:
        node: Any = top
        for part in schema["$ref"].removeprefix("#/").split("/"):
            node = node[part]
        return fits(value, node, top)
    if "anyOf" in schema and not any(fits(value, arm, top) for arm in schema["anyOf"]):
        return False
    if "const" in schema or "enum" in schema:
        return value in schema.get("enum", [schema.get("const")])
    kinds = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)}
    kinds |= {"integer": int, "number": int | float}
    kind = schema.get("type")
    if kind and (not isinstance(value, kinds[kind]) or (isinstance(value, bool) and kind in ("integer", "number"))):
        return False
    if isinstance(value, dict):
        known, rest = schema.get("properties", {}), schema.get("additionalProperties", True)
        return all(
            fits(item, known[key], top) if key in known else rest if isinstance(rest, bool) else fits(item, rest, top)
            for key, item in value.items()
        )
    if isinstance(value, list):
        items = [*schema.get("prefixItems", []), *[schema.get("items", {})] * len(value)]
        return all(fits(item, part, top) for item, part in zip(value, items, strict=False))
    if isinstance(value, int | float) and kind in ("integer", "number"):
        return schema.get("minimum", value) <= value <= schema.get("maximum", value)
    return True


@pytest.mark.parametrize("command", ROOTS)
def test_what_hydra_composes_fits_the_json_schema(command: str) -> None:
    problems: list[str] = []
    (job,) = compose_jobs(Request(command), problems)
    values = {key: value for key, value in job.values.items() if value != "???"}
    if command == "compare":
        values.pop("runs", None)
    schema = json_schema(f"{command}_command" if command in GROUPS else command)
    assert not problems
    assert fits(values, schema, schema)
    assert not fits(values | {"sede": 1}, schema, schema)
    assert not fits(values | {"seed": -1}, schema, schema)


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*/*.yaml")), ids=lambda path: f"{path.parent.name}={path.stem}")
def test_our_yaml_files_fit_the_json_schema(path: Path) -> None:
    schema = json_schema("train" if path.parent.name in PRESETS else path.parent.name)
    assert fits(yaml.safe_load(path.read_text()), schema, schema)


def test_the_json_schema_can_be_printed(capsys: pytest.CaptureFixture[str]) -> None:
    main(["schema", "train"])
    assert json.loads(capsys.readouterr().out) == json_schema("train")


def every_option() -> list[tuple[str, str]]:
    return [(group, name) for group, found in options().items() if group in GROUPS for name in found if name != TRAINED]


@pytest.mark.parametrize(("group", "name"), every_option(), ids="=".join)
def test_hydras_values_are_those_of_the_schema_and_the_yaml_file(group: str, name: str) -> None:
    command = next(command for command in ROOTS if group in groups_of(command))
    problems: list[str] = []
    (job,) = compose_jobs(Request(command, [f"{group}={name}"]), problems)
    schema, values = option(group, name)
    expected = defaults(schema) | values  # type: ignore[arg-type]
    if group in ("training", "metrics"):
        expected["seed"] = 0  # the command's
    assert not problems
    assert job.values[group] == expected


@pytest.mark.parametrize("group", sorted(path.name for path in CONFIGS.iterdir() if path.is_dir()))
def test_yaml_files_hold_only_what_differs_from_the_schema(group: str) -> None:
    if group not in GROUPS:
        return
    for path in (CONFIGS / group).glob("*.yaml"):
        assert path.stem not in schemas_of(group)
        values = yaml.safe_load(path.read_text())
        values.pop("defaults")
        choice = GROUPS[group]
        assert not isinstance(choice, Registry)
        assert not {key for key, value in values.items() if defaults(choice)[key] == value}


def test_the_table_of_contents_lists_every_group_option_and_command() -> None:
    rows = [line.split(" | ") for line in (CONFIGS / "README.md").read_text().splitlines() if line.startswith("| `")]
    listed = {row[0].strip("| `"): set(" ".join(row[1].split("`")[1::2]).split()) for row in rows}
    assert listed == {group: set(names) for group, names in options().items()}
    for row in rows:
        commands = [command for command in ROOTS if row[0].strip("| `") in groups_of(command)]
        assert row[3].strip(" |").split() == commands
