"""Where a run's time goes: seconds that each stage was at work, and bytes that crossed to and from the device."""

import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, get_args

Stage = Literal["read", "forward", "transfer", "post-process", "measure", "write"]
Way = Literal["to the device", "to the host"]


class Stages:
    """Adds up the work of all threads; stages that overlap add up to more than the time that passed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seconds: dict[Stage, float] = defaultdict(float)
        self._bytes: dict[Way, int] = defaultdict(int)
        self._begun = time.perf_counter()

    @contextmanager
    def timed(self, stage: Stage) -> Iterator[None]:
        """Add the seconds that the block takes to a stage."""
        begun = time.perf_counter()
        try:
            yield
        finally:
            self.add(stage, time.perf_counter() - begun)

    def add(self, stage: Stage, seconds: float) -> None:
        """Add to the seconds of a stage."""
        with self._lock:
            self._seconds[stage] += seconds

    def crossed(self, way: Way, nbytes: int) -> None:
        """Add to the bytes that went one way."""
        with self._lock:
            self._bytes[way] += nbytes

    def seconds(self) -> dict[Stage, float]:
        """Seconds of every stage, in the order of the work."""
        with self._lock:
            return {stage: self._seconds[stage] for stage in get_args(Stage)}

    def bytes(self) -> dict[Way, int]:
        """Bytes that crossed, each way."""
        with self._lock:
            return {way: self._bytes[way] for way in get_args(Way)}

    def report(self) -> str:
        """Two lines for people: each stage's seconds as a share of the time that passed, and the bytes that crossed.

        Examples
        --------
        >>> Stages().report().splitlines()[1]
        'crossed   0.0 MB to the device, 0.0 MB to the host'
        """
        passed = max(time.perf_counter() - self._begun, 1e-9)
        shares = [f"{stage} {100 * seconds / passed:.0f} %" for stage, seconds in self.seconds().items()]
        ways = [f"{nbytes / 1e6:.1f} MB {way}" for way, nbytes in self.bytes().items()]
        return f"time      {passed:.1f} s: {', '.join(shares)} (stages overlap)\ncrossed   {', '.join(ways)}"
