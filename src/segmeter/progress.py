"""Shows the progress of work, and adds up where a run's time goes.

On a terminal, a live line shows the rate of work and the time that is left. Elsewhere, work that takes over two seconds
prints a plain line now and then.
"""

import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Literal, TypeVar, get_args

Item = TypeVar("Item")
Report = Callable[[float], None]
Stage = Literal["read", "forward", "transfer", "post-process", "measure", "write"]
Way = Literal["to the device", "to the host"]

QUIET_SECONDS = 2.0  # Shorter work shows nothing.
LINE_SECONDS = 15.0  # Plain lines are at least this far apart.
_IN_SECONDS = 300  # Shorter times are given in seconds.


def track(
    items: Iterable[Item], what: str, total: int, *, watch_parts: Callable[[Report], None] | None = None
) -> Iterator[Item]:
    """Yield `items` while showing progress.

    Parameters
    ----------
    items
        Anything to go through.
    what
        The name of the activity, for example "evaluating".
    total
        The number of items.
    watch_parts
        For items that take long, such as large images in tiles. It is called once, with a function to which the source
        of the items passes how many of the next ones are done, such as 0.25.
    """
    start = time.monotonic()
    done = 0
    reached = 0.0
    with gauge(what, quiet=QUIET_SECONDS) as show:
        show(0.0, "")

        def move(items_done: float) -> None:
            nonlocal reached
            reached = max(reached, items_done)  # parts of a batch may be done before its items are yielded
            rate = reached / (time.monotonic() - start + 1e-9)
            pace = f"{rate:.1f}/s" if rate >= 0.1 or not rate else f"{1 / rate:.0f} s each"
            show(reached / total, f"{int(reached)} of {total} ({pace})")

        if watch_parts is not None:
            watch_parts(lambda part: move(done + part))
        for done, item in enumerate(items, 1):
            yield item
            move(done)


@contextmanager
def gauge(what: str, *, quiet: float = LINE_SECONDS) -> Iterator[Callable[[float, str], None]]:
    """Show the progress of work with a text: live on a terminal, elsewhere in lines now and then.

    Parameters
    ----------
    what
        The name of the activity.
    quiet
        Work of fewer seconds prints no final line.

    Yields
    ------
    A function to call as ``show(fraction, text)``, as often as is convenient: the clock limits the output.
    """
    start = last_printed = time.monotonic()
    origin: tuple[float, float] | None = None
    last_text = ""

    def line(fraction: float, text: str) -> str:
        nonlocal origin, last_text
        last_text = text
        now = time.monotonic()
        origin = origin or (now, fraction)  # a resumed run does not start at zero
        begun, fraction_before = origin
        left = ""
        if fraction_before < fraction < 1:
            seconds = (1.0 - fraction) * (now - begun) / (fraction - fraction_before)
            left = f", {seconds:.0f} s left" if seconds < _IN_SECONDS else f", {timedelta(seconds=round(seconds))} left"
        return f"{100 * fraction:.0f} %{left}, {text}"

    if sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        name = TextColumn("{task.description}", markup=False)
        beside = TextColumn("{task.fields[text]}", markup=False)
        with Progress(name, BarColumn(), beside, console=Console(stderr=True), transient=True) as progress:
            task = progress.add_task(what, total=1.0, text="")
            yield lambda fraction, text: progress.update(task, completed=fraction, text=line(fraction, text))
        return

    def show(fraction: float, text: str) -> None:
        nonlocal last_printed
        words = line(fraction, text)
        now = time.monotonic()
        if fraction and now - last_printed >= LINE_SECONDS:
            last_printed = now
            sys.stderr.write(f"{what}: {words}\n")

    yield show
    if (passed := time.monotonic() - start) >= quiet:
        sys.stderr.write(f"{what}: {', '.join(filter(None, [f'finished in {passed:.0f} s', last_text]))}\n")


class Stages:
    """Adds up, over all threads, the seconds of each stage and the bytes moved between host and device.

    Stages overlap, so their sum may exceed the time that passed.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.seconds: dict[Stage, float] = dict.fromkeys(get_args(Stage), 0.0)
        self.bytes: dict[Way, int] = dict.fromkeys(get_args(Way), 0)
        self._start = time.perf_counter()

    @contextmanager
    def timed(self, stage: Stage) -> Iterator[None]:
        """Add the seconds that the block takes to a stage."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.add(stage, time.perf_counter() - start)

    def add(self, stage: Stage, seconds: float) -> None:
        """Add to the seconds of a stage."""
        with self._lock:
            self.seconds[stage] += seconds

    def crossed(self, way: Way, nbytes: int) -> None:
        """Add to the bytes that went in one direction."""
        with self._lock:
            self.bytes[way] += nbytes

    def report(self) -> str:
        """Write two lines for people: each stage's share of the time that passed, and the bytes moved.

        Examples
        --------
        >>> Stages().report().splitlines()[1]
        'crossed   0.0 MB to the device, 0.0 MB to the host'
        """
        passed = max(time.perf_counter() - self._start, 1e-9)
        shares = [f"{stage} {100 * seconds / passed:.0f} %" for stage, seconds in self.seconds.items()]
        ways = [f"{nbytes / 1e6:.1f} MB {way}" for way, nbytes in self.bytes.items()]
        return f"time      {passed:.1f} s: {', '.join(shares)} (stages overlap)\ncrossed   {', '.join(ways)}"
