"""Metrics of a run -> history.jsonl, one line each, flushed; a resumed run cuts it back to its checkpoint."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from segmeter.files import Lines


class History:
    """Appends rows to a file.

    Parameters
    ----------
    path
        Created where it is missing.
    position
        Bytes that stay; what was written after the checkpoint that is resumed will be written again.
    """

    def __init__(self, path: Path, *, position: int = 0) -> None:
        self.path = path
        self._lines = Lines(path, keep=position)

    @property
    def position(self) -> int:
        """Bytes written so far."""
        return self._lines.size

    def write(self, row: Mapping[str, Any]) -> None:
        """Append one line of JSON; NaN and infinity, which JSON lacks, become null."""
        self._lines.write((json.dumps(_plain(row), allow_nan=False) + "\n").encode())

    def close(self) -> None:
        self._lines.close()


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value
