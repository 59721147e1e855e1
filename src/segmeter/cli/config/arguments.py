"""Reads the flags and overrides of a command line, and the file that an override may stand for.

`segmeter train folds=5` needs the flags again for its trainings.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from segmeter.checks import expected
from segmeter.errors import ConfigError
from segmeter.records import read_yaml


def read_arguments(command: str, argv: Sequence[str]) -> argparse.Namespace:
    """Read the flags and overrides of a command.

    Raises
    ------
    ConfigError
        A flag is unknown or not allowed.
    """
    parser = _Parser(prog=f"segmeter {command}", add_help=False, allow_abbrev=False)
    parser.add_argument("overrides", nargs="*")
    parser.add_argument("--cfg", "-c", choices=["job"])
    parser.add_argument("--package", "-p")
    parser.add_argument("--config-name", "-cn")
    parser.add_argument("--config-dir", "-cd")
    parser.add_argument("--config-path", "-cp")
    for flag in (("--multirun", "-m"), ("--resolve",)):
        parser.add_argument(*flag, action="store_true")
    args = parser.parse_intermixed_args(list(argv))
    if args.config_path:
        raise ConfigError("config: --config-path is not allowed. Add your own folder of YAML files with --config-dir.")
    return args


def from_files(overrides: Sequence[str]) -> list[str]:
    """Replace `postprocess=FILE.yaml`, such as the tuned.yaml of `segmeter tune`, by overrides with the file's values.

    The other overrides come after them, so they win.

    Raises
    ------
    ConfigError
        The file is missing, or holds other groups.
    """
    files = [line for line in overrides if line.startswith("postprocess=") and line.endswith(".yaml")]
    found = list[str]()
    for path in (Path(line.partition("=")[2]) for line in files):
        try:
            values = read_yaml(path)
        except OSError as error:
            rule = "to be a file that segmeter tune wrote, or an option"
            raise ConfigError(expected("config", "postprocess", rule, f"{path} ({error.strerror})")) from error
        if set(values) - {"inference", "postprocess"} or not all(isinstance(each, dict) for each in values.values()):
            rule = f"to hold inference and postprocess, in {path}"
            raise ConfigError(expected("config", "postprocess", rule, ", ".join(values)))
        found += [f"{group}.{key}={_written(value)}" for group, keys in values.items() for key, value in keys.items()]
    return [*found, *(line for line in overrides if line not in files)]


def _written(value: Any) -> str:
    """Write a plain value as Hydra's overrides do, which name keys without quotes."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{_written(each)}" for key, each in value.items()) + "}"
    return f"[{','.join(map(_written, value))}]" if isinstance(value, list) else json.dumps(value)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{self.prog}: {message}. See: {self.prog} --help.")
