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
    group, last, fault = list[Sample](), None, None
    try:
        for index, sample in enumerate(samples):
            kind = (sample.image.shape, sample.image.dtype, 0 if batches is None else batches[index])
            if group and (len(group) == size or kind != last):
                yield group
                group = []
            group.append(sample)
            last = kind
    except Exception as error:
        fault = error
    if group:
        yield group
    if fault is not None:
        raise fault


def one_behind(items: Iterable[Item]) -> Iterator[Item]:
    """Yield each item when the next one has been made; if that fails, the item comes first, then the error."""
    held, fault = list[Item](), None
    try:
        for item in items:
            yield from held
            held = [item]
    except Exception as error:
        fault = error
    yield from held
    if fault is not None:
        raise fault
