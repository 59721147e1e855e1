"""`segmeter report run=RUN`: rebuild the HTML report of a run."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from segmeter.errors import ConfigError
from segmeter.remote.urls import url_of
from segmeter.report.config import ReportConfig
from segmeter.report.html import write_report

_USAGE = "Write segmeter report run=RUN, and if need be report.pictures=link or report.picture_mb=20."


def run(arguments: Sequence[str]) -> None:
    """Write report.html anew from the run's own files, with the run's own settings of the report but for those given.

    Raises
    ------
    ConfigError
        Not exactly one folder was given, it is no run, or a setting is none of the report's.
    """
    given = [argument for argument in arguments if not argument.startswith("report.")]
    settings = [argument.removeprefix("report.") for argument in arguments if argument.startswith("report.")]
    if len(given) != 1:
        raise ConfigError(f"report: expected one run folder, got {len(given)}. {_USAGE}")
    if url_of(given[0].removeprefix("run=")):
        raise ConfigError("report: expected a run folder of this machine, got a URL. Copy the run here first.")
    folder = Path(given[0].removeprefix("run="))
    if not folder.is_dir():
        raise ConfigError(f"report: expected a run folder, got {folder.absolute()}, which is none.")
    config = ReportConfig(**_own(folder) | dict(_parse(setting) for setting in settings))
    sys.stdout.write(f"report    {write_report(folder, config)}\n")


def _own(folder: Path) -> dict[str, Any]:
    """The run's own settings; those that its version had and this one lacks are of no use."""
    try:
        found = yaml.safe_load((folder / "config.yaml").read_text("utf-8"))["report"]
    except (OSError, ValueError, yaml.YAMLError, KeyError, TypeError):
        return {}
    return {key: value for key, value in found.items() if key in ReportConfig.model_fields}


def _parse(setting: str) -> tuple[str, Any]:
    key, mark, value = setting.partition("=")
    if not mark:
        raise ConfigError(f"report: expected report.{key} to have a value, got none. {_USAGE}")
    return key, yaml.safe_load(value)
