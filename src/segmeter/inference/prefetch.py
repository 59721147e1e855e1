"""Samples -> samples read ahead in threads -> groups of one shape."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Protocol, TypeVar, cast

from segmeter.data.sample import Sample

Item = TypeVar("Item")
Read = TypeVar("Read", covariant=True)

_THREADS = 4  # decoders release the interpreter, so that readers run side by side
_END = object()


class Indexed(Protocol[Read]):
    """What a data set is: things that can be read by number, in any order, from several threads."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Read: ...


def read_ahead(samples: Iterable[Item] | Indexed[Item], count: int) -> Iterator[Item]:
    """Yield what `samples` has, in order, while up to `count` further ones are being read in the background.

    A sequence (a data set) is read by several threads, anything else by one. What reading raises comes out in its turn.

    Parameters
    ----------
    samples
        A sequence, or anything to iterate over.
    count
        Samples held at a time, >= 1: this bounds the memory.
    """
    indexed = hasattr(samples, "__getitem__") and hasattr(samples, "__len__")
    tasks = _by_number(cast(Indexed[Item], samples)) if indexed else _one_by_one(cast(Iterable[Item], samples))
    with ThreadPoolExecutor(_THREADS if indexed else 1, thread_name_prefix="read") as pool:
        yield from cast(Iterator[Item], _in_order(pool, tasks, count))


def _by_number(samples: Indexed[Item]) -> Iterator[Callable[[], object]]:
    for index in range(len(samples)):
        yield partial(samples.__getitem__, index)


def _one_by_one(samples: Iterable[Item]) -> Iterator[Callable[[], object]]:
    source = iter(samples)
    while True:
        yield partial(next, source, _END)


def _in_order(pool: ThreadPoolExecutor, tasks: Iterator[Callable[[], object]], count: int) -> Iterator[object]:
    waiting: deque[Future[object]] = deque()
    try:
        while True:
            while len(waiting) < count and (task := next(tasks, None)) is not None:
                waiting.append(pool.submit(task))
            if not waiting or (item := waiting.popleft().result()) is _END:
                return
            yield item
    finally:
        for future in waiting:
            future.cancel()


def same_shape_groups(samples: Iterable[Sample], size: int) -> Iterator[Sequence[Sample]]:
    """Collect consecutive samples whose images have one shape and dtype, at most `size` of them.

    When reading the next sample fails, what was read before it comes first, and then the error.
    """
    group: list[Sample] = []
    source = iter(samples)
    while True:
        fault: Exception | None = None
        sample: Sample | None = None
        try:
            sample = next(source, None)
        except Exception as error:
            fault = error
        if group and (sample is None or len(group) == size or not _alike(group[0], sample)):
            yield group
            group = []
        if fault is not None:
            raise fault
        if sample is None:
            return
        group.append(sample)


def one_behind(items: Iterable[Item]) -> Iterator[Item]:
    """Yield each item when the next one has been made; when making that fails, the item comes first, then the error."""
    source, held = iter(items), _END
    while True:
        fault: Exception | None = None
        made: object = _END
        try:
            made = next(source, _END)
        except Exception as error:
            fault = error
        if held is not _END:
            yield cast(Item, held)
        if fault is not None:
            raise fault
        if made is _END:
            return
        held = made


def _alike(first: Sample, second: Sample) -> bool:
    return first.image.shape == second.image.shape and first.image.dtype == second.image.dtype
