"""Reads the flags and overrides of a command line; `segmeter train folds=5` needs the flags again for its trainings."""

import argparse
from collections.abc import Sequence
from typing import NoReturn

from segmeter.errors import ConfigError


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


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{self.prog}: {message}. See: {self.prog} --help.")
