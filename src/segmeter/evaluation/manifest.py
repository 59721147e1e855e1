"""Keeps the state of an evaluation in its folder, so that an interrupted run continues and counts nothing twice.

``manifest.json`` has the identity of the run, its cases, and at the end the hashes of the results. While the run is
unfinished, ``manifest.rows`` is its journal: the rows of finished cases in Arrow batches, each with a checksum. After
any fault, whole batches are kept and the other cases are measured again.
"""

import json
import logging
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from struct import Struct
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field

from segmeter.checks import expected, some
from segmeter.classes import ClassSpec
from segmeter.errors import ConfigError, DataError
from segmeter.files import Lines, atomic_write, describe_file, is_whole, make_folder, remove, write_json
from segmeter.metrics.cases.objects import COLUMN as OBJECTS
from segmeter.metrics.cases.stored import in_batches
from segmeter.metrics.cases.table import CaseRow, CaseTable, columns_of_rows
from segmeter.records import MANIFEST, MOST_OF_CASES, FileEntry, Form, flatten, open_own, parse_json, read_json
from segmeter.schema import ADDED, RETIRED

SCHEMA = 5
PREDICTIONS = "predictions"  # the folder of a run's label maps and probabilities
STATES = ("running", "done")
RECORDS = "records.parquet"  # Of a finished run: the hash of each case's files, and the facts that a resume needs
JOURNAL = "manifest.rows"  # Of an unfinished run: the same, and the rows
# Cases are written together: at most this many, and all that wait as soon as a case is added more than a second after
# the last write. No timer writes them, so a kill loses the cases that were added since the last write, fewer than 64.
BATCH = 64
SECONDS = 1.0  # fsync is called as seldom, so a power cut may lose a second more.

_LOG = logging.getLogger(__name__)
RECORD_COLUMNS = ("case_id", "sha256", "record")
_HEAD = Struct("<QI")  # Each batch begins with its size in bytes and their CRC-32
_encode = json.JSONEncoder(ensure_ascii=False).encode  # `json.dumps` makes an encoder for each record
# A batch is so small that waking threads takes longer than packing it
_PACKED = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
_UNPACKED = pa.ipc.IpcReadOptions(use_threads=False)


class RunManifest(Form):
    """The form of manifest.json."""

    identity: dict[str, Any]
    cases: list[str] | dict[str, Any]  # before schema 5, a dict from names to records
    state: str = ""
    results: dict[str, FileEntry] = Field(default_factory=dict)
    inputs: dict[str, str] = Field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, eq=False)
class Entry:
    """A finished case: its row if it was measured, the hash of its files, and the facts that a resumed run needs.

    For `score` these facts are the fields of the case's `CaseSpacing`. For `eval` and `predict` they are ``image``, by
    which batches are formed, and ``files``, with the hash of each file of the prediction.
    """

    case_id: str
    row: CaseRow | None = None
    sha256: str = ""
    resume_facts: Mapping[str, Any] = field(default_factory=dict)


