"""Samples -> samples read ahead in threads -> groups of one shape."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from typing import TypeVar, cast

from segmeter.data.dataset import Indexed, read_case
from segmeter.data.sample import Sample
from segmeter.parallel import map_in_threads
from segmeter.progress import Stages

Item = TypeVar("Item")

_THREADS = 4  # decoders release the interpreter, so that readers run side by side
_END = object()


def read_ahead(samples: Iterable[Item] | Indexed[Item], count: int, *, stages: Stages | None = None) -> Iterator[Item]:
    """Yield the samples in order, while up to `count` further ones are being read in the background.

    A sequence (a data set) is read by several threads, anything else by one. What reading raises comes in its turn.

    Parameters
    ----------
    samples
        A sequence, or anything to iterate over.
    count
        Samples held at a time, >= 1: this bounds the memory.
    stages
        Where the time that reading takes is added up; None does not count it.
    """
    clock = stages or Stages()
    if hasattr(samples, "__getitem__") and hasattr(samples, "__len__"):
        indexed = cast(Indexed[Item], samples)

        def read(index: int) -> Item:
            with clock.timed("read"):
                return read_case(indexed, index)

        yield from map_in_threads(read, range(len(indexed)), threads=_THREADS, ahead=count, name="read")
        return
    source = iter(samples)

    def take(end: object) -> object:
        with clock.timed("read"):
            return next(source, end)

    for item in map_in_threads(take, repeat(_END), threads=1, ahead=count, name="read"):
        if item is _END:
            return
        yield cast(Item, item)


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
