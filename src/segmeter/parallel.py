"""Maps a function over many items in threads or processes, and measures the memory that there is for them.

Results come in the order of the items, a few items are worked on ahead, and leaving the loop ends the work.
"""

import errno
import logging
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager, suppress
from functools import cache
from itertools import islice
from typing import TypeVar

import psutil

from segmeter.errors import RunError
from segmeter.threads import control_groups, count_cores

_LOG = logging.getLogger(__name__)

Item = TypeVar("Item")
Result = TypeVar("Result")

LONG_SECONDS = 120  # Warn after waiting this long for a result.
_PROMPT_SECONDS = 0.1  # A result that is ready waits this long, and for one item, while more items are taken.
_AHEAD = 8  # At most this many items per worker wait or are done, so that a million items don't fill the memory.
_MOST_READERS = 16


def free_bytes() -> int:
    """Return the bytes that this process may still take, as the machine, its control groups and its own limit allow.

    Cached pages of files that were not read lately count as free, because the system reclaims them when needed.
    """
    process = psutil.Process()
    free = [psutil.virtual_memory().available]
    for folder in control_groups("memory"):  # containers and schedulers set these (version 2)
        with suppress(OSError, ValueError):  # "max" is no number
            limit, used = (int((folder / name).read_text()) for name in ("memory.max", "memory.current"))
            facts = (line.split() for line in (folder / "memory.stat").read_text().splitlines())
            free.append(max(0, limit - used + int(dict(facts).get("inactive_file", 0))))
    if hasattr(psutil, "RLIMIT_AS"):  # only on Linux
        limit = process.rlimit(psutil.RLIMIT_AS)[0]
        free += [] if limit == psutil.RLIM_INFINITY else [limit - process.memory_info().vms]
    return int(min(free))


def peak_bytes() -> int:
    """Return the most memory that this process has used so far."""
    try:
        import resource
    except ImportError:  # on Windows
        memory = psutil.Process().memory_info()
        return int(getattr(memory, "peak_wset", memory.rss))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # KiB, but bytes on macOS
    return peak if sys.platform == "darwin" else peak * 1024


@cache
def allow_open_files(count: int) -> None:
    """Raise the limit of open files, which is often 1024, to `count`, or as far as the system allows."""
    try:
        import resource
    except ImportError:  # on Windows, which has no such limit
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = count if hard < 0 else min(hard, count)
    if 0 <= soft < allowed:  # a negative limit is infinite
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))


