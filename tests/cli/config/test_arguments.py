"""The flags and overrides of a command line."""

import pytest

from segmeter.cli.config.arguments import read_arguments
from segmeter.errors import ConfigError


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
