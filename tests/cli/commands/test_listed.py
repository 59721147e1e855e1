"""Every command that is listed can be run, and the other way round."""

from pathlib import Path

from segmeter.cli import commands, decisions
from segmeter.cli.commands import COMMANDS, DECISIONS, PLAIN, USAGE, command_module


def test_each_listed_command_has_a_module_and_a_usage_line():
    rooms = [{path.stem for path in Path(room.__file__).parent.glob("[!_]*.py")} for room in (commands, decisions)]
    modules = rooms[0] | set(DECISIONS)
    assert rooms[1] >= set(DECISIONS)
    assert set(COMMANDS) == modules | {"demo", "schema"} == set(USAGE)
    assert set(PLAIN) <= set(COMMANDS)
    for name in COMMANDS:
        assert name not in modules or callable(command_module(name).run)
        assert USAGE[name].split()[:2] == ["segmeter", name]
