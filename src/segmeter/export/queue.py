"""Threads that write files in the background: bounded in bytes, stopping at the first fault, which is raised."""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from segmeter.errors import RunError, SegmeterError
from segmeter.files import describe_file, make_folder
from segmeter.progress import Stages

Write = Callable[[Path, NDArray[Any]], None]


@dataclass(frozen=True, kw_only=True)
class _Task:
    case_id: str
    path: Path
    array: NDArray[Any]
    write: Write


class WriteQueue:
    """Hands arrays to writer threads; encoders and the disk release the interpreter, so they run beside it.

    Parameters
    ----------
    workers
        Threads, >= 1.
    limit
        Bytes of arrays that wait or are being written; an array above the limit goes alone.
    hashed
        Whether files are hashed when they are written, for `take_written`.
    stages
        Where the time that writing takes is added up; None does not count it.
    """

    def __init__(self, *, workers: int, limit: int, hashed: bool = False, stages: Stages | None = None) -> None:
        self._stages = stages or Stages()
        self._limit = limit
        self._hashed = hashed
        self._waiting: deque[_Task] = deque()
        self._bytes = 0
        self._finished = 0
        self._written: dict[Path, dict[str, Any]] = {}
        self._closing = False
        self._fault: SegmeterError | None = None
        self._changed = threading.Condition()
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(workers)]
        for thread in self._threads:
            thread.start()

    def take_written(self, paths: Sequence[Path]) -> list[dict[str, Any]] | None:
        """Size and hash of files, which are then forgotten; None until all of them are complete."""
        with self._changed:
            if not all(path in self._written for path in paths):
                return None
            return [self._written.pop(path) for path in paths]

    def put(self, case_id: str, path: Path, array: NDArray[Any], write: Write) -> None:
        """Queue one file, waiting for room; the array now belongs to the queue.

        Raises
        ------
        SegmeterError
            An earlier file could not be written, or the queue is closed.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._fault or self._closing or self._fits(array.nbytes))
            if self._fault is not None:
                raise self._fault
            if self._closing:
                raise RunError(f"Writer: expected to be open, but it was closed before case {case_id!r}.")
            self._bytes += array.nbytes
            self._waiting.append(_Task(case_id=case_id, path=path, array=array, write=write))
            self._changed.notify_all()

    def close(self) -> int:
        """Wait for every queued file; returns how many were written, or raises the first fault (SegmeterError)."""
        try:
            self._join()
        except BaseException:  # Ctrl-C while waiting: what is being written is finished, the rest dropped
            self.abandon()
            raise
        if self._fault is not None:
            raise self._fault
        return self._finished

    def abandon(self) -> None:
        """Finish the files that are being written and drop those that wait."""
        with self._changed:
            self._drop()
        self._join()

    def _join(self) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def _fits(self, size: int) -> bool:
        return self._bytes == 0 or self._bytes + size <= self._limit

    def _drop(self) -> None:
        self._bytes -= sum(task.array.nbytes for task in self._waiting)
        self._waiting.clear()

    def _work(self) -> None:
        while (task := self._next()) is not None:
            with self._stages.timed("write"):
                done = _write(task, hashed=self._hashed)
            with self._changed:
                self._bytes -= task.array.nbytes
                if isinstance(done, Exception):
                    self._stop(task, done)
                else:
                    self._finished += 1
                    if done is not None:
                        self._written[task.path] = done
                self._changed.notify_all()

    def _next(self) -> _Task | None:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closing)
            return self._waiting.popleft() if self._waiting else None

    def _stop(self, task: _Task, fault: Exception) -> None:
        self._drop()
        if self._fault is not None:
            return
        if isinstance(fault, SegmeterError):  # its line stands alone, such as of a link in the place of a folder
            self._fault = fault
            return
        self._fault = RunError(
            f"Writer: case {task.case_id!r} could not be written to {str(task.path)!r} ({_reason(fault)}). "
            f"{self._finished} files are complete and nothing half-written stays. Remove the cause."
        )
        self._fault.__cause__ = fault


def _write(task: _Task, *, hashed: bool) -> dict[str, Any] | Exception | None:
    """Write one file, and describe it where it is hashed; any fault is handed back, as it must reach the caller."""
    try:
        make_folder(task.path.parent)
        task.write(task.path, task.array)
        return describe_file(task.path) if hashed else None
    except Exception as fault:
        return fault


def _reason(fault: Exception) -> str:
    return (isinstance(fault, OSError) and fault.strerror) or f"{type(fault).__name__}: {fault}"
