"""Progress on anything that takes over two seconds: a bar with rate and ETA on a terminal, plain lines elsewhere."""

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from typing import TypeVar

Item = TypeVar("Item")

QUIET_SECONDS = 2.0  # shorter work shows nothing
LINE_SECONDS = 15.0  # between two plain lines


def track(items: Iterable[Item], what: str, total: int | None = None) -> Iterator[Item]:
    """Yield `items` while showing how far they are.

    Parameters
    ----------
    items
        Anything to go through.
    what
        What is being done, for example "evaluating".
    total
        How many items there are; taken from ``len(items)`` where it has one.
    """
    if total is None and isinstance(items, Sized):
        total = len(items)
    return _bar(items, what, total) if sys.stderr.isatty() else _lines(items, what, total)


@contextmanager
def gauge(what: str) -> Iterator[Callable[[float, str], None]]:
    """Show how far a work is whose size is no number of items, with figures beside it.

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


def _bar(items: Iterable[Item], what: str, total: int | None) -> Iterator[Item]:
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
        start = time.monotonic()
        for done, item in enumerate(items, 1):
            yield item
            progress.update(task, completed=done, rate=f"{done / (time.monotonic() - start + 1e-9):.1f}/s")


def _lines(items: Iterable[Item], what: str, total: int | None) -> Iterator[Item]:
    start = said = time.monotonic()
    done = 0
    for done, item in enumerate(items, 1):
        yield item
        now = time.monotonic()
        if now - said >= LINE_SECONDS:
            said = now
            rate = done / (now - start)
            left = f", {(total - done) / rate:.0f} s left" if total else ""
            sys.stderr.write(f"{what}: {done}{f' of {total}' if total else ''} ({rate:.1f}/s{left})\n")
    spent = time.monotonic() - start
    if spent >= QUIET_SECONDS:
        sys.stderr.write(f"{what}: {done} in {spent:.1f} s ({done / spent:.1f}/s)\n")
