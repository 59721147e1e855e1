"""Records the results of an evaluation: takes those of the cases in their order, and summarises them at the end.

`score`, `eval` and `predict` differ only in the source of their cases, which is an iterator that they pass in. Each
source works on its cases in threads, as many as fit into memory: it reads or predicts them, measures them with
`segmeter.metrics.measures.row.make_row`, and writes their files.
"""

import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

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

if TYPE_CHECKING:  # few runs measure calibration
    from segmeter.metrics.probabilities import Calibration

SUMMARY = "metrics.json"
SMALL = 64 << 20  # Work that needs fewer bytes starts without a look at free memory
Case = TypeVar("Case")
Result = TypeVar("Result")
CaseResult = Entry | tuple[str, ...]
"""A finished case, or the problems of its files."""


def record_cases(
    results: Generator[CaseResult, None, None],
    manifest: Manifest,
    *,
    what: str,
    total: int,
    watch_parts: Callable[[Report], None] | None = None,
) -> None:
    """Record every finished case in the manifest, in order, and close it.

    Parameters
    ----------
    results
        The result of each case that the manifest lacks. Taking the next one makes its source go on.
    what, total, watch_parts
        As `segmeter.progress.track` shows them.

    Raises
    ------
    DataError
        All problems of all cases, one line each. If `results` itself raises it, the lines of the cases so far come
        first. Sound cases stay in the manifest, so that a later run can resume.
    """
    problems: list[str] = []
    with closing(manifest), closing(results):
        try:
            for result in track(results, what, total, watch_parts=watch_parts):
                if isinstance(result, Entry):
                    manifest.add(result)
                else:
                    problems.extend(result)
        except DataError as error:
            problems.extend(error.problems)
    if problems:
        raise DataError(problems)


def conclude(
    manifest: Manifest,
    rows: CaseTable,
    spec: ClassSpec,
    metrics: MetricsConfig,
    *,
    facts: Mapping[str, Any],
    calibration: "Calibration | None" = None,
    inputs: Mapping[str, str] | None = None,
    records: pa.Table | None = None,
) -> dict[str, Any]:
    """Summarise the rows of a run, write its results, and mark it as done.

    Parameters
    ----------
    facts
        Further entries of metrics.json.
    calibration
        The sums over all cases, or None.
    inputs, records
        As for `Manifest.finish`.

    Returns
    -------
    dict
        The content of metrics.json.

    Raises
    ------
    DataError
        A table of the metrics changed while it was used.
    """
    summary = {**summarise(rows, spec, metrics), **facts}
    check_tables(metrics, manifest.flat_identity)
    folder = manifest.folder
    calibration_files = list[str]()
    if calibration is not None:
        from segmeter.metrics.calibration_file import NAME, summarise_calibration, write_sums  # few runs have them

        summary["calibration"] = summarise_calibration(calibration.compute(), spec)
        write_sums(folder, calibration)
        calibration_files = [NAME]
    case_files = write_cases(folder, rows, spec, mean_classes(metrics, spec))
    write_json(folder / SUMMARY, summary)
    manifest.finish((SUMMARY, *case_files, *calibration_files), inputs=inputs, records=records)
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
            return DataError(error.problems)  # a new one, because the other's traceback holds the arrays of the case

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
        The message says what needs the memory, and what to do about it.

    Raises
    ------
    InputError
        Less memory is free.
    """
    if needed >= SMALL and needed > (free := free_bytes()):
        raise InputError(expected(what, "memory", f"of about {_show(needed)}", f"{_show(free)} free", remedy))


class MemoryBudget:
    """Memory that threads share. A thread waits until its bytes fit beside those of the others, or until it is alone.

    Work of fewer than `SMALL` bytes need not wait, see `hold`.

    Parameters
    ----------
    limit
        Bytes; None takes the memory that is free while no thread holds any.
    """

    def __init__(self, limit: int | None = None) -> None:
        self._limit = limit
        self._is_fixed = limit is not None
        self._held = 0
        self._changed = threading.Condition()

    def enter(self, needed: int, *, what: str = "", remedy: str = "") -> None:
        """Wait until `needed` bytes fit, and hold them. Without a fixed limit, `check_memory` may refuse."""
        with self._changed:
            self._changed.wait_for(lambda: not self._held or self._held + needed <= (self._limit or 0))
            if not self._held and not self._is_fixed:
                check_memory(needed, what=what, remedy=remedy)
                self._limit = free_bytes()
            self._held += needed

    def leave(self, needed: int) -> None:
        """Give bytes back."""
        with self._changed:
            self._held -= needed
            self._changed.notify_all()

    @contextmanager
    def hold(self, needed: int, *, what: str, remedy: str) -> Iterator[None]:
        """Hold bytes inside the block. Fewer than `SMALL` are not counted.

        Raises
        ------
        InputError
            As `check_memory`; or memory ran out inside the block.
        """
        counted = needed if needed >= SMALL else 0
        if counted:
            self.enter(counted, what=what, remedy=remedy)
        try:
            yield
        except MemoryError as error:
            raise InputError(f"{what}: out of memory. {remedy}") from error
        finally:
            self.leave(counted)


def _show(size: int) -> str:
    return f"{max(size, 0) / 2**30:.1f} GiB"
