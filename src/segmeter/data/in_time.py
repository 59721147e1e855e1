"""Takes the files of a case: fetches those behind a URL, and reads them within a time, as a file server may be gone."""

import io
import os
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import cache, partial
from multiprocessing import parent_process
from multiprocessing.util import Finalize
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from segmeter.checks import shorten
from segmeter.data.by_rows.rows import Rows
from segmeter.data.files.png import decode_samples
from segmeter.data.files.sniff import show
from segmeter.errors import LateError
from segmeter.remote import fetch_ahead as fetch_ahead
from segmeter.remote import fetched as fetched

_WAITS = 10  # in turn, so that a process that was stopped meanwhile (SIGSTOP) takes a tenth of the time for it at most

Result = TypeVar("Result")


@dataclass(frozen=True, kw_only=True)
class TimeLimit:
    """Takes the files of a case: those behind URLs are fetched and kept while they are read, which may take so long.

    Parameters
    ----------
    seconds
        Of each call, > 0; None waits for ever.
    case_id, index
        The case, and its number from 0 where that is known.
    files
        Its files, for the message.
    """

    seconds: float | None
    case_id: str
    files: Iterable[Path] = field(repr=False)
    index: int | None = None

    def __call__(self, read: Callable[[], Result]) -> Result:
        """Return what `read` returns, or raise what it raises, once the case's files are here.

        Raises
        ------
        LateError
            It took longer. It goes on in a thread that nobody waits for, as nothing can end it, and the process can.
        """
        with fetched(self.files):
            return read() if self.seconds is None else self._in_time(read, self.seconds)

    def _in_time(self, read: Callable[[], Result], seconds: float) -> Result:
        _compile()
        future: Future[Result] = Future()
        _LOCAL.reader = _LOCAL.reader or _Reader()
        _LOCAL.reader.tasks.put(partial(_fulfil, future, read))
        try:
            for _ in range(_WAITS):
                try:
                    return future.result(timeout=seconds / _WAITS)
                except TimeoutError:
                    if future.done():  # just now, or the error is the reader's own
                        return future.result()
        finally:
            if not future.done():  # too late, or Ctrl-C: the next read must not wait for this one
                _LOCAL.reader = None
            del future  # the traceback of an error has this frame, and the future has the error
        _leave_readers()
        names = shorten([show(path) for path in self.files])
        raise LateError(names, seconds=seconds, case_id=self.case_id, index=self.index)

    def rows(self, rows: Rows) -> Rows:
        """The same rows, each reading of which is limited."""
        return rows if self.seconds is None else _LimitedRows(rows, self)


@dataclass(frozen=True, eq=False)
class _LimitedRows:
    _rows: Rows
    _limit: TimeLimit

    @property
    def shape(self) -> tuple[int, ...]:
        return self._rows.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._rows.dtype

    def read(self, start: int, stop: int) -> NDArray[Any]:
        return self._limit(lambda: self._rows.read(start, stop))


class _Reader:
    """A thread that reads for one other; it is kept, as decoders reuse the memory that their thread has."""

    def __init__(self) -> None:
        self.tasks: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        threading.Thread(target=_serve, args=(self.tasks,), name="read", daemon=True).start()

    def __del__(self) -> None:
        self.tasks.put(None)


class _Local(threading.local):
    reader: _Reader | None = None


_LOCAL = _Local()


def _serve(tasks: SimpleQueue[Callable[[], None] | None]) -> None:
    while True:
        task = tasks.get()
        if task is None:
            return
        task()
        del task  # and with it what was read


def _fulfil(future: Future[Result], read: Callable[[], Result]) -> None:
    try:
        future.set_result(read())
    except BaseException as error:
        future.set_exception(error)
    finally:
        del future, read  # as in `TimeLimit.__call__`


@cache
def _leave_readers() -> None:
    """Let a worker process end though a library, such as zarr, reads in a thread of its own, which Python waits for."""
    if parent_process() is not None:
        Finalize(None, os._exit, args=(0,), exitpriority=-1)


@cache
def _compile() -> None:
    """Compile what PNG files are decoded with, which takes seconds once per installation and is no reading."""
    file = io.BytesIO()
    Image.new("L", (1, 1)).save(file, "PNG")
    decode_samples(file.getvalue(), max_pixels=1)
