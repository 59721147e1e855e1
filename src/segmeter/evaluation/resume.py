"""Resumes an interrupted or damaged run of eval or predict: keeps finished cases and writes their files again."""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from segmeter.checks import some
from segmeter.distributed.batches import split_batches
from segmeter.errors import RunError
from segmeter.evaluation.manifest import Manifest, parse_records, read_records
from segmeter.evaluation.predicted import PREDICTIONS, CaseRun, finish, finish_in_bands
from segmeter.files import clear_leftovers, is_whole

_LOG = logging.getLogger(__name__)

Records = Sequence[Mapping[str, Any]]


def restore_cases(job: CaseRun, manifest: Manifest, *, none: bool = False) -> int:
    """Keep the finished cases, write their missing or damaged files again, and return how many cases there are.

    Cases are kept up to the end of a batch. The others are predicted again in the batches of an uninterrupted run,
    because in different batches a network's outputs may differ in their last bits. With `none`, no case is kept.
    """
    clear_leftovers(job.folder / PREDICTIONS)
    records = parse_records(manifest.keep()) if job.resume else {}
    count = 0 if none else _count_restorable(job, records, manifest.cases)
    manifest.keep(count)
    repair_files(job, list(records.values())[:count])
    return count


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
    """Count how many of the first images, out of `total`, fill batches of one kind each.

    Examples
    --------
    >>> whole_batches("aaaab", 2, 9), whole_batches("aaaaab", 4, 6)
    (4, 6)
    """
    batches = list(split_batches(kinds, size))
    whole = not batches or len(kinds) == total or len(batches[-1]) == size
    return len(kinds) if whole else batches[-1].start


def repair_files(job: CaseRun, records: Records) -> None:
    """Write missing or damaged files of finished cases again, in the batches in which the cases were predicted.

    Parameters
    ----------
    records
        The records of the first cases, in their order.

    Raises
    ------
    RunError
        A file differs from the one before, as it may on another machine.
    """
    damaged = find_damaged(records, job.folder / PREDICTIONS)
    if not damaged:
        return
    names = [name for found in damaged.values() for name in found]
    _LOG.warning("resume: missing or damaged files of predictions are written again (%s).", some(names))
    writer, streamed = job.writer(), job.dataset.streamed_cases()
    kinds = [record["image"] for record in records] if job.batches is None else job.batches[: len(records)]
    for batch in split_batches(kinds, job.predictor.config.batch_size):
        wanted = [index for index in batch if index in damaged]
        if wanted and batch.start in streamed:
            finish_in_bands(job, writer, batch.start)
        elif wanted:
            found = job.predictions(batch, probs=job.export.needs_probs)
            for index, prediction in zip(batch, found, strict=True):
                if index in wanted:
                    finish(job, writer, prediction, None)
    again = find_damaged([records[index] for index in damaged], job.folder / PREDICTIONS)
    differing = [name for found in again.values() for name in found]
    if differing:
        rule, remedy = "predictions differ from those of the resumed run", "Start a new run with resume=null."
        raise RunError(f"resume: {rule} ({some(differing)}). {remedy}")


def find_damaged(records: Records, predictions: Path) -> dict[int, list[str]]:
    """Find the names of files that are missing or changed since they were written, by the index of their case."""
    found = {
        index: [name for name, entry in record["files"].items() if not is_whole(predictions / name, entry)]
        for index, record in enumerate(records)
    }
    return {index: names for index, names in found.items() if names}
