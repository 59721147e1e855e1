"""Resumes an interrupted or damaged run of eval or predict: keeps finished cases and writes their files again."""

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from segmeter.checks import some
from segmeter.distributed.batches import Part, split_batches
from segmeter.errors import RunError
from segmeter.evaluation.case_run import (
    PREDICTIONS,
    CaseRun,
    Finished,
    export_case,
    finish_case,
    finish_lines,
    unmeasured,
)
from segmeter.evaluation.manifest import Manifest, parse_records, read_records
from segmeter.export.writer import Writer
from segmeter.files import clear_leftovers, is_whole

_LOG = logging.getLogger(__name__)


def restore_cases(job: CaseRun, manifest: Manifest, *, none: bool = False) -> int:
    """Keep the finished cases, write their missing or damaged files again, and return how many there are.

    Cases are kept up to the end of a batch. What follows is predicted again in the batches of an uninterrupted run: in
    others a network's outputs may differ in their last bits. With `none`, none is kept.
    """
    clear_leftovers(job.folder / PREDICTIONS)
    records = parse_records(manifest.keep()) if job.resume else {}
    keep = 0 if none else _count_restorable(job, records, manifest.cases)
    manifest.keep(keep)
    repair_files(job, list(records.values())[:keep])
    return keep


def repair_finished(job: CaseRun, manifest: Manifest) -> None:
    """Write missing or damaged files of a finished run again."""
    records = parse_records(read_records(job.folder))
    repair_files(job, [records[case_id] for case_id in manifest.cases])


def _count_restorable(job: CaseRun, records: Mapping[str, Mapping[str, Any]], cases: Sequence[str]) -> int:
    """Count how many of the first cases are done, up to the end of a batch."""
    kinds: list[Any] = []
    for (case_id, record), wanted in zip(records.items(), cases, strict=False):
        if case_id != wanted:
            break
        kinds.append(record["image"])
    known = kinds if job.batches is None else job.batches[: len(kinds)]
    return whole_batches(known, job.predictor.config.batch_size, len(cases))


def whole_batches(kinds: Sequence[Any], size: int, total: int) -> int:
    """Count how many of the first images fill batches of one kind each, out of `total`.

    Examples
    --------
    >>> whole_batches("aaaab", 2, 9), whole_batches("aaaaab", 4, 6)
    (4, 6)
    """
    batches = list(split_batches(kinds, size))
    whole = not batches or len(kinds) == total or len(batches[-1]) == size
    return len(kinds) if whole else batches[-1].start


def repair_files(job: CaseRun, records: Sequence[Mapping[str, Any]]) -> None:
    """Write missing or damaged files of finished cases again, in the batches in which the cases were predicted.

    Parameters
    ----------
    records
        What is recorded of the first cases, in their order.

    Raises
    ------
    RunError
        A file differs from what it was, as it may on another machine.
    """
    predictions = job.folder / PREDICTIONS
    damaged = find_damaged(records, predictions)
    if not damaged:
        return
    names = [name for found in damaged.values() for name in found]
    _LOG.warning("resume: missing or damaged files of predictions are written again (%s).", some(names))
    with Writer(predictions, job.export, job.dataset.spec, locate=job.dataset.locate) as writer:
        for case in _predict_again(job, records, damaged):
            export_case(writer, case, job.export)
    again = find_damaged([records[index] for index in damaged], predictions)
    differing = [name for found in again.values() for name in found]
    if differing:
        rule, remedy = "predictions differ from those of the resumed run", "Start a new run with resume=null."
        raise RunError(f"resume: {rule} ({some(differing)}). {remedy}")


def _predict_again(job: CaseRun, records: Sequence[Mapping[str, Any]], wanted: Collection[int]) -> Iterator[Finished]:
    """Predict some of the finished cases once more, in the batches in which they were predicted."""
    kinds = [record["image"] for record in records] if job.batches is None else job.batches[: len(records)]
    streamed = job.dataset.streamed_cases()
    for batch in split_batches(kinds, job.predictor.config.batch_size):
        if not set(batch) & set(wanted):
            continue
        if batch.start in streamed:
            yield finish_lines(job, batch.start)
            continue
        found = job.predictor.predict(Part(job.dataset, batch), probs=job.export.needs_probs)
        for index, prediction in zip(batch, found, strict=True):
            if index in wanted:
                yield finish_case(job, unmeasured, prediction)


def find_damaged(records: Sequence[Mapping[str, Any]], predictions: Path) -> dict[int, list[str]]:
    """Find the cases with a file that is missing or not as it was written: index of the case -> names of the files."""
    found = {
        index: [name for name, entry in record["files"].items() if not is_whole(predictions / name, entry)]
        for index, record in enumerate(records)
    }
    return {index: names for index, names in found.items() if names}
