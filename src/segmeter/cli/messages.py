"""Shows warnings on standard error, keeps them in a run's log, and lets output streams be closed or full."""

import logging
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from segmeter.checks import condense
from segmeter.errors import EXIT_BAD_INPUT, EXIT_FAULT, SegmeterError
from segmeter.files import Lines

LOGGER = logging.getLogger("segmeter")
NEED_TORCH = ("torch", "torchvision", "timm", "segmentation_models_pytorch", "safetensors")
GET_TORCH = "Run: pip uninstall segmeter-score; pip install segmeter"
_FORMAT = logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s")


def describe(error: Exception) -> tuple[list[str], int]:
    """Return the lines to print for an error, and the exit code."""
    if isinstance(error, SegmeterError):
        return condense(error.problems), error.exit_code
    if isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] in NEED_TORCH:
        return [f"this needs {error.name}, which segmeter-score leaves out. {GET_TORCH}"], EXIT_BAD_INPUT
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return [f"{where}{error.strerror or error}. Remove the cause and run it again."], EXIT_FAULT
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return [f"unexpected fault: {text} (SEGMETER_DEBUG=1 shows the traceback)"], EXIT_FAULT


class _Shown(logging.Handler):
    """Prints warnings and records marked `shown`, and keeps warnings for the log of a run that is opened later."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.early: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno == logging.WARNING:  # errors are printed once, by `main`
            sys.stderr.write(f"warning: {record.getMessage()}\n")
            self.early.append(record)
        elif getattr(record, "shown", False):
            sys.stderr.write(f"{record.getMessage()}\n")


class _Log(logging.Handler):
    """Appends to log.txt. If that fails, it says so once and stops, as a failing log must not hide what it reports."""

    def __init__(self, lines: Lines, path: Path) -> None:
        super().__init__(logging.INFO)
        self._lines = lines
        self._path = path
        self._is_broken = False
        self.setFormatter(_FORMAT)

    def emit(self, record: logging.LogRecord) -> None:
        if self._is_broken:
            return
        try:
            self._lines.write(f"{self.format(record)}\n".encode("utf-8", "backslashreplace"))
        except OSError as error:
            self._is_broken = True
            sys.stderr.write(f"warning: {self._path}: {error.strerror}. Nothing more is logged.\n")


@contextmanager
def shown_warnings() -> Iterator[None]:
    """Print warnings while the block runs, and one line for an exception that ends a thread."""
    handler = _Shown()
    LOGGER.setLevel(logging.INFO)
    LOGGER.addHandler(handler)
    previous_hook = threading.excepthook
    threading.excepthook = _thread_ended
    try:
        yield
    finally:
        threading.excepthook = previous_hook
        LOGGER.removeHandler(handler)


@contextmanager
def logged(folder: Path) -> Iterator[None]:
    """Write log messages to the log.txt of a run's folder while the block runs."""
    path = folder / "log.txt"
    printers = [handler for handler in LOGGER.handlers if isinstance(handler, _Shown)]
    with closing(Lines(path)) as lines:
        log = _Log(lines, path)
        for record in [record for printer in printers for record in printer.early]:
            log.handle(record)
        LOGGER.addHandler(log)
        try:
            yield
        finally:
            LOGGER.removeHandler(log)
            for printer in printers:
                printer.early.clear()


def _thread_ended(fault: threading.ExceptHookArgs) -> None:
    name = fault.thread.name if fault.thread else "a thread"
    LOGGER.warning("%s ended: %s: %s", name, fault.exc_type.__name__, fault.exc_value)


@contextmanager
def lenient_streams() -> Iterator[None]:
    """Keep writes to sys.stdout and sys.stderr from failing while the block runs, even if they are closed or full."""
    for descriptor in range(3):  # otherwise the next opened file would become the standard output
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    replaced = {}
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        stream = getattr(sys, name)
        if stream is None:
            stream = open(descriptor, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        elif stream is not getattr(sys, f"__{name}__"):
            continue  # a caller put it there
        stream.reconfigure(errors="backslashreplace")  # names may hold characters that the terminal's encoding lacks
        replaced[name] = stream
        setattr(sys, name, _Lenient(stream))
    try:
        yield
    finally:
        for name, stream in replaced.items():
            getattr(sys, name).flush()
            setattr(sys, name, stream)


class _Lenient:
    """A stream that passes everything on to another one. After the first error, output goes to the null device."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        try:
            self._stream.write(text)
        except OSError:
            self._close()
        return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError:
            self._close()

    def _close(self) -> None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())
