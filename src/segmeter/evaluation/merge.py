"""Joins parts of a run into its folder: rows, metrics and predictions equal those of one run on all cases, to the byte.

The parts are the shards of a run, or the folds of a cross-validation.
"""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from segmeter.checks import expected, some
from segmeter.classes import ClassSpec
from segmeter.distributed.shards import hash_names
from segmeter.errors import DataError, InputError
from segmeter.evaluation.manifest import Manifest, find_runs, parse_records, read_records, read_run_manifest
from segmeter.evaluation.score import SUMMARY
from segmeter.evaluation.spacings import Spacings
from segmeter.files import is_whole, link_error, link_or_copy, make_folder, safe_id, write_json
from segmeter.metrics.cases.stored import open_cases, read_spec, write_cases
from segmeter.metrics.cases.table import SCORE, CaseTable
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.probabilities.stored import NAME as SUMS
from segmeter.metrics.probabilities.stored import empty_sums, read_sums, summarise_calibration, write_sums
from segmeter.metrics.summary.slice_labels import hash_tables
from segmeter.metrics.summary.summarise import summarise
from segmeter.parallel import map_in_threads
from segmeter.progress import track
from segmeter.provenance import flatten
from segmeter.records import changed_files, read_run
from segmeter.schema import as_plain

MISSING = SCORE + "missing"  # a column: 1 where a case has no prediction

_LOG = logging.getLogger(__name__)
Kind = Literal["shards", "folds"]

COMMANDS = ("eval", "score", "predict")
SHARD = ("shard.shard", "shard.cases", "shard.sha256")  # of a manifest's identity, see `describe_shard`
# Folds differ in their checkpoint, their held-out cases, and the normalisation of their training cases
OF_A_FOLD = frozenset(
    ("files.checkpoint_sha256", "files.data", *(f"data.{key}" for key in ("fold", "split", "mean", "std")))
)


@dataclass(frozen=True, kw_only=True, eq=False)
class Piece:
    """A finished run on some of the cases.

    Parameters
    ----------
    folder
        Its folder.
    command
        The command that made it: "eval", "score" or "predict".
    identity
        Everything that determined its results, by "group.key", without its shard.
    shard
        Its shard, by the last part of the keys `SHARD`; empty if it is not a shard.
    records
        case_id, sha256 and record of each of its cases.
    inputs
        Hashes of the files that its manifest keeps in addition to those of the cases.
    record
        Its run.json.
    spec
        The classes; None for predict.
    """

    folder: Path
    command: str
    identity: Mapping[str, Any]
    shard: Mapping[str, Any]
    records: pa.Table
    inputs: Mapping[str, str]
    record: Mapping[str, Any]
    spec: ClassSpec | None

    @cached_property
    def cases(self) -> dict[str, tuple[str, str]]:
        """The hash of the files and the record of each case, by case id."""
        columns = (self.records[name].to_pylist() for name in ("sha256", "record"))
        return dict(zip(self.records["case_id"].to_pylist(), zip(*columns, strict=True), strict=True))

    @property
    def name(self) -> str:
        """Its name in messages."""
        return self.folder.name


def read_pieces(folders: Sequence[Path]) -> list[Piece]:
    """Read runs that are finished and whole.

    Raises
    ------
    DataError
        A folder is not a finished run of eval, score or predict, or a file of it was changed; one line each.
    InputError
        There are none, or one is given twice.
    """
    resolved = find_runs("merge", folders)
    if not resolved:
        raise InputError(expected("merge", "runs", "to name run folders", "none", "Write runs=[A,B]."))
    pieces, problems = list[Piece](), list[str]()
    for folder in resolved:
        try:
            pieces.append(_read(folder))
        except InputError as error:
            problems += error.problems
    if problems:
        raise DataError(problems)
    return pieces