def in_forked_child(function: Callable[[], object]) -> None:
    """Call a function in each process that is forked from this one, if the system can fork."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=function)


def run_parts(parts: Iterable[Callable[[], None]], threads: int) -> None:
    """Run parts of one computation, which release the GIL, in this thread and in up to `threads` - 1 others.

    Each thread takes another part when it has finished one, because some may share a core with a spinning thread of
    torch. numba's own thread pools won't do: they either forbid calls from two threads at once, or kill a process that
    forks afterwards, as data loaders do.
    """
    waiting = iter(list(parts))

    def work() -> None:
        for part in waiting:
            part()

    helpers = [_helpers().submit(work) for _ in range(threads - 1)]
    work()
    for helper in helpers:
        if not helper.cancel():
            helper.result()


@cache
def _helpers() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=count_cores(), thread_name_prefix="segmeter-parts")


# A fork copies the pool without its threads, so a child would wait for them forever.
in_forked_child(_helpers.cache_clear)


def map_in_threads(
    work: Callable[[Item], Result],
    items: Iterable[Item],
    *,
    threads: int | None = None,
    ahead: int | None = None,
    name: str = "map",
    start: Callable[[], None] | None = None,
) -> Generator[Result, None, None]:
    """Map `work` over `items` in threads, and yield the results one by one in the order of the items.

    Leaving early (an error, Ctrl-C) drops waiting items and returns when the started ones are done. An item's exception
    is raised in its turn, and an exception of `items` itself after the results of the items before it.

    Parameters
    ----------
    work
        Called from several threads at once.
    items
        Taken one by one in the caller's thread, at most `ahead` before their results are asked for.
    threads
        Their number; None takes two per core, at most 16, which suits reading and decoding files.
    ahead
        At most this many items wait, are started, or are done and not yet yielded, >= 1; None takes eight per thread.
    name
        Starts the names of the threads.
    start
        Called once in each thread, before its first item.
    """
    count = threads or min(_MOST_READERS, 2 * count_cores())
    with ThreadPoolExecutor(count, thread_name_prefix=name, initializer=start) as pool:
        yield from _in_order(lambda item: pool.submit(work, item), items, ahead or count * _AHEAD)


def map_in_processes(
    work: Callable[[Item], Result], items: Sequence[Item], *, processes: int, describe: Callable[[Item], str]
) -> Generator[Result, None, None]:
    """Do as `map_in_threads` does, in spawned processes, with eight items per process ahead.

    Parameters
    ----------
    work, items
        They and the results must be picklable.
    processes
        The largest number of processes, >= 1.
    describe
        Names an item in messages.

    Raises
    ------
    RunError
        A process was killed, as the system does when memory runs out. The message names the items it may have had.
    """
    context = multiprocessing.get_context("spawn")  # a fork of a process with threads may hang
    count = max(1, min(processes, len(items)))
    ahead = count * _AHEAD
    try:
        pool = ProcessPoolExecutor(count, mp_context=context, initializer=_begin_worker)
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):  # it could not open its pipes
            raise
        # It could not make its semaphores, whose error names no file.
        raise OSError(error.errno, error.strerror, "/dev/shm") from error
    done = 0
    with pool:

        def submit(item: Item) -> Future[Result]:
            with _terminal_signals_blocked():  # Ctrl-C is for the parent, never for a worker
                return pool.submit(work, item)

        try:
            with closing(_in_order(submit, items, ahead)) as results:
                for result in results:
                    yield result
                    done += 1
        except BrokenProcessPool as error:
            names = [describe(item) for item in items[done : done + ahead]]
            where = names[0] if len(names) == 1 else f"one of the items from {names[0]} to {names[-1]}"
            reason = f"a worker process was killed at {where}, as the system does when memory runs out"
            remedy = "Finished work is kept: continue with resume=RUN and fewer workers."
            raise RunError(f"workers: {reason}. {remedy}") from error


def _in_order(
    submit: Callable[[Item], Future[Result]], items: Iterable[Item], ahead: int
) -> Generator[Result, None, None]:
    source = iter(items)
    waiting: deque[Future[Result]] = deque()
    fault: Exception | None = None
    number = 1
    try:
        while True:
            try:
                began = time.monotonic()
                for item in islice(source, 0 if fault else ahead - len(waiting)):
                    waiting.append(submit(item))
                    # Items of a model take seconds. Results that are ready are handed on, so that a kill loses few.
                    if waiting[0].done() and time.monotonic() - began > _PROMPT_SECONDS:
                        break
            except Exception as error:  # `items` failed: raised after the results of the items before
                fault = error
            if not waiting and fault is not None:
                raise fault
            if not waiting:
                return
            yield _awaited(waiting.popleft(), number)
            number += 1
    finally:
        for future in waiting:
            future.cancel()


def _awaited(future: Future[Result], number: int) -> Result:
    """Wait for a result. A warning names the item every two minutes."""
    waited = 0
    while True:
        try:
            return future.result(timeout=LONG_SECONDS)
        except TimeoutError:
            if future.done():  # it ended just now, or the work itself raised a TimeoutError
                return future.result()
        waited += LONG_SECONDS
        _LOG.warning("still waiting for item %d after %d s; Ctrl-C twice ends the run at once.", number, waited)


@contextmanager
def _terminal_signals_blocked() -> Iterator[None]:
    """Deliver terminal signals after the block; processes that start in it never get them."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    blocked = {signal.SIGINT, signal.SIGHUP, signal.SIGUSR1}  # not SIGTERM, with which the pool ends a process
    previous_mask = signal.pthread_sigmask(signal.SIG_BLOCK, blocked)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous_mask)


def _begin_worker() -> None:
    if not hasattr(signal, "pthread_sigmask"):  # Windows sends Ctrl-C to every process of a terminal
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent()


def end_with_parent() -> None:
    """End this process when its parent ends, however that happens."""

    def wait() -> None:
        parent = multiprocessing.parent_process()
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
