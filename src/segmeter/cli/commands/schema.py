"""`segmeter schema NAME`: the JSON Schema of a command or a configuration group."""

import json
import sys
from collections.abc import Sequence

from segmeter.cli.app import plugins_of
from segmeter.cli.config.groups import load_plugins
from segmeter.cli.config.json_schema import json_schema, names
from segmeter.errors import ConfigError


def run(arguments: Sequence[str]) -> None:
    """Print the schema; components of installed plugins, and of `plugins=[...]`, are in it.

    Raises
    ------
    ConfigError
        Not exactly one name was given, or there is no such command or group.
    """
    load_plugins(plugins_of(arguments))
    asked = [argument for argument in arguments if not argument.startswith("plugins=")]
    if len(asked) != 1:
        raise ConfigError(f"schema: expected one name, got {len(asked)}. Known: {', '.join(names())}.")
    sys.stdout.write(json.dumps(json_schema(asked[0]), indent=1, ensure_ascii=False) + "\n")
