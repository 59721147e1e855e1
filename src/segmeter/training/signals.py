"""Turns SIGTERM, SIGINT, SIGUSR1 and SIGHUP into a flag that a loop reads, or into an exception.

A second signal ends the process at once.
"""

import os
import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self

from segmeter.errors import EXIT_CODES


class Stopped(KeyboardInterrupt):
    """A signal came outside of a training, which would save first. Raised wherever the main thread is, like Ctrl-C."""

    def __init__(self, received: signal.Signals) -> None:
        super().__init__("interrupted" if received == signal.SIGINT else f"stopped by {received.name}")
        self.received = received
        self.exit_code = EXIT_CODES[received]


class StopSignals:
    """While the block runs, a first signal sets `received`; a second ends the process at once.

    Parameters
    ----------
    raises
        Whether the first signal raises `Stopped` in the main thread, the only one that signals reach.
    """

    def __init__(self, *, raises: bool = False) -> None:
        self.received: signal.Signals | None = None
        self.raises = raises
        self._before: dict[signal.Signals, Any] = {}

    @property
    def exit_code(self) -> int:
        """The exit code of the received signal, 0 without one."""
        return EXIT_CODES[self.received] if self.received else 0

    @property
    def number(self) -> int:
        """Number of the received signal, 0 without one."""
        return int(self.received or 0)

    def hear(self, number: int) -> None:
        """Record a signal that another process of the run received; 0 is none."""
        if number and self.received is None:
            self.received = signal.Signals(number)

    def __bool__(self) -> bool:
        return self.received is not None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._note) for number in EXIT_CODES}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if error is not None:  # a signal that comes now, such as torchrun's, is not the cause
            let_finish()

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.received is not None:
            os._exit(EXIT_CODES[signal.Signals(number)])
        self.received = signal.Signals(number)
        if self.raises:
            raise Stopped(self.received)


def let_finish() -> None:
    """Only record a first signal from now on, as the work is done and the process is about to end.

    For code that can't reach the `StopSignals` of the process. Without any, this does nothing.
    """
    listening = getattr(signal.getsignal(signal.SIGTERM), "__self__", None)
    while isinstance(listening, StopSignals):  # and the outer ones, which listen again afterwards
        listening.raises = False
        listening = getattr(listening._before.get(signal.SIGTERM), "__self__", None)
