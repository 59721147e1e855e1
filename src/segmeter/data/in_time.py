"""Limits the time that reading a case may take, because a file server may never answer."""

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
from typing import TypeVar

from PIL import Image

from segmeter.checks import shorten
from segmeter.data.files.array import LazyArray
from segmeter.data.files.png import decode_samples
from segmeter.data.files.sniff import show
from segmeter.errors import LateError
from segmeter.remote import fetched

_WAITS = 10  # in turn, so that a process stopped by SIGSTOP loses at most a tenth of the time

Result = TypeVar("Result")


@dataclass(frozen=True, kw_only=True)
class TimeLimit:
    """Calls functions that read the files of a case; files behind URLs are fetched first and kept meanwhile.

    Parameters
    ----------
    seconds
        For each call, > 0; None for no limit.
    case_id, index
        The case, and its number from 0 if known.
    files
        Its files, for messages.
    """

    seconds: float | None
    case_id: str
    files: Iterable[Path] = field(repr=False)
    index: int | None = None

    def __call__(self, read: Callable[[], Result]) -> Result:
        """Return what `read` returns, or raise what it raises.

        Raises
        ------
        LateError
            It took longer. It continues in a thread that nobody waits for, because nothing can stop it, but the process
            can end.
        """
        with fetched(self.files):
            return read() if self.seconds is None else self._in_time(read, self.seconds)

    def _in_time(self, read: Callable[[], Result], seconds: float) -> Result:
        _compile()
        future: Future[Result] = Future()
        threading.Thread(target=_fulfil, args=(future, read), name="read", daemon=True).start()
        try:
            for _ in range(_WAITS):
                try:
                    return future.result(timeout=seconds / _WAITS)
                except TimeoutError:
                    if future.done():  # it ended just now, or the error is the reader's own
                        return future.result()
        finally:
            del future  # breaks a cycle of the error, its traceback, this frame and the future
        _leave_readers()
        names = shorten([show(path) for path in self.files])
        raise LateError(names, seconds=seconds, case_id=self.case_id, index=self.index)

    def lines(self, array: LazyArray) -> LazyArray:
        """Return the same lines with a time limit for each read."""
        if self.seconds is None:
            return array
        return LazyArray(array.shape, array.dtype, lambda start, stop: self(partial(array.read, start, stop)))


def _fulfil(future: Future[Result], read: Callable[[], Result]) -> None:
    try:
        future.set_result(read())
    except BaseException as error:
        future.set_exception(error)
    finally:
        del future, read  # as in `TimeLimit._in_time`


@cache
def _leave_readers() -> None:
    """Let a worker process end although a library, such as zarr, reads in a thread that Python would wait for."""
    if parent_process() is not None:
        Finalize(None, os._exit, args=(0,), exitpriority=-1)


@cache
def _compile() -> None:
    """Compile the PNG decoder first, which takes seconds once per installation and does not count as reading."""
    file = io.BytesIO()
    Image.new("L", (1, 1)).save(file, "PNG")
    decode_samples(file.getvalue(), max_pixels=1)
