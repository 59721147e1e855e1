"""Standard output and error that may be closed or full: what can't be shown is dropped, and the work goes on."""

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO


@contextmanager
def lenient_streams() -> Iterator[None]:
    """While the block runs, writing to sys.stdout or sys.stderr never fails, whatever became of them."""
    for number in range(3):  # else the next file that is opened would become the standard output
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    before = {}
    for name, number in (("stdout", 1), ("stderr", 2)):
        stream = getattr(sys, name)
        if stream is None or stream is getattr(sys, f"__{name}__"):  # not one that a caller put there
            before[name] = stream
            setattr(sys, name, _lenient(stream, number))
    try:
        yield
    finally:
        for name, stream in before.items():
            getattr(sys, name).flush()
            if stream is not None:
                setattr(sys, name, stream)


class _Descriptor(io.FileIO):
    """Writes until the first fault."""

    broken = False

    def write(self, data: Any) -> int:
        if not self.broken:
            try:
                return super().write(data)
            except OSError:
                self.broken = True
        return memoryview(data).nbytes


def _lenient(stream: TextIO | None, number: int) -> TextIO:
    encoding = "utf-8" if stream is None else stream.encoding
    buffer = io.BufferedWriter(_Descriptor(number, "w", closefd=False))
    at_once = number == 2 or os.isatty(number)
    # a name that the terminal's encoding lacks is no reason to stop either
    return io.TextIOWrapper(buffer, encoding, "backslashreplace", line_buffering=at_once, write_through=at_once)
