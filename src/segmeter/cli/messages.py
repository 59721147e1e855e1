"""Warnings of the whole program -> standard error and the log of the run, those before it was opened too."""

import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from segmeter.checks import condense
from segmeter.errors import EXIT_BAD_INPUT, EXIT_FAULT, SegmeterError
from segmeter.files import Lines

LOGGER = logging.getLogger("segmeter")
NEED_TORCH = ("torch", "torchvision", "timm", "segmentation_models_pytorch", "safetensors")
WHOLE = "Run: pip uninstall segmeter-score; pip install segmeter"
_FORMAT = logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s")


def describe(error: Exception) -> tuple[list[str], int]:
    """What is said of an error, one line each, and the exit code."""
    if isinstance(error, SegmeterError):
        return condense(error.problems), error.exit_code
    if isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] in NEED_TORCH:
        return [f"this needs {error.name}, which segmeter-score leaves out. {WHOLE}"], EXIT_BAD_INPUT
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return [f"{where}{error.strerror or error}. Remove the cause and run it again."], EXIT_FAULT
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return [f"unexpected fault: {text} (SEGMETER_DEBUG=1 shows the traceback)"], EXIT_FAULT


class _Shown(logging.Handler):
    """Shows warnings, and keeps them for the log of a run that is opened later."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.early: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno == logging.WARNING:  # an error is shown once, where the program ends
            sys.stderr.write(f"warning: {record.getMessage()}\n")
            self.early.append(record)


class _Log(logging.Handler):
    """Appends to log.txt; when that fails it says so once and is silent, as it must not hide what it logs."""

    def __init__(self, path: Path) -> None:
        super().__init__(logging.INFO)
        self._path = path
        self._lines = Lines(path)
        self._broken = False
        self.setFormatter(_FORMAT)

    def emit(self, record: logging.LogRecord) -> None:
        if self._broken:
            return
        try:
            self._lines.write(f"{self.format(record)}\n".encode("utf-8", "backslashreplace"))
        except OSError as error:
            self._broken = True
            sys.stderr.write(f"warning: {self._path}: {error.strerror}. Nothing more is logged.\n")

    def close(self) -> None:
        self._lines.close()
        super().close()


@contextmanager
def shown_warnings() -> Iterator[None]:
    """While the block runs, warnings are shown; so is what ends a thread, in one line."""
    handler = _Shown()
    LOGGER.addHandler(handler)
    before = threading.excepthook
    threading.excepthook = _thread_ended
    try:
        yield
    finally:
        threading.excepthook = before
        LOGGER.removeHandler(handler)


@contextmanager
def logged(folder: Path) -> Iterator[None]:
    """While the block runs, what is logged goes to the log.txt of a run's folder."""
    log = _Log(folder / "log.txt")
    LOGGER.setLevel(logging.INFO)
    for shown in (each for each in LOGGER.handlers if isinstance(each, _Shown)):
        for record in shown.early:
            log.handle(record)
        shown.early.clear()
    LOGGER.addHandler(log)
    try:
        yield
    finally:
        LOGGER.removeHandler(log)
        log.close()
        for shown in (each for each in LOGGER.handlers if isinstance(each, _Shown)):
            shown.early.clear()


def _thread_ended(fault: threading.ExceptHookArgs) -> None:
    name = fault.thread.name if fault.thread else "a thread"
    LOGGER.warning("%s ended: %s: %s", name, fault.exc_type.__name__, fault.exc_value)
