"""A resumed run goes on here: its cases that stay, with their missing or damaged files and pictures made again."""

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from segmeter.checks import some
from segmeter.distributed.batches import Part, split_batches
from segmeter.errors import RunError
from segmeter.evaluation.case_run import (
    PREDICTIONS,
    CaseRun,
    Finished,
    Measuring,
    export_case,
    finish_case,
    large_run,
    unmeasured,
)
from segmeter.evaluation.large.cases import LargeRun, WriteLabels, run_large
from segmeter.evaluation.manifest import Entry, Manifest, read_notes
from segmeter.evaluation.resuming.restore import count_restorable, find_damaged
from segmeter.export.writer import Writer
from segmeter.files import clear_leftovers, is_whole
from segmeter.metrics.cases.table import CaseRow

_LOG = logging.getLogger(__name__)


def restore_cases(job: CaseRun, manifest: Manifest, *, none: bool = False) -> Iterator[Entry]:
    """Take the finished cases that are kept, then write their missing or damaged files again; `none` keeps none."""
    clear_leftovers(job.folder / PREDICTIONS)
    size = job.predictor.config.batch_size
    keep = 0 if none or not job.resume else count_restorable(manifest, batch_size=size, batches=job.batches)
    notes = []
    for entry in manifest.entries(keep=keep):
        notes.append(entry.note)
        job.pictures.remember(entry.case_id, entry.row)
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
        for index, case in _predict_again(job, notes, damaged, large=large_run(job), write_labels=writer.write_labels):
            if index not in streamed:
                export_case(writer, case.prediction, case.cleaned, job.export)
    again = find_damaged([notes[index] for index in damaged], predictions)
    _refuse_others([name for found in again.values() for name in found], "predictions")


def repair_pictures(
    job: CaseRun,
    manifest: Manifest,
    *,
    large: LargeRun,
    measure: Measuring = unmeasured,
    read_rows: Callable[[], Iterable[CaseRow]] = tuple,
) -> list[str]:
    """Draw missing or damaged pictures of finished cases again, each from its case as it is predicted again.

    Parameters
    ----------
    large, measure
        As `run_cases` takes them; counts are enough.
    read_rows
        Reads the rows of a finished run, where its cases were measured.

    Returns
    -------
    The names of the pictures that stay.

    Raises
    ------
    RunError
        A picture differs from what it was.
    """
    known = manifest.pictures if manifest.done else job.pictures.kept()
    kept = {name: manifest.pictures[name] for name in known if name in manifest.pictures}
    damaged = [name for name, entry in kept.items() if not is_whole(job.folder / name, entry)]
    if damaged:
        _LOG.warning("resume: missing or damaged pictures are drawn again (%s).", some(damaged))
        cases = {name: index for index, case_id in enumerate(manifest.cases) for name in job.pictures.names(case_id)}
        noted = read_notes(job.folder)
        notes = [noted[case_id]["note"] for case_id in manifest.cases]
        if manifest.done:  # what was chosen is chosen again
            rows = {row.case_id: row for row in read_rows()}
            for case_id in manifest.cases:
                job.pictures.remember(case_id, rows.get(case_id))
        wanted = {cases[name] for name in damaged}
        for _, case in _predict_again(job, notes, wanted, large=large, write_labels=None, measure=measure):
            job.pictures.draw(case.prediction, case.cleaned, case.row)
        _refuse_others([name for name in damaged if not is_whole(job.folder / name, kept[name])], "pictures")
    return list(kept)


def _predict_again(
    job: CaseRun,
    notes: Sequence[Mapping[str, Any]],
    wanted: Collection[int],
    *,
    large: LargeRun,
    write_labels: WriteLabels | None,
    measure: Measuring = unmeasured,
) -> Iterator[tuple[int, Finished]]:
    """Predict some of the finished cases once more, in the batches in which they were predicted."""
    kinds = [note["image"] for note in notes] if job.batches is None else job.batches[: len(notes)]
    streamed = job.dataset.streamed_cases()
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
                yield index, finish_case(job, measure, prediction)


def _refuse_others(names: Sequence[str], what: str) -> None:
    if names:
        remedy = "Start a new run with resume=null."
        raise RunError(f"resume: {what} differ from those of the resumed run ({some(names)}). {remedy}")
