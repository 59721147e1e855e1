"""Memory that is there -> work side by side as far as it fits; what never fits is refused in one line before it."""

import gc
import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from segmeter.checks import expected
from segmeter.data.files.header import read_header
from segmeter.data.files.png import read_layout
from segmeter.data.files.sniff import volume_format
from segmeter.errors import DataError, InputError
from segmeter.parallel import free_bytes

_LOOK_BYTES = 1 << 14  # of a file; smaller ones are read without a look at the memory
_TABLES = 6  # of counts that are held at a time
SMALL = 64 << 20  # bytes of work that is not worth a look at the memory


def check_memory(needed: int, *, what: str, remedy: str) -> None:
    """Refuse work that takes more memory than there is.

    Parameters
    ----------
    needed
        Bytes, estimated.
    what
        What takes them, for the message.
    remedy
        What to do about it.

    Raises
    ------
    InputError
        There is less.
    """
    if needed >= SMALL and needed > (free := free_bytes()):
        raise InputError(expected(what, "memory", f"of about {_show(needed)}", f"{_show(free)} free", remedy))


def check_counts(shape: tuple[int, ...]) -> None:
    """Refuse more classes than there is memory for; `shape` is that of the counts of a case."""
    needed = _TABLES * 8 * math.prod(shape)
    check_memory(needed, what=f"score: counts of {shape[0]} classes", remedy="Name those that occur.")


class Turns:
    """Lets threads work side by side while their memory fits together; what fits only alone waits for its turn.

    Parameters
    ----------
    processes
        How many processes share the memory, each with turns of its own.
    """

    def __init__(self, processes: int = 1) -> None:
        self._processes = max(1, processes)
        self._taken = 0
        self._free: int | None = None
        self._changed = threading.Condition()

    @contextmanager
    def take(self, needed: int, *, what: str, remedy: str) -> Iterator[None]:
        """Hold `needed` bytes while the block runs; raises as `check_memory` where they are not there at all."""
        if needed < SMALL:
            yield
            return
        with self._changed:
            self._changed.wait_for(lambda: not self._taken or self._free is None or self._taken + needed <= self._free)
            if not self._taken:
                check_memory(needed * self._processes, what=what, remedy=remedy)
                self._free = free_bytes() // self._processes
            self._taken += needed
        try:
            yield
        finally:
            with self._changed:
                self._taken -= needed
                self._changed.notify_all()


def _show(count: int) -> str:
    return f"{max(count, 0) / 2**30:.1f} GiB"


def stated_pixels(path: Path, most: int) -> int:
    """Pixels of a file by its header; of volumes, which are rarely packed, by its size. What is wrong is said later."""
    try:
        size = path.stat().st_size
        if size < _LOOK_BYTES or path.is_dir():
            return 0
        with path.open("rb") as file:
            layout = read_layout(file.read(33))
        if layout is None and volume_format(path):
            return size
        header = layout or read_header(path, max_pixels=most)
    except (DataError, OSError):
        return 0
    return header.height * header.width


@contextmanager
def spare_old_objects() -> Iterator[None]:
    """Let the garbage collector pass over what exists already: a walk over all imports takes as long as 100 pairs.

    For a process of our own: what is garbage already is kept too, and to collect it first would take longer still.
    """
    frozen = gc.get_freeze_count()  # by a program that imports this one: it stays so
    if not frozen:
        gc.freeze()
    try:
        yield
    finally:
        if not frozen:
            gc.unfreeze()
