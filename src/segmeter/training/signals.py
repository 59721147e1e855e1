"""SIGTERM, SIGINT, SIGUSR1 -> a flag that the loop reads; a second signal ends the process at once."""

import os
import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self

from segmeter.errors import EXIT_FAULT, EXIT_INTERRUPTED, EXIT_TERMINATED

# SIGUSR1 is what SLURM sends ahead of the time limit: the run can go on, like after a fault
EXIT_CODES = {signal.SIGTERM: EXIT_TERMINATED, signal.SIGINT: EXIT_INTERRUPTED, signal.SIGUSR1: EXIT_FAULT}


class StopSignals:
    """While the block runs, a first signal only sets `received`; signals reach the main thread alone."""

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._before: dict[signal.Signals, Any] = {}

    @property
    def exit_code(self) -> int:
        """What the received signal stands for."""
        return EXIT_CODES[self.received] if self.received else 0

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

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.received is not None:
            os._exit(EXIT_CODES[signal.Signals(number)])
        self.received = signal.Signals(number)
