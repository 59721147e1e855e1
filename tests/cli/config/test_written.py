"""What set a key is found: the command line wins over files, and a file that says something else is not blamed."""

import pytest

from segmeter.cli.config.written import find_written
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
