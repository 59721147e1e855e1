import pytest

from segmeter.cli.config.groups import CONFIGS, GROUPS, ROOTS, TRAINED, groups_of, schemas_of
from segmeter.cli.config.reference import as_yaml, keys_of, option, options_of, own_keys, preset_summary
from segmeter.schema.declared import node_of


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "null"), (True, "true"), ([1, 2.5], "[1, 2.5]"), ({"a": "é"}, "{a: é}"), ("010", "'010'"), ("", "''")],
)
def test_values_are_written_on_one_line_of_yaml(value, text):
    assert as_yaml(value) == text


def test_keys_carry_the_prefix_default_range_and_unit():
    keys = {key.path: key for key in keys_of(node_of(schemas_of("loss")["focal"]), {"gamma": 3.0}, "loss.")}
    assert keys["loss.gamma"].default == "3.0"  # what an option sets wins over the schema
    assert ">= 0" in keys["loss.gamma"].range
    assert "loss.name" not in keys


def test_a_key_is_completed_by_its_words():
    keys = {key.path: key for group in ("training", "loss") for each in schemas_of(group).values()
            for key in keys_of(node_of(each), {}, f"{group}.")}  # fmt: skip
    assert keys["training.deterministic"].completions == ["true", "false"]
    assert keys["training.compile"].completions == ["auto", "true", "false"]
    assert keys["loss.gamma"].completions == []


def test_the_keys_of_a_command_leave_out_its_groups():
    groups = groups_of("train")
    assert {"data", "loss", "experiment"} <= set(groups)
    assert not {key.path.partition(".")[0] for key in own_keys("train")} & set(groups)


@pytest.mark.parametrize("command", list(ROOTS))
def test_the_default_option_of_each_group_can_be_chosen(command):
    for group, chosen in groups_of(command).items():
        assert chosen == "" or chosen in options_of(command, group)


def test_the_data_of_the_checkpoint_are_offered_to_eval_alone():
    assert TRAINED in options_of("eval", "data")
    assert TRAINED not in options_of("train", "data")


@pytest.mark.parametrize("group", [group for group in GROUPS if (CONFIGS / group).is_dir()])
def test_every_option_has_a_schema_that_takes_what_its_file_sets(group):
    for path in (CONFIGS / group).glob("*.yaml"):
        schema, values = option(group, path.stem)
        assert set(values) <= {*schema.model_fields, "name"}


def test_an_option_inherits_from_the_one_its_file_starts_from(tmp_path):
    folder = tmp_path / "loss"
    folder.mkdir()
    (folder / "base.yaml").write_text("name: focal\ngamma: 1\nalpha: 0.5\n")
    (folder / "own.yaml").write_text("defaults: [base, _self_]\ngamma: 4\n")
    schema, values = option("loss", "own", [tmp_path])
    assert schema is schemas_of("loss")["focal"]
    assert values == {"name": "focal", "gamma": 4, "alpha": 0.5}


def test_a_preset_is_summed_up_by_its_comment(tmp_path):
    folder = tmp_path / "experiment"
    folder.mkdir()
    (folder / "own.yaml").write_text("# @package _global_\n# For a quick look.\nseed: 1\n")
    assert preset_summary("experiment", "own", [tmp_path]) == "For a quick look."