def _read(folder: Path) -> Piece:
    remedy = "Give the folders of finished runs of segmeter eval, score or predict."
    try:
        record = read_run(folder)
        command = record.get("merged", {}).get("command") or record["command"]
        if command not in COMMANDS:
            raise ValueError(f"it is a run of {command}")
        manifest = read_run_manifest(folder)
    except (OSError, ValueError, KeyError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise DataError(expected("merge", "runs", "to be run folders", f"{folder} ({reason})", remedy)) from error
    if manifest["state"] != "done":
        go_on = f"Finish it with segmeter {command} resume={folder}."
        raise DataError(expected("merge", "runs", "to be finished", f"{folder}, which is not", go_on))
    written = manifest["results"]
    damaged = [name for name, entry in written.items() if not is_whole(folder / name, entry)]
    damaged += changed_files(folder, record)
    if damaged:
        rule = "to be as they were written"
        raise DataError(expected("merge", "runs", rule, f"{folder}, where these are not ({some(damaged)})"))
    identity = dict(manifest["identity"])
    shard = {key.partition(".")[2]: identity.pop(key) for key in SHARD if key in identity}
    return Piece(
        folder=folder,
        command=command,
        identity=identity,
        shard=shard,
        records=read_records(folder),
        inputs=manifest.get("inputs", {}),
        record=record,
        spec=None if command == "predict" else read_spec(folder),
    )


def check_pieces(pieces: Sequence[Piece], kind: Kind) -> None:
    """Refuse runs that are not parts of one run, with one line for each difference and each missing part.

    Raises
    ------
    InputError
        They differ in command, configuration, classes, checkpoint or data; or shards are missing, or differ in a case
        that they share; or folds are missing, or share a case or a checkpoint.
    """
    problems = [line for piece in pieces[1:] for line in _differences(pieces[0], piece, kind)]
    if not problems:
        problems = _incomplete(pieces) + _disagreeing(pieces) if kind == "shards" else _no_folds(pieces)
    if problems:
        raise InputError(problems)


def _differences(first: Piece, other: Piece, kind: Kind) -> list[str]:
    """The differences between two runs, apart from their cases."""
    one, two = _compared(first, kind), _compared(other, kind)
    return [
        expected("merge", key, f"to be the same in all runs, {one.get(key)!r} as in {first.name!r}",
                 f"{two.get(key)!r} in {other.name!r}")
        for key in sorted({*one, *two})
        if one.get(key) != two.get(key)
    ]  # fmt: skip


def _compared(piece: Piece, kind: Kind) -> dict[str, Any]:
    values = {"command": piece.command, **piece.identity, "colours": piece.spec and piece.spec.colours}
    values.pop("threads", None)  # they affect only last bits, see `threads_warning`
    if kind == "folds":
        return {key: value for key, value in values.items() if key not in OF_A_FOLD}
    return {**values, **{key: piece.shard.get(key) for key in ("cases", "sha256")}, "data": piece.record.get("data")}


def threads_warning(pieces: Sequence[Piece]) -> str | None:
    """A warning if the runs computed with different numbers of threads, as on different machines."""
    counts = {piece.identity.get("threads") for piece in pieces}
    if len(counts) == 1:
        return None
    numbers = ", ".join(sorted(map(str, counts)))
    return f"merge: the runs computed with {numbers} threads: last bits may differ from those of one run."


def _incomplete(pieces: Sequence[Piece]) -> list[str]:
    whole = [piece.name for piece in pieces if not piece.shard]
    if whole:
        remedy = "Runs on other cases, such as folds, are joined by kind=folds."
        return [expected("merge", "runs", "to be shards, made with shard=", f"whole runs ({some(whole)})", remedy)]
    found = {case_id for piece in pieces for case_id in piece.cases}
    total = pieces[0].shard["cases"]
    if len(found) == total and hash_names(list(found)) == pieces[0].shard["sha256"]:
        return []
    counts = {piece.shard["shard"].partition("/")[2] for piece in pieces}
    given = {piece.shard["shard"] for piece in pieces}
    missing = [f"{n}/{count}" for count in counts for n in range(1, int(count) + 1) if f"{n}/{count}" not in given]
    named = f", without shard {', '.join(missing)}" if len(counts) == 1 and missing else ""
    return [expected("merge", "runs", f"to be all shards of {total} cases", f"{len(found)} cases{named}")]


def _disagreeing(pieces: Sequence[Piece]) -> list[str]:
    """Shared cases whose files or records differ between shards; rows are compared when they are read."""
    owners, differing = dict[str, Piece](), list[str]()
    for piece in pieces:
        for case_id in piece.cases:
            owner = owners.setdefault(case_id, piece)
            if owner is not piece and piece.cases[case_id] != owner.cases[case_id]:
                differing.append(f"{case_id} in {owner.name} and {piece.name}")
    return [expected("merge", "runs", "to agree on the cases that they share", some(differing))] if differing else []


def _no_folds(pieces: Sequence[Piece]) -> list[str]:
    def problem(what: str, rule: str, given: object, remedy: str = "") -> None:
        problems.append(expected("merge", what, rule, given, remedy))

    problems: list[str] = []
    times = Counter(case_id for piece in pieces for case_id in piece.cases)
    if twice := [case_id for case_id, count in times.items() if count > 1]:
        problem("runs", "to be folds without a common case", some(twice))
    if len(pieces) < 2:
        problem("runs", "to be two or more folds", len(pieces), "Write runs=[A,B].")
    if shards := [piece.name for piece in pieces if piece.shard]:
        problem("runs", "to be whole folds", f"shards ({some(shards)})", "Merge the shards of each fold first.")
    hashes = [piece.identity.get("files.checkpoint_sha256") for piece in pieces]
    shared = [piece.name for piece, sha256 in zip(pieces, hashes, strict=True) if sha256 and hashes.count(sha256) > 1]
    if shared:
        problem("runs", "to be folds, each of a checkpoint of its own", f"the same checkpoint in {some(shared)}")
    folds = {piece.identity.get("data.fold") for piece in pieces}
    if folds == {None}:
        return problems
    given = {tuple(map(int, fold.split("/"))) for fold in folds if fold is not None}
    counts = {count for _, count in given}
    if len(counts) > 1 or None in folds:
        problem("data.fold", "to be i/k with one k in all runs", some(map(str, folds)))
        return problems
    (count,) = counts
    if missing := [f"{n}/{count}" for n in range(1, count + 1) if (n, count) not in given]:
        problem("runs", f"to be all {count} folds", f"none of fold {', '.join(missing)}")
    if seen := [piece.name for piece in pieces if piece.identity.get("data.split") != "val"]:
        problem("data.split", "to be val, the cases that a fold held out, in all runs", f"others in {some(seen)}")
    return problems


@dataclass(frozen=True, kw_only=True)
class Merge:
    """The runs to join, and the folder of the result.

    Parameters
    ----------
    pieces
        From `read_pieces`.
    kind
        "shards" of one run, or "folds" of a cross-validation.
    metrics
        The group of the runs' configuration; None for predict.
    folder
        The run's folder.
    """

    pieces: Sequence[Piece]
    kind: Kind
    metrics: MetricsConfig | None
    folder: Path


def check_merge(job: Merge) -> None:
    """Refuse runs that `merge` can't join, before anything is written.

    Raises
    ------
    InputError
        See `check_pieces`; or the runs' config.yaml is not the one that they were measured with; or they measured
        calibration and share a case.
    """
    check_pieces(job.pieces, job.kind)
    if job.metrics is None:
        return
    now = flatten({"metrics": as_plain(job.metrics), "tables": hash_tables(job.metrics)})
    first, decided = job.pieces[0], ("metrics.", "tables.")
    changed = [key for key, value in first.identity.items() if key.startswith(decided) and now.get(key) != value]
    if changed:
        rule = "to have the config.yaml and tables that it was measured with"
        raise InputError(expected("merge", "runs", rule, f"{first.name!r}, where other is {', '.join(changed)}"))
    shared = sum(len(piece.cases) for piece in job.pieces) - len(_owners(job.pieces)) if _calibrated(job) else 0
    if shared:
        rule = "to share no case, as calibration adds up all pixels of each"
        raise InputError(expected("merge", "runs", rule, f"{shared} cases in two of them"))


def merge(job: Merge) -> dict[str, Any]:
    """Join the runs. Each file that they wrote for a case is checked, then linked or copied.

    Returns
    -------
    dict
        The content of metrics.json, with ``merged`` for folds; empty for predict.

    Raises
    ------
    InputError
        The runs are not parts of one run, see `check_merge`.
    DataError
        A row that two shards share differs between them, or a file was changed since it was written.
    """
    check_merge(job)
    warning = threads_warning(job.pieces)
    if warning:
        _LOG.warning("%s", warning)
    first, owners = job.pieces[0], _owners(job.pieces)
    kept = {
        key: value
        for key, value in first.identity.items()
        if job.kind == "shards" or all(piece.identity.get(key) == value for piece in job.pieces)
    }
    manifest = Manifest.begin(job.folder, kept | _mark(job), list(owners))
    _take_files(job.folder, owners)
    if job.metrics is None or first.spec is None:
        _finish(job, manifest, owners)
        return {}
    rows = _read_rows(job.pieces)
    summary = summarise(rows, first.spec, job.metrics)
    if first.command == "score":
        summary |= _files_summary(rows, owners, job)
    if _calibrated(job):
        sums = empty_sums(first.spec)  # adding those of all runs is exact
        for piece in job.pieces:
            sums.add(read_sums(piece.folder, first.spec))
        write_sums(job.folder, sums)
        summary["calibration"] = summarise_calibration(sums.compute(), first.spec)
    summary |= _mark(job)
    written = write_cases(job.folder, rows, first.spec)
    write_json(job.folder / SUMMARY, summary)
    _finish(job, manifest, owners, (SUMMARY, *written, *([SUMS] if _calibrated(job) else [])))
    return summary


def _finish(job: Merge, manifest: Manifest, owners: Mapping[str, Piece], results: Sequence[str] = ()) -> None:
    inputs = {stem: sha256 for piece in job.pieces for stem, sha256 in piece.inputs.items()}
    ordered = {stem: inputs[stem] for stem in sorted(inputs, key=safe_id)}
    manifest.finish(results, inputs=ordered, records=_own_records(owners))


def _calibrated(job: Merge) -> bool:
    return (job.metrics is not None and job.metrics.calibration) or bool(job.pieces[0].identity.get("probs"))


def _owners(pieces: Sequence[Piece]) -> dict[str, Piece]:
    """The run that each case is taken from, in the order of the cases; the first one if shards overlap."""
    found = {case_id: piece for piece in reversed(pieces) for case_id in piece.cases}
    return {case_id: found[case_id] for case_id in sorted(found)}


def _mark(job: Merge) -> dict[str, Any]:
    """Mark an out-of-fold result, to tell it from that of one checkpoint; shards leave no trace."""
    if job.kind == "shards":
        return {}
    checkpoints = [piece.identity.get("files.checkpoint_sha256") for piece in job.pieces]
    return {"merged": {"kind": "folds", "n_runs": len(job.pieces), "checkpoints_sha256": checkpoints}}


def _own_records(owners: Mapping[str, Piece]) -> pa.Table:
    """The records of all cases, each from its run."""
    names = list(owners)
    pairs = [piece.cases[case_id] for case_id, piece in owners.items()]
    columns = {"case_id": names, "sha256": [one for one, _ in pairs], "record": [other for _, other in pairs]}
    return pa.table({name: pa.array(values, pa.string()) for name, values in columns.items()})


def _read_rows(pieces: Sequence[Piece]) -> CaseTable:
    """All rows by case id; rows that shards share must be equal."""
    rows = open_cases([piece.folder for piece in pieces], objects=True)
    ids = rows.case_ids
    repeated = [place for place in range(1, len(ids)) if ids[place] == ids[place - 1]]
    differing = dict.fromkeys(
        ids[place]
        for place in repeated
        if rows.read(place, place + 1).to_pylist() != rows.read(place - 1, place).to_pylist()
    )
    if differing:
        named = [
            f"{case_id} in {' and '.join(piece.name for piece in pieces if case_id in piece.cases)}"
            for case_id in differing
        ]
        raise DataError(expected("merge", "runs", "to agree on the cases that they share", some(named)))
    return rows.take(np.delete(np.arange(len(rows)), repeated)) if repeated else rows


def _files_summary(rows: CaseTable, owners: Mapping[str, Piece], job: Merge) -> dict[str, Any]:
    spacings, missing = Spacings(), list[str]()
    for case_id, record in parse_records(_own_records(owners)).items():
        spacings.add(case_id, record)
    for part in rows.parts():
        if MISSING in part.column_names:
            flags = zip(part["case_id"].to_pylist(), part[MISSING].to_pylist(), strict=True)
            missing += [case_id for case_id, flag in flags if flag]
    if job.metrics and job.metrics.measures and spacings.problems():
        raise DataError(spacings.problems())
    return spacings.summary(missing=missing, extra=job.pieces[0].identity["extra_predictions"])


def _take_files(folder: Path, owners: Mapping[str, Piece]) -> None:
    """Link or copy every file of predictions/, after checking that it is as it was written."""
    records = parse_records(_own_records(owners))
    files = [
        (piece.folder / "predictions" / _inside(name), folder / "predictions" / name, entry)
        for case_id, piece in owners.items()
        for name, entry in records[case_id].get("files", {}).items()
    ]
    for parent in {source.parent for source, _, _ in files}:
        if parent.resolve() != parent:  # folders of runs are resolved already
            raise link_error(parent)
    for parent in sorted({target.parent for _, target, _ in files}):
        make_folder(parent)
    done = track(map_in_threads(_take_file, files), "joining", len(files))
    damaged = [name for name in done if name]
    if damaged:
        raise DataError(expected("merge", "runs", "to have their predictions as they were written", some(damaged)))


def _inside(name: str) -> str:
    """Refuse a name that leads out of its folder: a manifest may come from anywhere."""
    if ".." in Path(name).parts or Path(name).is_absolute():
        raise DataError(expected("merge", "runs", "to name files below predictions/", repr(name)))
    return name


def _take_file(file: tuple[Path, Path, Mapping[str, Any]]) -> str:
    source, target, entry = file
    if not is_whole(source, entry):
        return str(source)
    link_or_copy(source, target)
    return ""
