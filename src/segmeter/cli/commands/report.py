"""`segmeter report`: rebuilds the HTML report of a run, or writes an index of all runs below a folder."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from segmeter.errors import ConfigError
from segmeter.records import CONFIG, read_yaml
from segmeter.report.config import ReportConfig
from segmeter.report.html import write_report
from segmeter.report.page.runs import write_index

_USAGE = "Write segmeter report run=RUN, with report.pictures=link or report.picture_mb=20 if need be, or runs=ROOT."


def run(arguments: Sequence[str]) -> None:
    """Rebuild report.html from a run's files, with the report settings of the run except for those given.

    With ``runs=ROOT`` write ROOT/index.html.

    Raises
    ------
    ConfigError
        There is not exactly one folder, it is not a run, or a setting is not one of the report.
    """
    given = [argument for argument in arguments if not argument.startswith("report.")]
    settings = [argument.removeprefix("report.") for argument in arguments if argument.startswith("report.")]
    if len(given) != 1:
        raise ConfigError(f"report: expected one run folder, got {len(given)}. {_USAGE}")
    key, mark, value = given[0].partition("=")
    named = value if mark and key in ("run", "runs") else given[0]
    if "://" in named:
        raise ConfigError("report: expected a run folder of this machine, got a URL. Copy the run here first.")
    folder = Path(named)
    if not folder.is_dir():
        raise ConfigError(f"report: expected a run folder, got {folder.absolute()}.")
    if mark and key == "runs":
        if settings:
            raise ConfigError(
                f"report: expected no setting of the report with runs=, got report.{settings[0]}. {_USAGE}"
            )
        sys.stdout.write(f"index     {write_index(folder)}\n")
        return
    config = ReportConfig(**_own(folder) | dict(_parse(setting) for setting in settings))
    sys.stdout.write(f"report    {write_report(folder, config)}\n")


def _own(folder: Path) -> dict[str, Any]:
    """Return the run's own report settings, as far as this version has them."""
    try:
        found = read_yaml(folder / CONFIG).get("report")
    except FileNotFoundError:
        return {}
    if not isinstance(found, dict):
        return {}
    return {key: value for key, value in found.items() if key in ReportConfig.model_fields}


def _parse(setting: str) -> tuple[str, Any]:
    key, mark, value = setting.partition("=")
    if not mark:
        raise ConfigError(f"report: expected report.{key} to have a value, got none. {_USAGE}")
    return key, yaml.safe_load(value)
