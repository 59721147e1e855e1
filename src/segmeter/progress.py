"""Progress on anything that takes over two seconds: a bar with rate and ETA on a terminal, plain lines elsewhere."""

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from typing import TypeVar

Item = TypeVar("Item")
Report = Callable[[float], None]

QUIET_SECONDS = 2.0  # shorter work shows nothing
LINE_SECONDS = 15.0  # between two plain lines


class Pulse:
    """How often this process got on with its work; those that train together stop when it no longer grows."""

    beats = 0

    @classmethod
    def beat(cls) -> None:
        """Count a step, a case, or a file."""
        cls.beats += 1  # two threads may count as one: what matters is that it changes


def track(
    items: Iterable[Item], what: str, total: int | None = None, *, parts: Callable[[Report], None] | None = None
) -> Iterator[Item]:
    """Yield `items` while showing how far they are.

    Parameters
    ----------
    items
        Anything to go through.
    what
        What is being done, for example "evaluating".
    total
        How many items there are; taken from ``len(items)`` where it has one.
    parts
        Told whom to report to while the next item is in the making: how many of the items to come are done, such as
        0.25. For items that take long, like large images in tiles.
    """
    if total is None and isinstance(items, Sized):
        total = len(items)
    done = 0
    with _bar(what, total) if sys.stderr.isatty() else _lines(what, total) as move:

        def show_part(part: float) -> None:
            Pulse.beat()
            move(done + part)

        if parts is not None:
            parts(show_part)
        for done, item in enumerate(items, 1):
            Pulse.beat()
            yield item
            move(done)


@contextmanager
def gauge(what: str) -> Iterator[Callable[[float, str], None]]:
    """Show how far work is whose size is not a number of items, with text beside it.

    Yields
    ------
    Called as ``show(fraction, figures)``, as often as is convenient: what is drawn is limited by the clock.
    """
    with _gauge_bar(what) if sys.stderr.isatty() else _gauge_lines(what) as show:
        yield show


@contextmanager
def _gauge_bar(what: str) -> Iterator[Callable[[float, str], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[figures]}", markup=False),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(what, total=1.0, figures="")
        yield lambda fraction, figures: progress.update(task, completed=fraction, figures=figures)


@contextmanager
def _gauge_lines(what: str) -> Iterator[Callable[[float, str], None]]:
    start = said = time.monotonic()
    first = None

    def show(fraction: float, figures: str) -> None:
        nonlocal said, first
        now = time.monotonic()
        first = (now, fraction) if first is None else first
        if now - said < LINE_SECONDS:
            return
        said = now
        gained = fraction - first[1]  # a resumed run does not start at zero
        left = f", {(1.0 - fraction) * (now - first[0]) / gained:.0f} s left" if gained > 0 and fraction < 1 else ""
        sys.stderr.write(f"{what}: {100 * fraction:.0f} %{left}, {figures}\n")

    yield show
    if said > start:
        sys.stderr.write(f"{what}: finished in {time.monotonic() - start:.0f} s\n")


@contextmanager
def _bar(what: str, total: int | None) -> Iterator[Report]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=total, rate="")
        start, reached = time.monotonic(), 0.0

        def move(done: float) -> None:
            nonlocal reached
            reached = max(reached, done)  # a batch that is computed is not yet worked through
            progress.update(task, completed=reached, rate=_rate(reached / (time.monotonic() - start + 1e-9)))

        yield move


@contextmanager
def _lines(what: str, total: int | None) -> Iterator[Report]:
    start = said = time.monotonic()
    reached = 0.0

    def move(done: float) -> None:
        nonlocal said, reached
        reached, now = max(reached, done), time.monotonic()
        if now - said < LINE_SECONDS or not reached:
            return
        said = now
        rate = reached / (now - start)
        shown = f"{int(reached)} of {total}, {100 * reached / total:.0f} %" if total else f"{int(reached)}"
        left = f", {(total - reached) / rate:.0f} s left" if total and reached < total else ""
        sys.stderr.write(f"{what}: {shown} ({_rate(rate)}{left})\n")

    yield move
    spent = time.monotonic() - start
    if spent >= QUIET_SECONDS:
        sys.stderr.write(f"{what}: {int(reached)} in {spent:.1f} s ({_rate(reached / spent)})\n")


def _rate(rate: float) -> str:
    return f"{rate:.1f}/s" if rate >= 0.1 or not rate else f"{1 / rate:.0f} s each"
