"""Reads samples ahead in threads, and groups them into batches of one shape."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from segmeter.data.dataset import Indexed, read_case
from segmeter.data.sample import Sample
from segmeter.parallel import map_in_threads
from segmeter.progress import Stages

Item = TypeVar("Item")

_THREADS = 4  # decoders release the interpreter, so that readers run side by side


def read_ahead(samples: Indexed[Item], count: int, *, stages: Stages) -> Iterator[Item]:
    """Yield the samples in order, while up to `count` further ones are read in threads.

    An error of reading is raised in its sample's turn.

    Parameters
    ----------
    count
        Samples held at a time, >= 1: this bounds the memory.
    stages
        Where the time of reading is added up.
    """

    def read(index: int) -> Item:
        with stages.timed("read"):
            return read_case(samples, index)

    yield from map_in_threads(read, range(len(samples)), threads=_THREADS, ahead=count, name="read")


def same_shape_groups(
    samples: Iterable[Sample], size: int, batches: Sequence[int] | None = None
) -> Iterator[Sequence[Sample]]:
    """Group consecutive samples whose images have one shape and dtype, at most `size` of them.

    If `batches` has a number for each sample, those of a group share it too. If reading the next sample fails, the
    samples before it come first, and then the error.
    """
    group, last = list[Sample](), None
    for index, sample in enumerate(_or_error(samples)):
        number = 0 if batches is None or isinstance(sample, Exception) else batches[index]
        kind = None if isinstance(sample, Exception) else (sample.image.shape, sample.image.dtype, number)
        if group and (len(group) == size or kind != last):
            yield group
            group = []
        if isinstance(sample, Exception):
            raise sample
        group.append(sample)
        last = kind
    if group:
        yield group


def one_behind(items: Iterable[Item]) -> Iterator[Item]:
    """Yield each item when the next one has been made; if that fails, the item comes first, then the error."""
    held: list[Item] = []
    for item in _or_error(items):
        yield from held
        if isinstance(item, Exception):
            raise item
        held = [item]
    yield from held


def _or_error(items: Iterable[Item]) -> Iterator[Item | Exception]:
    """Yield the items, and then the exception that making the next one raised, if any."""
    try:
        yield from items
    except Exception as error:
        yield error
