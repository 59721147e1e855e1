"""Decodes files in separate processes, for libraries whose native code a damaged file can crash or hang.

Each process is kept for the next file and has limits of memory and processor time. It ends with its parent; one that is
decoding a file when its parent is killed ends once it has written its answer, or its processor time is over.
"""

import atexit
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import IO, Any, TypeVar, cast

import psutil

from segmeter.checks import expected
from segmeter.data.files.refusals import damaged, file_error
from segmeter.errors import DataError
from segmeter.parallel import in_forked_child
from segmeter.threads import count_cores

Result = TypeVar("Result")

SECONDS = 8.0  # of processor time for any file, and more for large ones:
_BYTES_PER_SECOND = 1 << 20  # which is enough even for numbers written as text
_PIXELS_PER_SECOND = 1 << 23
SPARE_BYTES = 1 << 30  # of memory for any file, besides its pixels
_BYTES_PER_PIXEL = 24  # 8 of the widest dtype, in three copies
_START = "import sys; sys.path[:] = sys.argv[1:]; from segmeter.data.files.reader_process import serve; serve()"
_HAS_LIMITS = hasattr(signal, "SIGPROF")  # all systems but Windows
_LAST_SECONDS = 5.0  # for a crashed process to end

_idle: list["_Reader"] = []
_room = threading.BoundedSemaphore(count_cores())


def need(module: str, extra: str, what: str) -> ModuleType:
    """Import a library; DataError with the install command if it is missing."""
    try:
        return import_module(module)
    except ImportError as error:
        remedy = f"Run: pip install 'segmeter[{extra}]'"
        raise DataError(expected("read", module, f"to be installed for {what}", "none", remedy)) from error


class _Crashed(Exception):
    """The reader process ended before it answered."""


def read_apart(
    path: Path, work: Callable[..., Result], *arguments: Any, size: int, pixels: int = 0, max_pixels: int
) -> Result:
    """Call a function in a reader process.

    Parameters
    ----------
    path
        The file that it decodes, for messages.
    work, arguments
        A function of a module and its arguments; they and the result must be picklable.
    size
        Bytes of the file. Size and `pixels`, as far as known, extend the limit of processor time: `SECONDS`, plus one
        second for each MiB and for each 8 million pixels.
    max_pixels
        Limits the memory: 24 bytes for each, and `SPARE_BYTES`.

    Raises
    ------
    DataError
        The process crashed or exceeded its time or memory; or whatever else `work` raises.
    """
    seconds = SECONDS + size / _BYTES_PER_SECOND + pixels / _PIXELS_PER_SECOND
    most_bytes = SPARE_BYTES + _BYTES_PER_PIXEL * max_pixels
    request = pickle.dumps((Path.cwd(), work, arguments, seconds, most_bytes), protocol=5)
    with _room:
        with suppress(IndexError, _Crashed):  # an earlier file may have damaged it: only a fresh process's crash counts
            return cast(Result, _idle.pop().ask(path, request, seconds))
        try:
            return cast(Result, _Reader().ask(path, request, seconds))
        except _Crashed as error:
            raise damaged(path, error) from error


class _Reader:
    """A process that decodes one file after another."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", _START, *sys.path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            process_group=0,  # so that Ctrl-C reaches only its parent
        )

    def ask(self, path: Path, request: bytes, seconds: float) -> Any:
        """Send a request, and return or raise the answer; afterwards the process is idle or ended."""
        to, answers = cast(IO[bytes], self.process.stdin), cast(IO[bytes], self.process.stdout)
        try:
            to.write(request)
            to.flush()
            good, answer = pickle.load(answers)
        except (OSError, EOFError, pickle.UnpicklingError) as error:
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout=_LAST_SECONDS)
            self.end()
            if self.process.returncode == -getattr(signal, "SIGPROF", 0):
                rule, found = f"to be decoded within {seconds:.3g} s of processor time", "none that ends"
                raise file_error(path, "file", rule, found, "Copy it again.") from error
            code = self.process.returncode
            cause = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            raise _Crashed(f"its decoder ended by {cause}") from error
        except BaseException:  # such as Ctrl-C, after which nobody reads the answer
            self.end()
            raise
        _idle.append(self)
        if good:
            return answer
        raise answer

    def end(self) -> None:
        """End the process and close its pipes."""
        self.process.kill()
        self.process.wait()
        self.forget()

    def forget(self) -> None:
        """Close the pipes to the process."""
        for pipe in (self.process.stdin, self.process.stdout):
            with suppress(OSError):  # unwritten bytes have no reader
                cast(IO[bytes], pipe).close()


def serve() -> None:
    """Answer requests on standard input until it closes, as when the parent ends; runs in the reader process."""
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # libraries print
    if _HAS_LIMITS:
        import resource

        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGPROF})
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(EOFError, BrokenPipeError):
        while True:
            place, work, arguments, seconds, most_bytes = pickle.load(requests)
            os.chdir(place)  # paths may be relative to the caller's folder
            pickle.dump(_limited(work, arguments, seconds, most_bytes), answers, protocol=5)
            answers.flush()


def _limited(work: Callable[..., Any], arguments: tuple[Any, ...], seconds: float, most_bytes: int) -> tuple[bool, Any]:
    """Call a function with limits of time and memory; return whether it succeeded, and its result or error."""
    if _HAS_LIMITS:
        import resource

        most, hard = psutil.Process().memory_info().vms + most_bytes, resource.getrlimit(resource.RLIMIT_AS)[1]
        with suppress(OSError, ValueError):  # macOS has no such limit
            resource.setrlimit(resource.RLIMIT_AS, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))
        signal.setitimer(signal.ITIMER_PROF, seconds)  # after which the system ends this process
    try:
        return True, work(*arguments)
    except Exception as error:
        return False, error.with_traceback(None)
    finally:
        if _HAS_LIMITS:
            signal.setitimer(signal.ITIMER_PROF, 0)


@atexit.register
def _end_all() -> None:
    while _idle:
        _idle.pop().end()


def _forget_all() -> None:
    """Leave the readers of the process that this one was forked from alone."""
    global _room
    _room = threading.BoundedSemaphore(count_cores())
    for reader in _idle:
        reader.forget()
        reader.process.returncode = 0  # not a child of this process, so there is nothing to wait for
    _idle.clear()


in_forked_child(_forget_all)
