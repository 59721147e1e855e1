"""The JSON Schemas agree with the values that Hydra composes and with our YAML files."""

import json
from typing import Any

import pytest
import yaml

from segmeter.cli.config.compose import Request, compose_jobs
from segmeter.cli.config.groups import CONFIGS, GROUPS, PRESETS, ROOTS, TRAINED, groups_of, options, schemas_of
from segmeter.cli.config.reference import json_schema, option
from segmeter.cli.main import main
from segmeter.schema import defaults


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


def test_our_yaml_files_fit_the_json_schema() -> None:
    for path in CONFIGS.glob("*/*.yaml"):
        schema = json_schema("train" if path.parent.name in PRESETS else path.parent.name)
        assert fits(yaml.safe_load(path.read_text()), schema, schema), path


def test_the_json_schema_can_be_printed(capsys: pytest.CaptureFixture[str]) -> None:
    main(["schema", "train"])
    assert json.loads(capsys.readouterr().out) == json_schema("train")


def option_rows() -> list[tuple[str, dict[str, str]]]:
    """Commands with an option of each of their groups, so that every option of every group is in some row."""
    found, rows = options(), []
    for command in ROOTS:
        own = [group for group in groups_of(command) if group in GROUPS and group in found]
        names = {group: [name for name in found.pop(group) if name != TRAINED] for group in own}
        for place in range(max(map(len, names.values()), default=0)):
            rows.append((command, {group: each[min(place, len(each) - 1)] for group, each in names.items()}))
    return rows


@pytest.mark.parametrize(("command", "chosen"), option_rows(), ids=str)
def test_hydras_values_are_those_of_the_schema_and_the_yaml_file(command: str, chosen: dict[str, str]) -> None:
    problems: list[str] = []
    (job,) = compose_jobs(Request(command, [f"{group}={name}" for group, name in chosen.items()]), problems)
    assert not problems
    for group, name in chosen.items():
        schema, values = option(group, name)
        seed = {"seed": 0} if group in ("training", "metrics") else {}  # the command's
        assert job.values[group] == defaults(schema) | values | seed, group  # type: ignore[arg-type]


def test_yaml_files_hold_only_what_differs_from_the_schema() -> None:
    for path in CONFIGS.glob("*/*.yaml"):
        group = path.parent.name
        if group in GROUPS:
            assert path.stem not in schemas_of(group)
            usual, values = defaults(GROUPS[group]), yaml.safe_load(path.read_text())  # type: ignore[arg-type]
            assert not {key for key, value in values.items() if key != "defaults" and usual[key] == value}, path


def test_the_table_of_contents_lists_every_group_option_and_command() -> None:
    rows = [line.split(" | ") for line in (CONFIGS / "README.md").read_text().splitlines() if line.startswith("| `")]
    listed = {row[0].strip("| `"): set(" ".join(row[1].split("`")[1::2]).split()) for row in rows}
    assert listed == {group: set(names) for group, names in options().items()}
    for row in rows:
        commands = [command for command in ROOTS if row[0].strip("| `") in groups_of(command)]
        assert row[3].strip(" |").split() == commands
