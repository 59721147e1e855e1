"""Every command that is listed can be run, and the other way round."""

from pathlib import Path

from segmeter.cli import commands
from segmeter.cli.commands import COMMANDS, PLAIN, USAGE, command_module


def test_each_listed_command_has_a_module_and_a_usage_line():
    modules = {path.stem for path in Path(commands.__file__).parent.glob("[!_]*.py")}
    assert set(COMMANDS) == modules | {"demo", "schema"} == set(USAGE)
    assert set(PLAIN) <= set(COMMANDS)
    for name in COMMANDS:
        assert name not in modules or callable(command_module(name).run)
        assert USAGE[name].split()[:2] == ["segmeter", name]
