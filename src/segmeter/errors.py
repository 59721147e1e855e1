"""Defines every error that segmeter raises on purpose, and its exit code."""

import copyreg
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

EXIT_BAD_INPUT = 2
EXIT_FAULT = 3
EXIT_REGRESSION = 4
EXIT_UNDECIDED = 5
EXIT_HANGUP = 129
EXIT_INTERRUPTED = 130
EXIT_TERMINATED = 143
# Of a process stopped by a signal. SLURM sends SIGUSR1 before its time limit: the run can resume, as after a fault
EXIT_CODES = {
    getattr(signal, name): code
    for name, code in (
        ("SIGTERM", EXIT_TERMINATED), ("SIGINT", EXIT_INTERRUPTED), ("SIGUSR1", EXIT_FAULT), ("SIGHUP", EXIT_HANGUP),
    )
    if hasattr(signal, name)  # Windows has the first two
}  # fmt: skip


class SegmeterError(Exception):
    """A fault that the user can act on. Its message is shown without a traceback.

    Parameters
    ----------
    problems
        One message or several, each one line with the given value, the rule and the remedy.
    exit_code
        The exit code of a command that this error ends; None takes that of the class.
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
    """A fault while running (a non-finite loss, a full disk); what was published before stays, and the run resumes."""


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
        Names of its files.
    seconds
        The time limit.
    case_id, index
        The case, and its number from 0 if that is known.
    """

    def __init__(self, files: str, *, seconds: float, case_id: str, index: int | None = None) -> None:
        number = "" if index is None else f" (index {index})"
        remedy = "Bring the disk or server back, or raise data.timeout_s."
        super().__init__(f"data: case {case_id!r}{number} was not read within {seconds:g} seconds: {files}. {remedy}")
        self.files, self.seconds, self.case_id = files, seconds, case_id


class SweepError(SegmeterError):
    """Jobs of a sweep failed; `exit_code` is that of the first of them."""


class PeerError(RunError):
    """Another process of the same training ended it; `exit_code` is that of its fault."""


class GateError(SegmeterError):
    """A run is not shown to reach its requirements; `exit_code` tells whether it is worse or undecided."""


class Interrupted(SegmeterError):
    """A signal asked the run to stop; it was saved first, and `exit_code` is that of the signal."""


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
    """Raise whatever another library raises within the block as one line: `what`, its reason, and the remedy.

    Running out of memory passes unchanged, as the input is not at fault.
    """
    try:
        yield
    except (SegmeterError, MemoryError):
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        raise kind(f"{what} ({reason}). {remedy}".rstrip()) from error
