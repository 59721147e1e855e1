"""What set a key is found: the command line wins over files, and a file that says something else is not blamed."""

import pytest

from segmeter.cli.config.written import find_choice, find_written
from segmeter.schema.invalid import Written

VALUES = {"loss": {"gamma": "no"}, "data": {"classes": ["a", True]}}


def test_the_command_line_wins(tmp_path):
    (tmp_path / "loss").mkdir()
    (tmp_path / "loss" / "mine.yaml").write_text("gamma: no\n")
    found = find_written("loss.gamma", ["loss.gamma=1", "+loss.gamma=no"], VALUES, [tmp_path])
    assert found == Written(text="no")
    assert find_written("data.classes[1]", ["data.classes=[a, yes]"], VALUES, []) == Written(text="yes")


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("loss/mine.yaml", "# mine\ngamma: 'no'\n", 2),
        ("experiment/x.yaml", "# @package _global_\nloss:\n  gamma: 'no'\n", 3),
        ("root.yaml", "loss: {gamma: 'no'}\n", 1),
    ],
)
def test_a_file_is_named_with_its_line(tmp_path, name, text, line):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    assert find_written("loss.gamma", [], VALUES, [tmp_path]) == Written(text="no", place=f"{path}:{line}")


def test_a_file_with_another_value_or_that_can_not_be_read_is_passed_over(tmp_path):
    (tmp_path / "loss").mkdir()
    (tmp_path / "loss" / "other.yaml").write_text("gamma: 3\n")
    (tmp_path / "loss" / "broken.yaml").write_text("gamma: [\n")
    assert find_written("loss.gamma", [], VALUES, [tmp_path]) is None


@pytest.mark.parametrize(
    ("overrides", "choice"),
    [
        (["experiment=mine", "loss=dice"], "experiment=mine"),
        (["+experiment=mine", "loss=dice"], "experiment=mine"),
        (["experiment=mine", "loss.gamma=2"], ""),
        (["experiment=other"], ""),
        (["loss=dice"], ""),
    ],
)
def test_the_choice_of_a_file_that_sets_a_key_is_named(tmp_path, overrides, choice):
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "mine.yaml").write_text("# @package _global_\nloss: {gamma: 1}\ndata: {mean: [1, 2]}\n")
    (tmp_path / "experiment" / "other.yaml").write_text("# @package _global_\nloss: {alpha: 1}\n")
    assert find_choice("loss.gamma", overrides, [tmp_path]) == choice
    assert find_choice("data.mean", overrides[:1], [tmp_path]) == ("experiment=mine" if "mine" in overrides[0] else "")


@pytest.mark.parametrize("kind", ["a file elsewhere", "a folder of groups", "a long value"])
def test_values_of_other_keys_are_not_taken_for_choices(kind, tmp_path):
    folder, elsewhere = tmp_path / "configs", tmp_path / "run.yaml"
    (folder / "experiment").mkdir(parents=True)
    elsewhere.write_text("gamma: 1\n")
    key = "experiment" if kind == "a folder of groups" else "model.weights"
    value = "x" * 5000 if kind == "a long value" else elsewhere.with_suffix("")
    assert find_choice("gamma", [f"{key}={value}"], [folder]) == ""
