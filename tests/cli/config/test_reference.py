"""One description of every key: as text of --cfg, as rows of the reference, as JSON Schema, as Hydra composes it."""

import pytest
import yaml

from segmeter.cli.config.compose import Request, compose_jobs
from segmeter.cli.config.groups import CONFIGS, GROUPS, ROOTS, TRAINED, groups_of, options, schemas_of
from segmeter.cli.config.reference import (
    DIALECT,
    json_schema,
    keys_of,
    names,
    option,
    options_of,
    own_keys,
    preset_summary,
    yaml_text,
)
from segmeter.errors import ConfigError
from segmeter.schema import defaults
from segmeter.schema.json_schema import node_of


def test_a_part_alone_is_the_same_as_in_the_whole_and_an_unknown_one_names_the_nearest():
    (job,) = compose_jobs(Request("train", ["loss=focal", "loss.gamma=1.5"]), [])
    whole, part, gamma = (yaml_text(node_of(ROOTS["train"]), job.raw, part=key) for key in (None, "loss", "loss.gamma"))
    assert yaml.safe_load(part) == yaml.safe_load(whole)["loss"]
    assert gamma == "1.5\n"
    assert "gamma: 1.5  # Focusing" in part
    for key, says in (("los", ". Did you mean 'loss'?"), ("seed.x", ".")):
        with pytest.raises(ConfigError) as refused:
            yaml_text(node_of(ROOTS["train"]), job.raw, part=key)
        assert refused.value.problems == (f"config: there is no {key!r} to show{says}",)


def test_keys_carry_the_prefix_default_range_and_the_words_that_complete_them():
    keys = {key.path: key for key in keys_of(node_of(schemas_of("loss")["focal"]), {"gamma": 3.0}, "loss.")}
    assert keys["loss.gamma"].default == "3.0"  # what an option sets wins over the schema
    assert ">= 0" in keys["loss.gamma"].range
    assert keys["loss.gamma"].completions == []
    assert "loss.name" not in keys
    training = schemas_of("training").values()
    keys = {key.path: key for each in training for key in keys_of(node_of(each), {}, "training.")}
    assert keys["training.deterministic"].completions == ["true", "false"]
    assert keys["training.compile"].completions == ["auto", "true", "false"]


def test_the_keys_of_a_command_leave_out_its_groups():
    groups = groups_of("train")
    assert {"data", "loss", "experiment"} <= set(groups)
    assert not {key.path.partition(".")[0] for key in own_keys("train")} & set(groups)


def test_the_default_option_of_each_group_can_be_chosen():
    chosen = [(command, group, option) for command in ROOTS for group, option in groups_of(command).items() if option]
    assert [each for each in chosen if each[2] not in options_of(*each[:2])] == []


def test_an_option_inherits_from_the_one_its_file_starts_from_and_its_comment_sums_it_up(tmp_path):
    folder = tmp_path / "loss"
    folder.mkdir()
    (folder / "base.yaml").write_text("name: focal\ngamma: 1\nalpha: 0.5\n")
    (folder / "own.yaml").write_text("# @package _global_\n# For a quick look.\ndefaults: [base, _self_]\ngamma: 4\n")
    schema, values = option("loss", "own", [tmp_path])
    assert schema is schemas_of("loss")["focal"]
    assert values == {"name": "focal", "gamma": 4, "alpha": 0.5}
    assert preset_summary("loss", "own", [tmp_path]) == "For a quick look."


def parts(value):
    """A value, and all values within it."""
    yield value
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from parts(item)


@pytest.mark.parametrize("name", names())
def test_every_reference_of_a_json_schema_is_defined(name):
    schema = json_schema(name)
    assert schema["$schema"] == DIALECT
    links = {each["$ref"] for each in parts(schema) if isinstance(each, dict) and isinstance(each.get("$ref"), str)}
    assert {link.removeprefix("#/$defs/") for link in links} <= set(schema["$defs"])


def test_a_json_schema_takes_a_part_of_a_file_and_any_component_of_a_group():
    assert not [each for each in parts(json_schema("train")) if isinstance(each, dict) and "required" in each]
    schema = json_schema("loss")
    assert {each["$ref"] for each in schema["anyOf"]} == {f"#/$defs/loss.{name}" for name in schemas_of("loss")}
    focal = schema["$defs"]["loss.focal"]["properties"]
    assert (focal["name"], focal["gamma"]["minimum"]) == ({"const": "focal"}, 0)
    titles = [json_schema(name)["title"] for name in ("export_command", "export")]  # a command and a group of one name
    assert titles == ["segmeter export", "segmeter: an option of export"]


def test_eval_alone_takes_the_data_of_its_checkpoint():
    for command, takes in (("eval", True), ("train", False)):
        assert (f"data.{TRAINED}" in json_schema(command)["$defs"]) == takes
        assert (TRAINED in options_of(command, "data")) == takes


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


def test_yaml_files_hold_only_keys_of_the_schema_and_only_what_differs_from_it() -> None:
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
