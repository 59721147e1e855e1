"""Runs an evaluation: takes the results of cases in their order, shows progress, and appends one row per case.

`score`, `eval` and `predict` differ only in the source of their cases. Each source works on its cases in threads, as
many as fit into memory: it reads or predicts them, measures them with `segmeter.metrics.measures.row.make_row`, and
writes their files.
"""

import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from typing import Any, TypeVar

from segmeter.checks import expected
from segmeter.classes import ClassSpec
from segmeter.errors import DataError, InputError
from segmeter.evaluation.manifest import Entry, Manifest
from segmeter.files import write_json
from segmeter.metrics.cases.stored import write_cases
from segmeter.metrics.cases.table import CaseTable
from segmeter.metrics.config.metrics import MetricsConfig, mean_classes
from segmeter.metrics.summary.slice_labels import check_tables
from segmeter.metrics.summary.summarise import summarise
from segmeter.parallel import free_bytes, map_in_threads
from segmeter.progress import Report, track
from segmeter.threads import count_cores

SUMMARY = "metrics.json"
SMALL = 64 << 20  # bytes; for less, free memory is not looked up
Case = TypeVar("Case")
Result = TypeVar("Result")
Outcome = Entry | tuple[str, ...]
"""A finished case, or the problems of its files."""


def drive(
    results: Generator[Outcome, None, None],
    manifest: Manifest,
    *,
    what: str,
    total: int,
    parts: Callable[[Report], None] | None = None,
    each: Callable[[Entry], None] = lambda entry: None,
) -> None:
    """Record every finished case in the manifest, in order, and close it.

    Parameters
    ----------
    results
        The result of each case that the manifest lacks.
    what, total, parts
        As `segmeter.progress.track` shows them.
    each
        Called with each finished case once it is noted.

    Raises
    ------
    DataError
        All problems of all cases, one line each. Sound cases stay in the manifest, so that a later run can resume.
    """
    problems: list[str] = []
    with closing(manifest), closing(results):
        for result in track(results, what, total, parts=parts):
            if isinstance(result, Entry):
                manifest.add(result)
                each(result)
            else:
                problems.extend(result)
    if problems:
        raise DataError(problems)


def conclude(
    manifest: Manifest,
    rows: CaseTable,
    spec: ClassSpec,
    metrics: MetricsConfig,
    *,
    facts: Mapping[str, Any],
    sums: Any = None,
    **noted: Any,
) -> dict[str, Any]:
    """Summarise the rows of a run, write its results, and mark it as done.

    Parameters
    ----------
    facts
        Further entries of metrics.json.
    sums
        The `Calibration` over all cases, or None.
    noted
        Passed to `Manifest.finish`.

    Returns
    -------
    dict
        The content of metrics.json.

    Raises
    ------
    DataError
        A table of the metrics changed while it was used.
    """
    summary, folder, kept = {**summarise(rows, spec, metrics), **facts}, manifest.folder, list[str]()
    check_tables(metrics, manifest.identity)
    if sums is not None:
        from segmeter.metrics.calibration_file import NAME, summarise_calibration, write_sums  # few runs have them

        summary["calibration"] = summarise_calibration(sums.compute(), spec)
        write_sums(folder, sums)
        kept = [NAME]
    written = write_cases(folder, rows, spec, mean_classes(metrics, spec))
    write_json(folder / SUMMARY, summary)
    manifest.finish((SUMMARY, *written, *kept), **noted)
    return summary


def collect(work: Callable[[Case], Result], cases: Sequence[Case], *, what: str) -> Iterator[Result]:
    """Yield the result of every case in order, for commands that keep no rows.

    Raises
    ------
    DataError
        All problems of all cases, one line each, after the last case.
    """

    def attempt(case: Case) -> Result | InputError:
        try:
            return work(case)
        except InputError as error:
            return error

    problems = list[str]()
    with closing(map_in_threads(attempt, cases, threads=count_cores(), name=what)) as results:
        for result in track(results, what, len(cases)):
            if isinstance(result, InputError):
                problems += result.problems
            else:
                yield result
    if problems:
        raise DataError(problems)


def check_memory(needed: int, *, what: str, remedy: str) -> None:
    """Refuse work that takes more memory than is free.

    Parameters
    ----------
    needed
        Estimated bytes.
    what, remedy
        For the message: what needs them, and what to do about it.

    Raises
    ------
    InputError
        Less memory is free.
    """
    if needed >= SMALL and needed > (free := free_bytes()):
        raise InputError(expected(what, "memory", f"of about {_show(needed)}", f"{_show(free)} free", remedy))


class Room:
    """Memory that threads share. Work that fits only alone waits until the others are done.

    Parameters
    ----------
    limit
        Bytes; None takes the memory that is free when nothing is held.
    """

    def __init__(self, limit: int | None = None) -> None:
        self._fixed, self._limit = limit is not None, limit
        self._held = 0
        self._changed = threading.Condition()

    def enter(self, needed: int, *, what: str = "", remedy: str = "") -> None:
        """Wait until `needed` bytes fit, and hold them; without a limit, raise as `check_memory` if they never fit."""
        with self._changed:
            self._changed.wait_for(lambda: not self._held or self._held + needed <= (self._limit or 0))
            if not self._held and not self._fixed:
                check_memory(needed, what=what, remedy=remedy)
                self._limit = free_bytes()
            self._held += needed

    def leave(self, needed: int) -> None:
        """Give bytes back."""
        with self._changed:
            self._held -= needed
            self._changed.notify_all()

    def hold(self, needed: int, *, what: str, remedy: str) -> ExitStack:
        """Hold bytes until the returned context ends; less than `SMALL` needs no room."""
        held = ExitStack()
        if needed >= SMALL:
            self.enter(needed, what=what, remedy=remedy)
            held.callback(self.leave, needed)
        return held


def _show(count: int) -> str:
    return f"{max(count, 0) / 2**30:.1f} GiB"
