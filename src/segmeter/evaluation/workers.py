"""One function over many cases, in threads or processes -> its results, in order and in bounded memory."""

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import TypeVar

from segmeter.errors import RunError

Item = TypeVar("Item")
Result = TypeVar("Result")

_AHEAD = 8  # cases per worker that wait or are done


def count_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_all(
    work: Callable[[Item], Result],
    items: Sequence[Item],
    *,
    processes: int,
    name: Callable[[Item], str],
    ahead: int | None = None,
) -> Iterator[Result]:
    """Map `work` over `items`, and give the results in the order of the items.

    Leaving early (an error, Ctrl-C) drops what waits and ends after the items that are in work.

    Parameters
    ----------
    work
        Picklable for processes, which are started afresh and import what they need.
    processes
        How many; 0 takes threads of this process, one per core.
    name
        What an item is called in messages.
    ahead
        Items that wait or are done at a time; None takes eight per worker.

    Raises
    ------
    RunError
        A process was killed, as the system does when memory runs out; the cases that it may have had are named.
    """
    if processes == 0:
        with ThreadPoolExecutor(count_cores(), thread_name_prefix="score") as threads:
            yield from _in_order(threads, work, items, ahead or count_cores() * _AHEAD, name)
        return
    context = multiprocessing.get_context("spawn")  # a fork of a process with threads may hang
    count = max(1, min(processes, len(items)))
    with ProcessPoolExecutor(count, mp_context=context, initializer=_start_worker) as pool:
        yield from _in_order(pool, work, items, ahead or count * _AHEAD, name)


def _in_order(
    pool: Executor, work: Callable[[Item], Result], items: Sequence[Item], ahead: int, name: Callable[[Item], str]
) -> Iterator[Result]:
    waiting: deque[tuple[Item, Future[Result]]] = deque()
    source = iter(items)
    try:
        while True:
            while len(waiting) < ahead and (item := next(source, None)) is not None:
                with held_back():  # a process that starts here leaves Ctrl-C to this one from its first moment
                    waiting.append((item, pool.submit(work, item)))
            if not waiting:
                return
            result = waiting[0][1].result()
            waiting.popleft()
            yield result
    except BrokenProcessPool as error:
        raise RunError(_killed([name(item) for item, _ in waiting])) from error
    finally:
        for _, future in waiting:
            future.cancel()


@contextmanager
def held_back() -> Iterator[None]:
    """Deliver the signals that a terminal sends after the block; processes started in it never get them."""
    sent = {signal.SIGINT, signal.SIGHUP, signal.SIGUSR1}  # not SIGTERM: it is how the pool ends a process
    before = signal.pthread_sigmask(signal.SIG_BLOCK, sent)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _killed(names: list[str]) -> str:
    cases = names[0] if len(names) == 1 else f"a case from {names[0]} to {names[-1]}"
    return (
        f"score: a worker process was killed at {cases}, as the system does when memory runs out. "
        "What was done before is kept: go on with resume=RUN and fewer workers."
    )


def _start_worker() -> None:
    """End with the parent."""
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
