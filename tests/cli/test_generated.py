"""What Hydra composes is what the schemas and our YAML files say, and the JSON Schema is printed."""

import json

import pytest
import yaml

from segmeter.cli.config.compose import Request, compose_jobs
from segmeter.cli.config.groups import CONFIGS, GROUPS, ROOTS, TRAINED, groups_of, options, schemas_of
from segmeter.cli.config.reference import json_schema, option
from segmeter.cli.main import main
from segmeter.schema import defaults


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
