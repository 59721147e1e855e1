"""Joins parts of a run. Rows, metrics and predictions equal those of one run on all cases, to the byte.

The parts are the shards of a run, or the folds of a cross-validation.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from segmeter.checks import expected, some
from segmeter.errors import DataError, InputError
from segmeter.evaluation.drive import conclude
from segmeter.evaluation.manifest import PREDICTIONS, RECORD_COLUMNS, Manifest, parse_case_facts
from segmeter.evaluation.pieces import Kind, Piece, check_pieces
from segmeter.evaluation.spacings import Spacings
from segmeter.files import is_whole, link_error, link_or_copy, make_folder, safe_id
from segmeter.metrics.calibration_file import empty_sums, read_sums
from segmeter.metrics.cases.stored import open_cases
from segmeter.metrics.cases.table import EXTRA_PREFIX, CaseTable
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.summary.slice_labels import hash_tables
from segmeter.parallel import map_in_threads
from segmeter.progress import track
from segmeter.records import flatten
from segmeter.schema import as_plain

MISSING = EXTRA_PREFIX + "missing"  # The column is 1 where a case has no prediction

Records = Mapping[str, Mapping[str, Any]]

_LOG = logging.getLogger(__name__)


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
    first = job.pieces[0]
    metric_keys = [key for key in first.identity if key.startswith(("metrics.", "tables."))]
    changed = [key for key in metric_keys if now.get(key) != first.identity[key]]
    if changed:
        rule = "to have the config.yaml and tables that it was measured with"
        raise InputError(expected("merge", "runs", rule, f"{first.name!r}, where other is {', '.join(changed)}"))
    case_ids = set[str]().union(*(piece.cases for piece in job.pieces))
    shared = sum(len(piece.cases) for piece in job.pieces) - len(case_ids)
    if shared and _calibrated(job):
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
    if len(threads := {str(piece.identity.get("threads")) for piece in job.pieces}) > 1:  # of different machines
        text = "merge: the runs computed with %s threads: last bits may differ from those of one run."
        _LOG.warning(text, ", ".join(sorted(threads)))
    # Where shards overlap, the first one owns the case
    owners = {case_id: piece for piece in reversed(job.pieces) for case_id in piece.cases}
    owners = {case_id: owners[case_id] for case_id in sorted(owners)}
    first = job.pieces[0]
    mark = dict[str, Any]()
    identity = dict(first.identity)
    if job.kind == "folds":  # marks out-of-fold results, which several checkpoints made; shards leave no trace
        checkpoints = [piece.identity.get("files.checkpoint_sha256") for piece in job.pieces]
        mark = {"merged": {"kind": "folds", "n_runs": len(job.pieces), "checkpoints_sha256": checkpoints}}
        identity = {
            key: value
            for key, value in identity.items()
            if all(piece.identity.get(key) == value for piece in job.pieces)
        }
    manifest = Manifest.begin(job.folder, identity | mark, list(owners))
    lines = [(case_id, *piece.cases[case_id]) for case_id, piece in owners.items()]
    table = pa.table(dict(zip(RECORD_COLUMNS, zip(*lines, strict=True), strict=True)))
    records = parse_case_facts(table)
    inputs = {stem: sha256 for piece in job.pieces for stem, sha256 in piece.inputs.items()}
    inputs = {stem: inputs[stem] for stem in sorted(inputs, key=safe_id)}
    _take_files(job.folder, owners, records)
    if job.metrics is None or first.spec is None:
        manifest.finish(inputs=inputs, records=table)
        return {}
    rows = _read_rows(job.pieces)
    facts = _files_facts(rows, records, job) if first.command == "score" else {}
    calibration = None
    if _calibrated(job):
        calibration = empty_sums(first.spec)  # the sums are exact, so adding them over all runs is exact
        for piece in job.pieces:
            calibration.add(read_sums(piece.folder, first.spec))
    return conclude(
        manifest,
        rows,
        first.spec,
        job.metrics,
        facts=facts | mark,
        calibration=calibration,
        inputs=inputs,
        records=table,
    )


def _calibrated(job: Merge) -> bool:
    return (job.metrics is not None and job.metrics.calibration) or bool(job.pieces[0].identity.get("probs"))


def _read_rows(pieces: Sequence[Piece]) -> CaseTable:
    """Read all rows in the order of their case ids. Rows that shards share must be equal."""
    rows = open_cases([piece.folder for piece in pieces], objects=True)
    ids = rows.case_ids
    repeated = [index for index in range(1, len(ids)) if ids[index] == ids[index - 1]]
    pairs = ((ids[index], rows.read(index - 1, index + 1).to_pylist()) for index in repeated)
    if differing := dict.fromkeys(case_id for case_id, (one, other) in pairs if one != other):
        named = [
            f"{case_id} in {' and '.join(piece.name for piece in pieces if case_id in piece.cases)}"
            for case_id in differing
        ]
        raise DataError(expected("merge", "runs", "to agree on the cases that they share", some(named)))
    return rows.take(np.delete(np.arange(len(rows)), repeated)) if repeated else rows


def _files_facts(rows: CaseTable, records: Records, job: Merge) -> dict[str, Any]:
    """Return the entries of metrics.json that a single run of score has about its files."""
    spacings = Spacings()
    missing = list[str]()
    for case_id, record in records.items():
        spacings.add(case_id, record)
    for part in rows.parts():
        if MISSING in part.column_names:
            missing += part.filter(pc.equal(part[MISSING], 1.0))["case_id"].to_pylist()
    if job.metrics and job.metrics.measures and spacings.problems():
        raise DataError(spacings.problems())
    return spacings.summary(missing=missing, extra=job.pieces[0].identity["extra_predictions"])


def _take_files(folder: Path, owners: Mapping[str, Piece], records: Records) -> None:
    """Link or copy every file of predictions/, after checking that it didn't change since it was written."""
    named = [(case_id, name, entry) for case_id in owners for name, entry in records[case_id].get("files", {}).items()]
    outside = [repr(name) for _, name, _ in named if ".." in Path(name).parts or Path(name).is_absolute()]
    if outside:  # a manifest may come from anywhere
        raise DataError(expected("merge", "runs", "to name files below predictions/", outside[0]))
    files = [
        (owners[case_id].folder / PREDICTIONS / name, folder / PREDICTIONS / name, entry)
        for case_id, name, entry in named
    ]
    for parent in {source.parent for source, _, _ in files}:
        if parent.resolve() != parent:  # folders of runs are resolved already
            raise link_error(parent)
    for parent in sorted({target.parent for _, target, _ in files}):
        make_folder(parent)

    def take(file: tuple[Path, Path, Mapping[str, Any]]) -> str:
        source, target, entry = file
        if not is_whole(source, entry):
            return str(source)
        link_or_copy(source, target)
        return ""

    damaged = list(filter(None, track(map_in_threads(take, files), "joining", len(files))))
    if damaged:
        raise DataError(expected("merge", "runs", "to have their predictions as they were written", some(damaged)))