class Manifest:
    """The manifest and the journal of a run. Make one with `open_manifest` or `begin`, which flatten its identity."""

    def __init__(self, folder: Path, flat_identity: Mapping[str, Any], cases: Sequence[str], *, done: bool) -> None:
        self.folder = folder
        self.flat_identity = flat_identity
        self.head = {"schema": SCHEMA, "state": "", "identity": flat_identity}  # each write sets the state
        self.cases = tuple(cases)
        self.done = done
        self._journal: Lines | None = None
        self._unwritten: list[Entry] = []
        self._written = self._synced = 0.0  # long ago, so the first case is written at once

    @classmethod
    def begin(cls, folder: Path, identity: Mapping[str, Any], cases: Sequence[str]) -> Self:
        """Start a run in a folder that no other run uses; it is created if it is missing."""
        make_folder(folder)
        manifest = cls(folder, flatten(identity), cases, done=False)
        remove(folder / JOURNAL)  # before the manifest is replaced, so that no resume takes old rows for the new run's
        write_json(folder / MANIFEST, manifest.head | {"state": "running", "cases": list(cases)})
        return manifest

    def add(self, entry: Entry) -> None:
        """Record a finished case."""
        self._unwritten.append(entry)
        if len(self._unwritten) >= BATCH or time.monotonic() - self._written > SECONDS:
            self.flush()

    def flush(self) -> None:
        """Write the cases that were added: all of them, or none if they can't be written."""
        if not self._unwritten:
            return
        rows = [entry.row for entry in self._unwritten if entry.row is not None]
        table = columns_of_rows(rows) if rows else pa.table({"case_id": [entry.case_id for entry in self._unwritten]})
        records = [_encode(entry.resume_facts) for entry in self._unwritten]
        for name, texts in (("sha256", [entry.sha256 for entry in self._unwritten]), ("record", records)):
            table = table.append_column(name, pa.array(texts, pa.string()))
        journal = self._append(table)
        self._unwritten = []
        self._written = time.monotonic()
        if self._written - self._synced > SECONDS:
            journal.sync()
            self._synced = time.monotonic()

    def _append(self, table: pa.Table) -> Lines:
        """Write a batch to the journal, and return the journal."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema, options=_PACKED) as writer:
            writer.write_table(table.combine_chunks())
        body = sink.getvalue()
        self._journal = self._journal or Lines(self.folder / JOURNAL)
        self._journal.write(_HEAD.pack(len(body), zlib.crc32(body)) + bytes(body))
        return self._journal

    def truncate(self, cases: int) -> None:
        """Cut the journal of an interrupted run behind the first `cases`, and so what a fault left behind."""
        self.close()
        kept_bytes = 0
        cut_batch = None
        for table, end in read_batches(self.folder):
            if len(table) > cases:
                cut_batch = table.slice(0, cases)
                break
            kept_bytes = end
            cases -= len(table)
        self._journal = Lines(self.folder / JOURNAL, keep=kept_bytes)
        if cut_batch is not None and len(cut_batch):
            self._append(cut_batch)

    def table(self, spec: ClassSpec) -> CaseTable:
        """Return the rows of all finished cases; they are read from the journal on demand."""
        self.close()
        case_ids = list[str]()
        sizes = list[int]()
        ends = [0]
        for table, end in read_batches(self.folder):
            case_ids += table["case_id"].to_pylist()
            sizes.append(len(table))
            ends.append(end)

        def load(batches: range) -> pa.Table:
            tables = islice(read_batches(self.folder, ends[batches.start]), len(batches))
            return pa.concat_tables([table for table, _ in tables], promote_options="default")

        return CaseTable(case_ids, in_batches(sizes, load), spec.counts_shape)

    def finish(
        self, results: Sequence[str] = (), *, inputs: Mapping[str, str] | None = None, records: pa.Table | None = None
    ) -> None:
        """Mark the run as done: all cases are measured and the results are written.

        Parameters
        ----------
        results
            Names of the files in the folder whose hashes are kept, so that a resumed run notices damage.
        inputs
            Hashes of files that were read in addition to those of the cases.
        records
            case_id, sha256 and record of all cases; None reads them from the journal.
        """
        self.close()
        records = read_case_facts(self.folder) if records is None else records
        with atomic_write(self.folder / RECORDS) as file:
            pq.write_table(records.select(RECORD_COLUMNS).combine_chunks(), file, compression="zstd")
        files = {name: describe_file(self.folder / name) for name in (*results, RECORDS)}
        content = {"state": "done", "results": files, "inputs": dict(inputs or {}), "cases": list(self.cases)}
        write_json(self.folder / MANIFEST, self.head | content)
        remove(self.folder / JOURNAL)
        self.done = True

    def close(self) -> None:
        """Write the added cases and close the file."""
        self.flush()
        if self._journal is not None:
            with closing(self._journal) as journal:
                self._journal = None
                journal.sync()


def open_manifest(folder: Path, identity: Mapping[str, Any], cases: Sequence[str], *, resume: bool) -> Manifest:
    """Start a run's manifest, or continue it. A finished run with missing or damaged files starts again.

    Raises
    ------
    ConfigError
        The resumed run used another configuration or other cases.
    """
    if resume:
        before = check_same(folder, identity, cases)
        manifest = Manifest(folder, flatten(identity), cases, done=before["state"] == "done")
        if not manifest.done:
            return manifest
        remove(folder / JOURNAL)  # it is left over if a process was killed just before this step
        damaged = [name for name, entry in before["results"].items() if not is_whole(folder / name, entry)]
        if RECORDS not in damaged:
            damaged += find_damaged(folder, parse_case_facts(read_case_facts(folder)).values())
        if not damaged:
            return manifest
        _LOG.warning("resume: missing or damaged files are written again (%s).", some(damaged))
    return Manifest.begin(folder, identity, cases)


def find_damaged(folder: Path, facts: Iterable[Mapping[str, Any]]) -> list[str]:
    """Find the files of predictions that are missing or changed since they were written, by the facts of cases."""
    files = ((name, entry) for of_case in facts for name, entry in of_case.get("files", {}).items())
    return [name for name, entry in files if not is_whole(folder / PREDICTIONS / name, entry)]


def read_batches(folder: Path, start: int = 0) -> Iterator[tuple[pa.Table, int]]:
    """Read the whole batches of a run's journal from byte `start` on, each with the byte at which it ends.

    Raises
    ------
    DataError
        An older version began the journal, with other columns.
    """
    path = folder / JOURNAL
    if path.is_symlink() or not path.is_file():
        return
    with open_own(path, most=MOST_OF_CASES) as file:
        file.seek(start)
        while len(head := file.read(_HEAD.size)) == _HEAD.size:
            size, checksum = _HEAD.unpack(head)
            body = file.read(min(size, MOST_OF_CASES))
            if not size or len(body) != size or zlib.crc32(body) != checksum:  # a power cut may leave zeros
                return
            with pa.ipc.open_stream(body, options=_UNPACKED) as reader:
                table = reader.read_all()
            if "objects" in table.column_names and table.schema.field("objects").type != OBJECTS:
                rule, remedy = "to be begun by this version of segmeter", "Start a new run with resume=null."
                raise DataError(expected("resume", "run", rule, f"an older journal, {path}", remedy))
            yield table, file.tell()


def read_case_facts(folder: Path) -> pa.Table:
    """Read case_id, sha256 and record (the facts for a resume, as JSON) of the finished cases of a run in any state.

    Raises
    ------
    DataError
        As `read_run_manifest`; or the table is missing or damaged.
    """
    if read_run_manifest(folder)["state"] != "done":
        no_rows = pa.table({name: pa.array([], pa.string()) for name in RECORD_COLUMNS})
        return pa.concat_tables([no_rows, *(table.select(RECORD_COLUMNS) for table, _ in read_batches(folder))])
    try:
        with open_own(folder / RECORDS, most=MOST_OF_CASES) as file:
            return pq.read_table(file, columns=list(RECORD_COLUMNS))
    except (pa.ArrowException, OSError) as error:
        rule = f"to hold a whole {RECORDS}"
        raise DataError(expected("resume", "run", rule, f"{folder / RECORDS} ({error})", "Start a new run.")) from error


def hashes_of(records: pa.Table) -> dict[str, str]:
    """Return the hash over each case's files, by case id."""
    return dict(zip(records["case_id"].to_pylist(), records["sha256"].to_pylist(), strict=True))


