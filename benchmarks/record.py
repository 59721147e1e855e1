"""Records when, on what machine and with which versions a benchmark ran, beside its results."""

import json
import os
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from segmeter.records import hardware, versions

RESULTS = Path(__file__).parent / "results"


def circumstances(*peers: str) -> dict[str, Any]:
    """Date, machine and versions; `peers` are further packages that were compared with."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "hardware": hardware() | {"load_average": [round(load, 2) for load in os.getloadavg()]},
        "versions": versions() | {peer: _version(peer) for peer in peers},
    }


def write_record(path: Path, content: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def update_record(path: Path, name: str, figures: dict[str, Any]) -> None:
    """Replace one entry of a record of several, and keep the others."""
    entries = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    write_record(path, dict(sorted((entries | {name: figures}).items())))


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
