"""Splits cases into the batches of a prediction, and divides whole batches among shards and processes."""

from collections.abc import Iterator, Sequence
from typing import Any

from segmeter.data.dataset import Dataset, Indexed, read_case
from segmeter.data.sample import Sample
from segmeter.distributed.shards import Shard, check_filled


class Part:
    """Some cases of a data set."""

    def __init__(self, dataset: Indexed[Sample], indices: Sequence[int]) -> None:
        self._dataset = dataset
        self._indices = indices

    def __len__(self) -> int:
        return len(self._indices)

    def __getitem__(self, index: int) -> Sample:
        return read_case(self._dataset, self._indices[index])


def split_batches(kinds: Sequence[Any], size: int) -> Iterator[range]:
    """Yield the batches of images of these kinds: one kind each, and at most `size` images.

    Examples
    --------
    >>> list(split_batches("aaab", 2))
    [range(0, 2), range(2, 3), range(3, 4)]
    """
    start = 0
    for index, kind in enumerate(kinds):
        if kind != kinds[start] or index - start == size:
            yield range(start, index)
            start = index
    if len(kinds):
        yield range(start, len(kinds))


def own_batches(kinds: Sequence[Any], shard: Shard, size: int) -> tuple[list[int], list[int]]:
    """Return the cases of every n-th batch, and the number of each one's batch.

    Batches stay whole, as a network's outputs may differ in their last bits if an image is predicted among others.

    Examples
    --------
    >>> own_batches("aaab", Shard(1, 2), 2), own_batches("aaab", Shard(2, 2), 2)
    (([0, 1, 3], [0, 0, 2]), ([2], [1]))
    """
    batches = shard.take(list(enumerate(split_batches(kinds, size))))
    taken = [(index, number) for number, batch in batches for index in batch]
    return [index for index, _ in taken], [number for _, number in taken]


def take_batches(dataset: Dataset, shard: Shard, *, batch_size: int) -> tuple[Dataset, list[int]]:
    """Take every n-th batch of the cases; with ``batch_size=1`` that is every n-th case.

    Batches stay whole, so that the shards' results are those of the whole run, to the byte.

    Returns
    -------
    The cases of the shard, and the number of each one's batch.

    Raises
    ------
    ConfigError
        There are more shards than batches.
    """
    kinds = dataset.kinds()
    what = "cases" if batch_size == 1 else f"batches of up to {batch_size} images of one size"
    count = sum(1 for _ in split_batches(kinds, batch_size))
    check_filled(shard, count, what, "Take fewer shards, or a smaller inference.batch_size.")
    indices, batches = own_batches(kinds, shard, batch_size)
    return dataset.subset(indices), batches
