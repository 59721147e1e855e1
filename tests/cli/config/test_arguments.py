"""The flags and overrides of a command line."""

from pathlib import Path

import pytest
import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser

from segmeter.cli.config.arguments import from_files, read_arguments
from segmeter.errors import ConfigError, InputError


def test_flags_and_overrides_may_stand_in_any_order() -> None:
    args = read_arguments("train", ["loss=dice", "--config-dir", "mine", "-m", "optimizer.lr=1,2", "-cn", "own"])
    assert args.overrides == ["loss=dice", "optimizer.lr=1,2"]
    assert (args.config_dir, args.config_name, args.multirun, args.cfg) == ("mine", "own", True, None)


@pytest.mark.parametrize(
    ("flag", "line"),
    [
        (["--config-path", "/tmp"], "Add your own folder of YAML files with --config-dir"),
        (["--nosuch"], "unrecognized arguments: --nosuch"),
        (["--cfg", "all"], "invalid choice: 'all'"),
    ],
)
def test_other_flags_are_refused(flag: list[str], line: str) -> None:
    with pytest.raises(ConfigError, match=line):
        read_arguments("train", flag)


def test_a_tuned_file_stands_for_its_values_and_other_overrides_win(tmp_path: Path) -> None:
    path = tmp_path / "tuned.yaml"
    step = {"name": "remove_small_objects", "min_pixels": 64, "classes": None}
    path.write_text(
        yaml.safe_dump(
            {"inference": {"threshold": 0.4, "flips": True}, "postprocess": {"steps": [step]}}, sort_keys=False
        )
    )
    given = ["checkpoint=net", f"postprocess={path}", "inference.threshold=0.6"]
    found = from_files(given)
    assert found[-2:] == ["checkpoint=net", "inference.threshold=0.6"]
    parsed = [one.value() for one in OverridesParser.create().parse_overrides(found)]
    assert parsed == [0.4, True, [step], "net", 0.6]
    assert from_files(["postprocess=cells"]) == ["postprocess=cells"]


@pytest.mark.parametrize(
    ("content", "told"), [(None, "No such file"), ("loss: {}", "to hold inference and postprocess"), ("[1]", "mapping")]
)
def test_a_file_that_tune_did_not_write_is_refused(tmp_path: Path, content: str | None, told: str) -> None:
    if content is not None:
        (tmp_path / "x.yaml").write_text(content)
    with pytest.raises(InputError, match=told):
        from_files([f"postprocess={tmp_path}/x.yaml"])
