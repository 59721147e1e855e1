"""Takes up the finished cases of an interrupted run, and writes their missing or damaged files again."""

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
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
    large_run,
    unmeasured,
)
from segmeter.evaluation.large.cases import WriteLabels, run_large
from segmeter.evaluation.manifest import Entry, Manifest
from segmeter.evaluation.resuming.restore import count_restorable, find_damaged
from segmeter.export.writer import Writer
from segmeter.files import clear_leftovers

_LOG = logging.getLogger(__name__)


def restore_cases(job: CaseRun, manifest: Manifest, *, none: bool = False) -> Iterator[Entry]:
    """Take the finished cases that are kept, then write their missing or damaged files again; `none` keeps none."""
    clear_leftovers(job.folder / PREDICTIONS)
    size = job.predictor.config.batch_size
    keep = 0 if none or not job.resume else count_restorable(manifest, batch_size=size, batches=job.batches)
    notes = []
    for entry in manifest.entries(keep=keep):
        notes.append(entry.note)
        yield entry
    repair_files(job, notes)


def repair_files(job: CaseRun, notes: Sequence[Mapping[str, Any]]) -> None:
    """Write missing or damaged files of finished cases again, in the batches in which the cases were predicted.

    Parameters
    ----------
    notes
        What was noted of the first cases, in their order.

    Raises
    ------
    RunError
        A file differs from what it was, as it may on another machine.
    """
    predictions = job.folder / PREDICTIONS
    damaged = find_damaged(notes, predictions)
    if not damaged:
        return
    names = [name for found in damaged.values() for name in found]
    _LOG.warning("resume: missing or damaged files of predictions are written again (%s).", some(names))
    streamed = job.dataset.streamed_cases()  # whose files are written as they are predicted
    with Writer(predictions, job.export, job.dataset.spec, locate=job.dataset.locate) as writer:
        for index, case in _predict_again(job, notes, damaged, write_labels=writer.write_labels):
            if index not in streamed:
                export_case(writer, case.prediction, case.cleaned, job.export)
    again = find_damaged([notes[index] for index in damaged], predictions)
    differing = [name for found in again.values() for name in found]
    if differing:
        rule, remedy = "predictions differ from those of the resumed run", "Start a new run with resume=null."
        raise RunError(f"resume: {rule} ({some(differing)}). {remedy}")


def _predict_again(
    job: CaseRun, notes: Sequence[Mapping[str, Any]], wanted: Collection[int], *, write_labels: WriteLabels
) -> Iterator[tuple[int, Finished]]:
    """Predict some of the finished cases once more, in the batches in which they were predicted."""
    kinds = [note["image"] for note in notes] if job.batches is None else job.batches[: len(notes)]
    streamed, large = job.dataset.streamed_cases(), large_run(job)
    for batch in split_batches(kinds, job.predictor.config.batch_size):
        if not set(batch) & set(wanted):
            continue
        if batch.start in streamed:
            case = run_large(large, batch.start, write_labels=write_labels)
            yield batch.start, Finished(prediction=case.prediction, cleaned=case.cleaned, row=case.row)
            continue
        found = job.predictor.predict(Part(job.dataset, batch), probs=job.export.needs_probs)
        for index, prediction in zip(batch, found, strict=True):
            if index in wanted:
                yield index, finish_case(job, unmeasured, prediction)
