"""Defines every error that segmeter raises on purpose, and its exit code. Turns signals into an error or a flag.

SIGTERM, SIGINT, SIGUSR1 and SIGHUP end a run in order; a second signal ends the process at once.
"""

import copyreg
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any, Self

EXIT_BAD_INPUT = 2
EXIT_FAULT = 3
EXIT_REGRESSION = 4
EXIT_UNDECIDED = 5
EXIT_HANGUP = 129
EXIT_INTERRUPTED = 130
EXIT_TERMINATED = 143
# Exit codes of a process that a signal stopped. SLURM sends SIGUSR1 before its time limit: the run can resume, as after
# a fault.
SIGNAL_EXIT_CODES = {
    getattr(signal, name): code
    for name, code in (
        ("SIGTERM", EXIT_TERMINATED), ("SIGINT", EXIT_INTERRUPTED), ("SIGUSR1", EXIT_FAULT), ("SIGHUP", EXIT_HANGUP),
    )
    if hasattr(signal, name)  # Windows has only the first two
}  # fmt: skip


class SegmeterError(Exception):
    """A fault that the user can act on. Its message is shown without a traceback.

    Parameters
    ----------
    problems
        One message or several, each one line with the given value, the rule and the remedy.
    exit_code
        The exit code of a command that this error ends; None takes the exit code of its class.
    """

    exit_code = EXIT_FAULT

    def __init__(self, problems: str | Sequence[str], *, exit_code: int | None = None) -> None:
        self.problems = (problems,) if isinstance(problems, str) else tuple(problems)
        self.exit_code = self.exit_code if exit_code is None else exit_code
        super().__init__("\n".join(self.problems))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle any kind of error whole, whatever its other arguments."""
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]


class RunError(SegmeterError):
    """A fault while running, such as a non-finite loss or a full disk. Finished files stay, and the run can resume."""


class OverflowedError(RunError):
    """A model's output for a case holds NaN or infinity."""

    def __init__(self, problems: str | Sequence[str], *, case_id: str) -> None:
        super().__init__(problems)
        self.case_id = case_id


class LateError(RunError):
    """A case was not read within `data.timeout_s`.

    Parameters
    ----------
    files
        Names of the case's files.
    seconds
        The time limit.
    case_id, index
        The case, and its number from 0 if that is known.
    """

    def __init__(self, files: str, *, seconds: float, case_id: str, index: int | None = None) -> None:
        number = "" if index is None else f" (index {index})"
        remedy = "Bring the disk or server back, or raise data.timeout_s."
        super().__init__(f"data: case {case_id!r}{number} was not read within {seconds:g} seconds: {files}. {remedy}")
        self.files = files
        self.seconds = seconds
        self.case_id = case_id


class SweepError(SegmeterError):
    """Jobs of a sweep failed; `exit_code` is the first failed job's."""


class PeerError(RunError):
    """Another process ended the training that both take part in; `exit_code` is that process's."""


class GateError(SegmeterError):
    """A run is not shown to reach its requirements; `exit_code` tells whether it is worse or undecided."""


class Interrupted(SegmeterError):
    """A signal asked the run to stop, and the run saved its state first. `exit_code` is the signal's."""


class InputError(SegmeterError, ValueError):
    """An argument or file that a function can't use."""

    exit_code = EXIT_BAD_INPUT


class ConfigError(InputError):
    """A key, value or option that the configuration does not have or allow."""


class DataError(InputError):
    """An image, mask or data set that can't be read exactly as the configuration says."""


class CheckpointError(InputError):
    """A checkpoint that is damaged, foreign, or does not fit the model."""


@contextmanager
def refusing(kind: type[SegmeterError], what: str, remedy: str = "") -> Iterator[None]:
    """Turn any error of another library in the block into one line: `what`, the reason, and the remedy.

    Running out of memory passes unchanged, as the input is not at fault.
    """
    try:
        yield
    except (SegmeterError, MemoryError):
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        raise kind(f"{what} ({reason}). {remedy}".rstrip()) from error


class Stopped(KeyboardInterrupt):
    """A signal came while there was no training to save. Like Ctrl-C, it is raised wherever the main thread is."""

    def __init__(self, received: signal.Signals) -> None:
        super().__init__("interrupted" if received == signal.SIGINT else f"stopped by {received.name}")
        self.received = received
        self.exit_code = SIGNAL_EXIT_CODES[received]


class StopSignals:
    """Handles signals while the block runs: the first sets `received`, and a second ends the process at once.

    Parameters
    ----------
    raises
        Whether the first signal raises `Stopped` in the main thread, which alone receives signals.
    """

    def __init__(self, *, raises: bool = False) -> None:
        self.received: signal.Signals | None = None
        self.raises = raises
        self._previous_handlers: dict[signal.Signals, Any] = {}

    @property
    def exit_code(self) -> int:
        """The exit code of the received signal, 0 without one."""
        return SIGNAL_EXIT_CODES[self.received] if self.received else 0

    @property
    def number(self) -> int:
        """The number of the received signal, 0 without one."""
        return int(self.received or 0)

    def hear(self, number: int) -> None:
        """Record a signal that another process of the run received; 0 is none."""
        if number and self.received is None:
            self.received = signal.Signals(number)

    def __bool__(self) -> bool:
        return self.received is not None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._previous_handlers = {number: signal.signal(number, self._handle) for number in SIGNAL_EXIT_CODES}
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        for number, handler in self._previous_handlers.items():
            signal.signal(number, handler)
        if error is not None:  # a signal that comes now, such as torchrun's, is not the cause
            let_finish()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.received is not None:
            os._exit(SIGNAL_EXIT_CODES[signal.Signals(number)])
        self.received = signal.Signals(number)
        if self.raises:
            raise Stopped(self.received)


def let_finish() -> None:
    """From now on only record a first signal, because the work is done and the process is about to end.

    For code that can't reach the `StopSignals` of the process. Does nothing if there is none.
    """
    handler = signal.getsignal(signal.SIGTERM)
    while isinstance(stop := getattr(handler, "__self__", None), StopSignals):  # then the outer block's, until the last
        stop.raises = False
        handler = stop._previous_handlers.get(signal.SIGTERM)
