"""Shows the progress of work, and adds up where a run's time goes.

On a terminal, work shows a live line with its rate and the time that is left. Elsewhere, work that takes over two
seconds prints a plain line now and then.
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

QUIET_SECONDS = 2.0  # shorter work shows nothing
LINE_SECONDS = 15.0  # between two plain lines
_IN_SECONDS = 300  # below which a time is given in seconds


def track(
    items: Iterable[Item], what: str, total: int, *, parts: Callable[[Report], None] | None = None
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
    parts
        For items that take long, such as large images in tiles. It receives a function to call with how many of the
        next items are done, such as 0.25.
    """
    start, done, reached = time.monotonic(), 0, 0.0
    with gauge(what, quiet=QUIET_SECONDS) as show:
        show(0.0, "")

        def move(now: float) -> None:
            nonlocal reached
            reached = max(reached, now)  # a batch that is computed is not yet worked through
            rate = reached / (time.monotonic() - start + 1e-9)
            pace = f"{rate:.1f}/s" if rate >= 0.1 or not rate else f"{1 / rate:.0f} s each"
            show(reached / total, f"{int(reached)} of {total} ({pace})")

        if parts is not None:
            parts(lambda part: move(done + part))
        for done, item in enumerate(items, 1):
            yield item
            move(done)


@contextmanager
def gauge(what: str, *, quiet: float = LINE_SECONDS) -> Iterator[Callable[[float, str], None]]:
    """Show the progress of work, with text beside it: live on a terminal, elsewhere in lines now and then.

    Parameters
    ----------
    what
        The name of the activity.
    quiet
        Work of fewer seconds prints no last line.

    Yields
    ------
    A function to call as ``show(fraction, text)``, as often as is convenient: the clock limits the output.
    """
    start = said = time.monotonic()
    first, told = None, ""

    def line(fraction: float, text: str) -> str:
        nonlocal first, told
        now, told = time.monotonic(), text
        first = first or (now, fraction)  # a resumed run does not start at zero
        gained, spent, left = fraction - first[1], now - first[0], ""
        if gained > 0 and fraction < 1:
            seconds = (1.0 - fraction) * spent / gained
            left = f", {seconds:.0f} s left" if seconds < _IN_SECONDS else f", {timedelta(seconds=round(seconds))} left"
        return f"{100 * fraction:.0f} %{left}, {text}"

    if sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        name, beside = (TextColumn(form, markup=False) for form in ("{task.description}", "{task.fields[text]}"))
        with Progress(name, BarColumn(), beside, console=Console(stderr=True), transient=True) as progress:
            task = progress.add_task(what, total=1.0, text="")
            yield lambda fraction, text: progress.update(task, completed=fraction, text=line(fraction, text))
        return

    def show(fraction: float, text: str) -> None:
        nonlocal said
        words, now = line(fraction, text), time.monotonic()
        if fraction and now - said >= LINE_SECONDS:
            said = now
            sys.stderr.write(f"{what}: {words}\n")

    yield show
    if (passed := time.monotonic() - start) >= quiet:
        sys.stderr.write(f"{what}: {', '.join(filter(None, [f'finished in {passed:.0f} s', told]))}\n")


class Stages:
    """Adds up the seconds of each stage and the bytes that crossed, over all threads.

    Stages that overlap add up to more than the time that passed.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.seconds: dict[Stage, float] = dict.fromkeys(get_args(Stage), 0.0)
        self.bytes: dict[Way, int] = dict.fromkeys(get_args(Way), 0)
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
            self.seconds[stage] += seconds

    def crossed(self, way: Way, nbytes: int) -> None:
        """Add to the bytes that went in one direction."""
        with self._lock:
            self.bytes[way] += nbytes

    def report(self) -> str:
        """Write two lines for people: each stage's seconds as a share of the time that passed, and the bytes that
        crossed.

        Examples
        --------
        >>> Stages().report().splitlines()[1]
        'crossed   0.0 MB to the device, 0.0 MB to the host'
        """
        passed = max(time.perf_counter() - self._begun, 1e-9)
        shares = [f"{stage} {100 * seconds / passed:.0f} %" for stage, seconds in self.seconds.items()]
        ways = [f"{nbytes / 1e6:.1f} MB {way}" for way, nbytes in self.bytes.items()]
        return f"time      {passed:.1f} s: {', '.join(shares)} (stages overlap)\ncrossed   {', '.join(ways)}"
