"""The files of a run's folder as pages show them: None where one is missing."""

from contextlib import suppress
from pathlib import Path
from typing import Any

from segmeter.records import read_json, read_json_lines, read_own, read_run

_LONGEST_CONFIG = 200_000  # characters shown


def load_json(path: Path, form: Any = dict[str, Any]) -> dict[str, Any] | None:
    """Read a JSON file of a form; None where there is none."""
    with suppress(FileNotFoundError, NotADirectoryError):
        return read_json(path, form)
    return None


def load_run(folder: Path) -> dict[str, Any]:
    """Read run.json; empty where there is none."""
    with suppress(FileNotFoundError):
        return read_run(folder)
    return {}


def load_lines(path: Path) -> list[dict[str, Any]] | None:
    """Read lines of JSON, a half-written last one left out; None where there is no such file."""
    with suppress(FileNotFoundError):
        return read_json_lines(path)
    return None


def config_text(path: Path) -> str:
    """Read a configuration as it was written; "" where there is none."""
    with suppress(FileNotFoundError):
        return read_own(path).decode(errors="replace")[:_LONGEST_CONFIG]
    return ""
