"""Every command that is listed can be run, and the other way round."""

import re
from pathlib import Path

from segmeter.cli import commands
from segmeter.cli.commands import COMMANDS, PLAIN, USAGE, find_command


def test_each_listed_command_has_a_module_and_a_usage_line():
    texts = [path.read_text() for path in Path(commands.__file__).parent.glob("[!_]*.py")]
    run = {name for text in texts for name in re.findall(r"^def run_(\w+)\(", text, re.MULTILINE)}
    assert set(COMMANDS) == run | {"demo", "schema"} == set(USAGE)
    assert set(PLAIN) <= set(COMMANDS)
    for name in COMMANDS:
        assert name not in run or callable(find_command(name))
        assert USAGE[name].split()[:2] == ["segmeter", name]
