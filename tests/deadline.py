"""A deadline for code that might wait without end, such as for the writer of a pipe."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Fail a test whose block takes longer, in the main thread."""

    def late(number: int, frame: object) -> None:
        pytest.fail(f"still waiting after {seconds:g} seconds")  # which no `except Exception` takes

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
