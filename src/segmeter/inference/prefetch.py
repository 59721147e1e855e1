"""Reads samples ahead in threads, and collects them into groups of one shape."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from typing import Any, TypeVar, cast

from numpy.typing import NDArray

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

    When reading the next sample fails, the samples before it come first, and then the error.
    """
    group: list[Sample] = []
    for sample in _with_end(samples):
        image = getattr(sample, "image", None)
        if group and (image is None or len(group) == size or not _alike(group[0].image, image)):
            yield group
            group = []
        if isinstance(sample, Exception):
            raise sample
        if sample is not _END:
            group.append(cast(Sample, sample))


def one_behind(items: Iterable[Item]) -> Iterator[Item]:
    """Yield each item when the next one has been made; when making that fails, the item comes first, then the error."""
    held: object = _END
    for item in _with_end(items):
        if held is not _END:
            yield cast(Item, held)
        if isinstance(item, Exception):
            raise item
        held = item


def _with_end(items: Iterable[Item]) -> Iterator[object]:
    """Yield the items, and then `_END`, or the exception that making the next one raised."""
    try:
        yield from items
    except Exception as error:
        yield error
    else:
        yield _END


def _alike(first: NDArray[Any], second: NDArray[Any]) -> bool:
    return first.shape == second.shape and first.dtype == second.dtype
