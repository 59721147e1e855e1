"""What a run has done, case by case: an interrupted run goes on from there and counts nothing twice."""

import json
import os
import shutil
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, cast

import numpy as np

from segmeter.checks import expected
from segmeter.data.listing import some
from segmeter.errors import ConfigError, DataError
from segmeter.files import TEMPORARY, write_json
from segmeter.metrics.rows import CaseRow

SCHEMA = 1
NAME = "manifest.json"
JOURNAL = "manifest.rows"  # only while a run is unfinished
SYNC_SECONDS = 1.0  # what a power cut may cost; a killed process loses nothing


@dataclass(frozen=True, kw_only=True, eq=False)
class Entry:
    """A case that is done: its row, the hash of its files, and what else its run has to know of it."""

    row: CaseRow
    sha256: str
    note: Mapping[str, Any] = field(default_factory=dict)


class Manifest:
    """The state of a run in its folder.

    ``manifest.json`` says what is measured (`identity`), of which cases, and at the end the hash of each case's files.
    ``manifest.rows`` has a line with a checksum per finished case, appended by one write, so that after any fault the
    complete lines count and the rest is measured again; it goes when the run is done.

    Make one with `begin` or `resume`.
    """

    def __init__(self, folder: Path, identity: Mapping[str, Any], cases: Sequence[str], *, done: bool) -> None:
        self.folder = folder
        self.identity = identity
        self.cases = tuple(cases)
        self.done = done
        self._hashes: dict[str, bytes] = {}
        self._file = -1
        self._synced = 0.0

    @classmethod
    def begin(cls, folder: Path, identity: Mapping[str, Any], cases: Sequence[str]) -> Self:
        """Start a run in a folder that is its own, made where it is missing."""
        folder.mkdir(parents=True, exist_ok=True)
        manifest = cls(folder, flatten(identity), cases, done=False)
        (folder / JOURNAL).unlink(missing_ok=True)
        manifest._write("running", dict.fromkeys(cases))
        return manifest

    @classmethod
    def resume(cls, folder: Path, identity: Mapping[str, Any], cases: Sequence[str]) -> Self:
        """Go on with the run in a folder, after `check_same`; what a killed process left half written goes."""
        check_same(folder, identity, cases)
        for path in list(folder.rglob(f"{TEMPORARY}*")):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
        return cls(folder, flatten(identity), cases, done=read_manifest(folder)["state"] == "done")

    def entries(self, keep: int | None = None) -> Iterator[Entry]:
        """The finished cases in the order in which they were added, and an end to what stands after the first `keep`.

        A line that a fault left incomplete, and all that follows it, is cut off.
        """
        self.close()
        self._hashes.clear()
        path, whole = self.folder / JOURNAL, 0
        if not path.is_file():
            return
        with path.open("rb") as file:
            for line in file:
                entry = None if len(self._hashes) == keep else _decode(line)
                if entry is None or entry.row.case_id in self._hashes:
                    break
                whole += len(line)
                self._hashes[entry.row.case_id] = bytes.fromhex(entry.sha256)
                yield entry
        os.truncate(path, whole)

    def add(self, entry: Entry) -> None:
        """Note a finished case."""
        if self._file < 0:
            self._file = os.open(self.folder / JOURNAL, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o666)
        self._hashes[entry.row.case_id] = bytes.fromhex(entry.sha256)
        content = memoryview(_encode(entry))
        while content:
            content = content[os.write(self._file, content) :]
        if time.monotonic() - self._synced > SYNC_SECONDS:
            os.fsync(self._file)
            self._synced = time.monotonic()

    def finish(self) -> None:
        """Say that all cases are done and their results are written."""
        self.close()
        self._write("done", {case_id: digest.hex() for case_id, digest in self._hashes.items()})
        (self.folder / JOURNAL).unlink(missing_ok=True)
        self.done = True

    def close(self) -> None:
        """Release the file; what was added stays."""
        if self._file >= 0:
            os.fsync(self._file)
            os.close(self._file)
            self._file = -1

    def _write(self, state: str, cases: Mapping[str, str | None]) -> None:
        content = {"schema": SCHEMA, "state": state, "identity": self.identity, "cases": cases}
        write_json(self.folder / NAME, content)


def read_manifest(folder: Path) -> dict[str, Any]:
    """The content of a run's manifest.json.

    Raises
    ------
    DataError
        There is none, or none of ours.
    """
    path = folder / NAME
    try:
        content = json.loads(path.read_bytes())
        if content["schema"] > SCHEMA:
            raise DataError(expected("resume", "manifest", f"of schema {SCHEMA} or older", path, "Update segmeter."))
        return cast(dict[str, Any], content)
    except (OSError, ValueError, KeyError, TypeError) as error:
        remedy = "Give the folder of a run, or resume=null to start one."
        raise DataError(expected("resume", "run", f"to hold {NAME}", f"{path} ({error})", remedy)) from error


def check_same(folder: Path, identity: Mapping[str, Any], cases: Sequence[str]) -> None:
    """Refuse to go on with what was begun otherwise.

    Raises
    ------
    ConfigError
        One line per key of the configuration that differs, and one for the cases.
    """
    before, now = read_manifest(folder), flatten(identity)
    was = before["identity"]
    lines = [
        f"resume: `{key}` was {was.get(key)!r} and is {now.get(key)!r} now."
        for key in sorted({*was, *now})
        if was.get(key) != now.get(key)
    ]
    known, given = set(before["cases"]), set(cases)
    for text, names in (("were not there", given - known), ("are gone", known - given)):
        lines += [f"resume: cases that {text} ({some(names)})."] if names else []
    if lines:
        raise ConfigError([*lines, "resume: this is another run. Start it with resume=null, or put these back."])


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested values as "group.key" -> plain value, as JSON gives it back.

    Examples
    --------
    >>> flatten({"data": {"names": ("a", "b"), "root": None}})
    {'data.names': ['a', 'b'], 'data.root': None}
    """
    flat: dict[str, Any] = {}
    for key, value in values.items():
        path = f"{prefix}{key}"
        flat |= flatten(value, f"{path}.") if isinstance(value, Mapping) else {path: value}
    return cast(dict[str, Any], json.loads(json.dumps(flat, default=str)))


def _encode(entry: Entry) -> bytes:
    row = entry.row
    content = {
        "case_id": row.case_id,
        "shape": [row.height, row.width, row.depth],
        "counts": row.counts.tolist(),
        "loss": row.loss,
        "changed": dict(row.changed_pixels),
        "extra": {name: float(value) for name, value in row.extra.items()},
        "spacing": row.spacing,
        "unit": row.unit,
        "sha256": entry.sha256,
        "note": dict(entry.note),
    }
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode("utf-8")
    return b"%08x %b\n" % (zlib.crc32(text), text)


def _decode(line: bytes) -> Entry | None:
    """The entry of a line; None where the line is not complete."""
    if not line.endswith(b"\n") or line[:8] != b"%08x" % zlib.crc32(line[9:-1]):
        return None
    content = json.loads(line[9:-1].decode("utf-8"))
    height, width, depth = content["shape"]
    row = CaseRow(
        case_id=content["case_id"],
        height=height,
        width=width,
        depth=depth,
        counts=np.array(content["counts"], np.int64),
        loss=content["loss"],
        changed_pixels=content["changed"],
        extra=content["extra"],
        spacing=None if content["spacing"] is None else tuple(content["spacing"]),
        unit=content.get("unit", ""),
    )
    return Entry(row=row, sha256=content["sha256"], note=content["note"])
