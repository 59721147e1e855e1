"""`segmeter report RUN`: rebuild the HTML report of a run."""

import sys
from collections.abc import Sequence
from pathlib import Path

from segmeter.errors import ConfigError
from segmeter.remote.urls import url_of
from segmeter.report.html import write_report


def run(arguments: Sequence[str]) -> None:
    """Write report.html anew from the run's own files.

    Raises
    ------
    ConfigError
        Not exactly one folder was given, or it is no run.
    """
    given = [argument.removeprefix("run=") for argument in arguments]
    if len(given) != 1:
        raise ConfigError(f"report: expected one run folder, got {len(given)}. Write segmeter report run=RUN.")
    if url_of(given[0]):
        raise ConfigError("report: expected a run folder of this machine, got a URL. Copy the run here first.")
    folder = Path(given[0])
    if not folder.is_dir():
        raise ConfigError(f"report: expected a run folder, got {folder.absolute()}, which is none.")
    sys.stdout.write(f"report    {write_report(folder)}\n")
