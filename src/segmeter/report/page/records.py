"""The files of a run's folder, as pages show them: missing is None, damaged is said."""

import json
from pathlib import Path
from typing import Any

from segmeter.checks import expected
from segmeter.errors import InputError
from segmeter.open_files import read_json_lines, read_own

_LONGEST_CONFIG = 200_000  # characters shown


def load_json(path: Path) -> Any:
    """Read a JSON file; None where there is none."""
    if not path.is_file():
        return None
    content = read_own(path)
    try:
        return json.loads(content)
    except ValueError as error:
        raise InputError(expected("write_report", path.name, "to be JSON", f"{str(path)!r} ({error})")) from error


def load_lines(path: Path) -> list[dict[str, Any]] | None:
    """Read lines of JSON, a half-written last one left out; None where there is no such file."""
    if not path.is_file():
        return None
    try:
        return read_json_lines(path)
    except ValueError as error:
        raise InputError(
            expected("write_report", path.name, "to be lines of JSON", f"{str(path)!r} ({error})")
        ) from error


def config_text(path: Path) -> str:
    """A configuration as it was written; "" where there is none."""
    return read_own(path).decode(errors="replace")[:_LONGEST_CONFIG] if path.is_file() else ""
