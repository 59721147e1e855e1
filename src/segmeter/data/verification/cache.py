"""Remembers what was found in files, so that the next start reads only the files that changed.

A file counts as unchanged while its path, size, modification time, status change time and inode are the same. Writing
into a file changes its status time even if size and modification time are put back. If a file was read less than
`SETTLED_SECONDS` after its last change, a later write could get the same times, so it is verified again.
"""

import io
import json
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segmeter.files import atomic_write, sha256_json
from segmeter.records import cache_folder

SETTLED_SECONDS = 2.0  # the coarsest clock of any file system in use (FAT's)
MAX_FILES, MAX_BYTES = 64, 2 * 1024**3  # of the whole cache; the least recently used files go first
_SUFFIX = ".verified"
Rows = NDArray[np.void]


class VerifiedFiles:
    """The findings of earlier starts, for one way of reading files; several processes may use it at once.

    A cache file that is damaged or can't be read or written is ignored, and everything is verified again.

    Parameters
    ----------
    settings
        Everything that decides what is found in a file, as plain values.
    dtype
        Of a row.
    """

    def __init__(self, settings: Any, dtype: np.dtype[Any]) -> None:
        self.path = cache_folder() / f"{sha256_json([settings, str(dtype)])[:40]}{_SUFFIX}"
        self.dtype = dtype

    def load(self) -> tuple[dict[str, int], Rows]:
        """Return the place of each case's row by name, and the rows."""
        try:
            if self.path.stat().st_size <= MAX_BYTES:
                # a ZIP file, whose checksums are verified
                with self.path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
                    names, rows = json.loads(bytes(stored["names"])), stored["rows"]
                os.utime(self.path)  # used now
                if len(rows) == len(names) and rows.dtype == self.dtype:
                    return {name: place for place, name in enumerate(names)}, rows
        except Exception:  # a damaged ZIP or NPY file raises many types, and none is worth a refusal
            pass
        return {}, np.zeros(0, self.dtype)

    def save(self, names: Sequence[str], rows: Rows) -> None:
        """Add rows, replace older ones of the same names, and delete what the cache has no room for."""
        known, kept = self.load()
        fresh = set(names)
        stay = {name: place for name, place in known.items() if name not in fresh}
        every = np.concatenate([kept[[*stay.values()]], rows]).astype(self.dtype, copy=False)
        listed = json.dumps([*stay, *names]).encode()
        buffer = io.BytesIO()
        np.savez(buffer, names=np.frombuffer(listed, np.uint8), rows=every)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_write(self.path) as file:
                file.write(buffer.getbuffer())
            total, files = 0, self.path.parent.glob(f"*{_SUFFIX}")
            for number, path in enumerate(sorted(files, key=lambda path: -path.stat().st_mtime_ns)):
                total += path.stat().st_size
                if number >= MAX_FILES or total > MAX_BYTES:
                    path.unlink(missing_ok=True)
        except OSError:
            return


def is_settled(state: NDArray[np.int64], read_at: int) -> NDArray[np.bool_]:
    """Tell whether files in states (..., 4) had been left alone long enough when they were read, in nanoseconds."""
    youngest = np.maximum(state[..., 1], state[..., 2])
    return np.asarray(youngest < read_at - int(SETTLED_SECONDS * 1e9))
