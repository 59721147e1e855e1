"""Refuses work that can't fit into memory before it starts, and lets other work run in parallel as far as it fits."""

import math
import threading
from contextlib import ExitStack

from segmeter.checks import expected
from segmeter.classes import ClassSpec
from segmeter.errors import InputError
from segmeter.parallel import free_bytes

_TABLES = 6  # of counts that are held at a time
SMALL = 64 << 20  # bytes; for less, free memory is not looked up


def check_memory(needed: int, *, what: str, remedy: str) -> None:
    """Refuse work that takes more memory than is free.

    Parameters
    ----------
    needed
        Estimated bytes.
    what, remedy
        For the message: what needs them, and what to do about it.

    Raises
    ------
    InputError
        Less memory is free.
    """
    if needed >= SMALL and needed > (free := free_bytes()):
        raise InputError(expected(what, "memory", f"of about {_show(needed)}", f"{_show(free)} free", remedy))


def check_counts(spec: ClassSpec) -> None:
    """Refuse more classes than the counts of a case have memory for."""
    needed = _TABLES * 8 * math.prod(spec.counts_shape)
    check_memory(needed, what=f"score: counts of {spec.num_classes} classes", remedy="Name those that occur.")


class Room:
    """Memory that threads share. Work that fits only alone waits until the others are done.

    Parameters
    ----------
    limit
        Bytes; None takes the memory that is free when nothing is held.
    processes
        How many processes share the free memory, each with a room of its own.
    """

    def __init__(self, limit: int | None = None, *, processes: int = 1) -> None:
        self._fixed, self._limit, self._processes = limit is not None, limit, max(1, processes)
        self._held = 0
        self._changed = threading.Condition()

    def enter(self, needed: int, *, what: str = "", remedy: str = "") -> None:
        """Wait until `needed` bytes fit, and hold them; without a limit, raise as `check_memory` if they never fit."""
        with self._changed:
            self._changed.wait_for(lambda: not self._held or self._held + needed <= (self._limit or 0))
            if not self._held and not self._fixed:
                check_memory(needed * self._processes, what=what, remedy=remedy)
                self._limit = free_bytes() // self._processes
            self._held += needed

    def leave(self, needed: int) -> None:
        """Give bytes back."""
        with self._changed:
            self._held -= needed
            self._changed.notify_all()

    def hold(self, needed: int, *, what: str, remedy: str) -> ExitStack:
        """Hold bytes until the returned context ends; less than `SMALL` needs no room."""
        held = ExitStack()
        if needed >= SMALL:
            self.enter(needed, what=what, remedy=remedy)
            held.callback(self.leave, needed)
        return held


def _show(count: int) -> str:
    return f"{max(count, 0) / 2**30:.1f} GiB"
