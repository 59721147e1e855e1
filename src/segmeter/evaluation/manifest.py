"""What a run has done, case by case: an interrupted run continues from there and counts nothing twice."""

import itertools
import json
import time
import zlib
from base64 import b64decode, b64encode
from binascii import b2a_base64
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from segmeter.checks import expected, some
from segmeter.errors import ConfigError, DataError
from segmeter.files import Lines, atomic_write, describe_file, is_whole, json_bytes, make_folder, remove
from segmeter.metrics.cases.columns import split_scores
from segmeter.metrics.cases.notes import Notes
from segmeter.metrics.cases.table import HASHES, CaseRow
from segmeter.provenance import flatten
from segmeter.records import MOST_OF_CASES, FileEntry, Form, open_own, parse_json, read_json

SCHEMA = 4
NAME = "manifest.json"
STATES = ("running", "done")
JOURNAL = "manifest.rows"  # only while a run is unfinished
CASES_LINE, END_LINE = b'  "cases": {\n', b"  }\n"  # around the lines of the cases
LAST_LINE = b"}\n"
SYNC_SECONDS = 1.0  # what a power cut may cost; a killed process loses nothing

_dense = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode  # one is made per call of json.dumps
_spaced = json.JSONEncoder(ensure_ascii=False).encode


class RunManifest(Form):
    """The form of manifest.json."""

    identity: dict[str, Any]
    cases: dict[str, Any]
    state: str = ""
    results: dict[str, FileEntry] = Field(default_factory=dict)
    pictures: dict[str, FileEntry] = Field(default_factory=dict)
    inputs: dict[str, str] = Field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, eq=False)
class Entry:
    """A finished case: its row where it was measured, the hash of its files, and what else its run needs to resume."""

    case_id: str
    row: CaseRow | None = None
    sha256: str = ""
    note: Mapping[str, Any] = field(default_factory=dict)

    @property
    def measured(self) -> CaseRow:
        """The row of a case that was measured."""
        if self.row is None:
            raise DataError(expected("resume", f"case {self.case_id!r}", "to be measured", "none", "Start a new run."))
        return self.row


