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
    done, reached = 0, 0.0

    def text(passed: float) -> str:
        left = f", {_time((total - reached) * passed / reached)} left" if 0 < reached < total else ""
        return f"{int(reached)} of {total}, {100 * reached / total:.0f} % ({_rate(reached, passed)}{left})"

    def end(passed: float) -> str:
        return f"{int(reached)} in {passed:.1f} s ({_rate(reached, passed)})"

    with _shown(what, total, end, quiet=QUIET_SECONDS) as show:

        def move(now: float) -> None:
            nonlocal reached
            reached = max(reached, now)  # a batch that is computed is not yet worked through
            show(reached, text)

        if parts is not None:
            parts(lambda part: move(done + part))
        for done, item in enumerate(items, 1):
            yield item
            move(done)


@contextmanager
def gauge(what: str) -> Iterator[Callable[[float, str], None]]:
    """Show the progress of work that is not counted in items, with text beside it.

    Yields
    ------
    A function to call as ``show(fraction, text)``, as often as is convenient: the clock limits the output.
    """
    first = None
    with _shown(what, 1.0, "finished in {:.0f} s".format, quiet=LINE_SECONDS) as show:

        def move(fraction: float, figures: str) -> None:
            nonlocal first
            now = time.monotonic()
            first = first or (now, fraction)  # a resumed run does not start at zero
            gained, spent = fraction - first[1], now - first[0]
            left = f", {_time((1.0 - fraction) * spent / gained)} left" if gained > 0 and fraction < 1 else ""
            show(fraction, lambda passed: f"{100 * fraction:.0f} %{left}, {figures}")

        yield move


@contextmanager
def _shown(
    what: str, total: float, end: Callable[[float], str], *, quiet: float
) -> Iterator[Callable[[float, Callable[[float], str]], None]]:
    """Show how much of the total is done, with a text of the seconds that passed: live on a terminal, elsewhere in
    lines now and then.
    """
    start = said = time.monotonic()
    if sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.fields[text]}", markup=False),
        )
        with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
            task = progress.add_task(what, total=total, text="")
            yield lambda done, text: progress.update(task, completed=done, text=text(time.monotonic() - start))
        return

    def show(done: float, text: Callable[[float], str]) -> None:
        nonlocal said
        now = time.monotonic()
        if done and now - said >= LINE_SECONDS:
            said = now
            sys.stderr.write(f"{what}: {text(now - start)}\n")

    yield show
    if (passed := time.monotonic() - start) >= quiet:
        sys.stderr.write(f"{what}: {end(passed)}\n")


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < _IN_SECONDS else str(timedelta(seconds=round(seconds)))


def _rate(count: float, seconds: float) -> str:
    rate = count / (seconds + 1e-9)
    return f"{rate:.1f}/s" if rate >= 0.1 or not rate else f"{1 / rate:.0f} s each"


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