def parse_case_facts(records: pa.Table) -> dict[str, dict[str, Any]]:
    """Return the facts for a resume of each case, by case id."""
    texts = zip(records["case_id"].to_pylist(), records["record"].to_pylist(), strict=True)
    return {case_id: parse_json(Path(f"record of {case_id!r}"), text) for case_id, text in texts}


def read_run_manifest(folder: Path) -> dict[str, Any]:
    """Read a run's manifest.json.

    Raises
    ------
    DataError
        There is none, or it was not written by segmeter.
    """
    path = folder / MANIFEST
    try:
        content = read_json(path, RunManifest, most=MOST_OF_CASES)
        schema = content["schema"]
        if schema == SCHEMA and content["state"] not in STATES:
            raise ValueError("damaged")
    except (OSError, ValueError, KeyError) as error:
        reason = error.strerror if isinstance(error, OSError) else f"damaged: {type(error).__name__} {error}"
        remedy = "Give the folder of a run, or resume=null to start one."
        raise DataError(
            expected("resume", "run", f"to hold a whole {MANIFEST}", f"{path} ({reason})", remedy)
        ) from error
    if schema != SCHEMA:
        remedy = "Resume it with the segmeter that started it, or start a new run with resume=null."
        raise DataError(expected("resume", "manifest", f"of schema {SCHEMA}", f"{schema!r} in {path}", remedy))
    return content


def check_same(folder: Path, identity: Mapping[str, Any], cases: Sequence[str]) -> dict[str, Any]:
    """Refuse to resume a run of another configuration or other cases.

    Returns
    -------
    dict
        The content of its manifest.

    Raises
    ------
    ConfigError
        One line per key of the configuration that differs, and one for the cases.
    """
    before = read_run_manifest(folder)
    was = RETIRED | ADDED | before["identity"]
    now = RETIRED | ADDED | flatten(identity)
    lines = [
        f"resume: `{key}` was {was.get(key)!r} and is {now.get(key)!r} now."
        for key in sorted({*was, *now})
        if was.get(key) != now.get(key)
    ]
    old_cases = set(before["cases"])
    new_cases = set(cases)
    for text, names in (("were not there", new_cases - old_cases), ("are gone", old_cases - new_cases)):
        lines += [f"resume: cases that {text} ({some(names)})."] if names else []
    if lines:
        raise ConfigError([*lines, "resume: this is another run. Start it with resume=null, or put these back."])
    return before