class Manifest:
    """The state of a run in its folder.

    ``manifest.json`` says what is measured (`identity`), of which cases, and at the end what each case's entry noted
    and the hashes of the results. ``manifest.rows`` has a line with a checksum per finished case, so that after any
    fault the complete lines are kept and the rest is measured again; it is removed when the run is done.

    Make one with `begin` or `resume`.
    """

    def __init__(self, folder: Path, identity: Mapping[str, Any], cases: Sequence[str], *, done: bool) -> None:
        self.folder = folder
        self.identity = identity
        self.cases = tuple(cases)
        self.done = done
        self._noted = Notes()
        self._lines: Lines | None = None
        self._synced = 0.0

    @classmethod
    def begin(cls, folder: Path, identity: Mapping[str, Any], cases: Sequence[str]) -> Self:
        """Start a run in a folder that no other run uses; it is created if it is missing."""
        make_folder(folder)
        manifest = cls(folder, flatten(identity), cases, done=False)
        manifest._write("running", dict.fromkeys(cases, b"null"))
        remove(folder / JOURNAL)
        return manifest

    @classmethod
    def resume(cls, folder: Path, identity: Mapping[str, Any], cases: Sequence[str]) -> Self:
        """Continue the run in a folder, after `check_same`."""
        check_same(folder, identity, cases)
        content = read_run_manifest(folder)
        done = content["state"] == "done"
        if done:  # a process may have been killed just before it removed these
            remove(folder / JOURNAL)
        return cls(folder, flatten(identity), cases, done=done)

    def entries(self, keep: int | None = None) -> Iterator[Entry]:
        """Yield the finished cases in the order in which they were added; drop all after the first `keep`.

        A line that a fault left incomplete, and all that follows it, is cut off.
        """
        self.close()
        self._noted.clear()
        whole = 0
        for entry, end in itertools.islice(read_journal(self.folder), keep):
            whole = end
            self.note(entry)
            yield entry
        if (self.folder / JOURNAL).is_file():
            Lines(self.folder / JOURNAL, keep=whole).close()

    def add(self, *entries: Entry) -> None:
        """Note finished cases: all of them, or none where they can't be written."""
        if self._lines is None:
            self._lines = Lines(self.folder / JOURNAL)
        self._lines.write(b"".join(map(encode_entry, entries)))
        for entry in entries:
            self.note(entry)
        if time.monotonic() - self._synced > SYNC_SECONDS:
            self._lines.sync()
            self._synced = time.monotonic()

    def note(self, entry: Entry) -> None:
        """Keep what is noted of a finished case, for when this run is done."""
        self._noted.put(entry.case_id, _note(entry))

    def take(self, case_id: str, note: bytes) -> None:
        """Take over what another run noted of a case that it finished, as JSON; it is kept when this run is done."""
        self._noted.put(case_id, note)

    def finish(self, results: Sequence[str] = (), *, inputs: Mapping[str, str] | None = None) -> None:
        """Mark the run as done: all cases are measured and the results are written.

        Parameters
        ----------
        results
            Names of the files in the folder whose hashes are kept, for `damaged_results`.
        inputs
            Hashes of files that were read beside those of the cases.
        """
        self.close()
        kept = {name: describe_file(self.folder / name) for name in results}
        self._write("done", self._noted, results=kept, inputs=dict(inputs or {}))
        remove(self.folder / JOURNAL)
        self.done = True

    def close(self) -> None:
        """Release the file; what was added stays."""
        if self._lines is not None:
            lines, self._lines = self._lines, None
            try:
                lines.sync()
            finally:
                lines.close()

    def hashes(self) -> dict[str, str]:
        """Hash of the files of each finished case, by case id."""
        return {case_id: parse_json(self.folder / NAME, noted)["sha256"] for case_id, noted in self._noted.items()}

    def damaged_results(self) -> list[str]:
        """Names of the results of a finished run that are not what was written."""
        results = read_run_manifest(self.folder)["results"]
        return [name for name, entry in results.items() if not is_whole(self.folder / name, entry)]

    def _write(self, state: str, cases: Mapping[str, bytes], **more: Any) -> None:
        head = {"schema": SCHEMA, "state": state, "identity": self.identity, **more}
        with atomic_write(self.folder / NAME) as file:  # line by line: there may be a million cases
            file.write(json_bytes(head).removesuffix(b"\n}\n") + b",\n" + CASES_LINE)
            end = b""
            for name, note in cases.items():
                file.write(b"%b    %b: %b" % (end, _spaced(name).encode("utf-8"), note))
                end = b",\n"
            file.write(b"\n" + END_LINE + LAST_LINE)


def read_journal(folder: Path) -> Iterator[tuple[Entry, int]]:
    """The finished cases of an interrupted run, each once, and at which byte each one ends; nothing is changed."""
    seen, end = set[str](), 0
    path = folder / JOURNAL
    if path.is_symlink() or not path.is_file():
        return
    with open_own(path, most=MOST_OF_CASES) as file:
        for line in file:
            entry = _decode(path, line)
            if entry is None or entry.case_id in seen:
                return
            seen.add(entry.case_id)
            end += len(line)
            yield entry, end


def read_notes(folder: Path) -> dict[str, dict[str, Any]]:
    """What was noted of each finished case, {"sha256": of its files, "note": ...}, of a run in any state."""
    manifest = read_run_manifest(folder)
    if manifest["state"] == "done":
        return {case_id: dict(noted) for case_id, noted in manifest["cases"].items()}
    return {entry.case_id: parse_json(folder / JOURNAL, _note(entry)) for entry, _ in read_journal(folder)}


