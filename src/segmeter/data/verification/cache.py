"""What was found in files that have not changed since, kept from one start to the next.

A file counts as unchanged while its path, size, time of modification, time of status change and inode are the same.
Whoever writes into a file changes the last but one even where size and modification time are put back. Times younger
than `SETTLED_SECONDS` when a file was read are not trusted, as a later write could get the same ones; such files are
verified again at the next start.
"""

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segmeter.files import atomic_write
from segmeter.provenance import cache_folder

SETTLED_SECONDS = 2.0  # the coarsest clock of file systems in use (FAT's)
MAX_FILES, MAX_BYTES = 64, 2 * 1024**3  # of the whole cache; what was used least recently goes first
_SUFFIX = ".verified"
_SUM = 32  # bytes of the checksum at the start of a file

Rows = NDArray[np.void]


class VerifiedFiles:
    """The findings of earlier starts, for one way of reading files; any number of processes may use it at once.

    A cache file that is damaged, or that can't be read or written, is not used: everything is verified again.

    Parameters
    ----------
    settings
        All that decides what is found in a file, as plain values; other settings have other findings.
    dtype
        Of a row.
    """

    def __init__(self, settings: Any, dtype: np.dtype[Any]) -> None:
        digest = hashlib.sha256(json.dumps([settings, str(dtype)], sort_keys=True).encode()).hexdigest()
        self.path = cache_folder() / f"{digest[:40]}{_SUFFIX}"
        self.dtype = dtype

    def load(self) -> tuple[dict[str, int], Rows]:
        """Names of cases -> place of their rows, and the rows."""
        try:
            if self.path.stat().st_size > MAX_BYTES:
                return self._nothing()
            content = self.path.read_bytes()
            os.utime(self.path)  # used now
            return self._parse(content)
        except (OSError, ValueError, KeyError, TypeError):
            return self._nothing()

    def save(self, names: Sequence[str], rows: Rows) -> None:
        """Add rows, in the place of older ones of the same names, and forget what the cache has no room for."""
        known, kept = self.load()
        fresh = set(names)
        stay = [(name, place) for name, place in known.items() if name not in fresh]
        every = np.concatenate([kept[[place for _, place in stay]], rows]).astype(self.dtype, copy=False)
        listed = json.dumps([*(name for name, _ in stay), *names]).encode()
        body = len(listed).to_bytes(8, "little") + listed + every.tobytes()
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_write(self.path) as file:
                file.write(hashlib.sha256(body).digest() + body)
            _forget(self.path.parent)
        except OSError:
            return

    def _parse(self, content: bytes) -> tuple[dict[str, int], Rows]:
        body = memoryview(content)[_SUM:]
        if hashlib.sha256(body).digest() != content[:_SUM]:
            raise ValueError("damaged")
        start = 8 + int.from_bytes(body[:8], "little")
        names = json.loads(bytes(body[8:start]))
        rows = np.frombuffer(body[start:], self.dtype)
        if len(rows) != len(names):
            raise ValueError("damaged")
        return {name: place for place, name in enumerate(names)}, rows

    def _nothing(self) -> tuple[dict[str, int], Rows]:
        return {}, np.zeros(0, self.dtype)


def is_settled(state: NDArray[np.int64], read_at: int) -> NDArray[np.bool_]:
    """Whether files in states (..., 4) had been left alone for long enough when they were read, in nanoseconds."""
    youngest = np.maximum(state[..., 1], state[..., 2])
    return np.asarray(youngest < read_at - int(SETTLED_SECONDS * 1e9))


def _forget(folder: Path) -> None:
    files = sorted(folder.glob(f"*{_SUFFIX}"), key=lambda path: -path.stat().st_mtime_ns)
    total = 0
    for number, path in enumerate(files):
        total += path.stat().st_size
        if number >= MAX_FILES or total > MAX_BYTES:
            path.unlink(missing_ok=True)