def read_run_manifest(folder: Path) -> dict[str, Any]:
    """The content of a run's manifest.json.

    Raises
    ------
    DataError
        There is none, or it was not written by segmeter.
    """
    path = folder / NAME
    try:
        content = read_json(path, RunManifest, most=MOST_OF_CASES)
        schema = content["schema"]
        if schema == SCHEMA and content["state"] not in STATES:
            raise ValueError("damaged")
    except (OSError, ValueError, KeyError) as error:
        reason = error.strerror if isinstance(error, OSError) else f"damaged: {type(error).__name__} {error}"
        remedy = "Give the folder of a run, or resume=null to start one."
        raise DataError(expected("resume", "run", f"to hold a whole {NAME}", f"{path} ({reason})", remedy)) from error
    if schema != SCHEMA:
        remedy = "Resume it with the segmeter that started it, or start a new run with resume=null."
        raise DataError(expected("resume", "manifest", f"of schema {SCHEMA}", f"{schema!r} in {path}", remedy))
    return content


def check_same(folder: Path, identity: Mapping[str, Any], cases: Sequence[str]) -> None:
    """Refuse to resume a run of another configuration or other cases.

    Raises
    ------
    ConfigError
        One line per key of the configuration that differs, and one for the cases.
    """
    before, now = read_run_manifest(folder), flatten(identity)
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


def _note(entry: Entry) -> bytes:
    return _spaced({"sha256": entry.sha256, "note": dict(entry.note)}).encode("utf-8")


def encode_entry(entry: Entry) -> bytes:
    """A finished case as a line of the journal: equal for equal cases."""
    content: dict[str, Any] = {"case_id": entry.case_id, "sha256": entry.sha256, "note": dict(entry.note)}
    counts = b""
    if entry.row is not None:
        content["row"], counts = _encode_row(entry.row), _pack(entry.row.counts)
    text = _dense(content).encode("utf-8")
    if counts:  # most of the line, put in at the end of its row, as the encoder would look at every letter
        text = b'%b,"counts":%b}}' % (text[:-2], counts)
    return b"%08x %b\n" % (zlib.crc32(text), text)


def _encode_row(row: CaseRow) -> dict[str, Any]:
    return {
        "shape": [row.height, row.width, row.depth],
        "loss": row.loss,
        "loss_terms": row.loss_terms,
        "changed": dict(row.changed_pixels),
        "extra": row.scores,
        "spacing": row.spacing,
        "unit": row.unit,
        **({"objects": b64encode(row.objects).decode()} if row.objects else {}),
        **{name: getattr(row, name) for name in HASHES if getattr(row, name) is not None},
    }


def _pack(counts: NDArray[np.int64]) -> bytes:
    """Shape, dtype, and the bytes in base64, as JSON: a tenth of the time that numbers take."""
    dtype = "<u4" if counts.max(initial=0) < 2**32 else "<i8"
    packed = b2a_base64(counts.astype(dtype).tobytes(), newline=False)
    return b'[[%b],"%b","%b"]' % (",".join(map(str, counts.shape)).encode(), dtype.encode(), packed)


def _unpack(shape: list[int], dtype: str, packed: str) -> NDArray[np.int64]:
    return np.frombuffer(b64decode(packed), dtype).astype(np.int64).reshape(shape)


def _decode(path: Path, line: bytes) -> Entry | None:
    """The entry of a line; None where the line is not complete."""
    if not line.endswith(b"\n") or line[:8] != b"%08x" % zlib.crc32(line[9:-1]):
        return None
    content = parse_json(path, line[9:-1])
    case_id, row = content["case_id"], content.get("row")
    return Entry(
        case_id=case_id,
        row=None if row is None else _decode_row(case_id, row),
        sha256=content["sha256"],
        note=content["note"],
    )


def _decode_row(case_id: str, content: Mapping[str, Any]) -> CaseRow:
    height, width, depth = content["shape"]
    measured, extra = split_scores(content["extra"])
    return CaseRow(
        case_id=case_id,
        height=height,
        width=width,
        depth=depth,
        counts=_unpack(*content["counts"]),
        loss=content["loss"],
        loss_terms=tuple((sums, denominators) for sums, denominators in content.get("loss_terms", ())),
        changed_pixels=content["changed"],
        measured=measured,
        extra=extra,
        spacing=None if content["spacing"] is None else tuple(content["spacing"]),
        unit=content["unit"],
        objects=b64decode(content.get("objects", "")),
        **{name: content.get(name) for name in HASHES},
    )
