"""A data set, or a shard of it -> its cases in the batches in which the whole run predicts them."""

from collections.abc import Mapping
from typing import Any

from segmeter.data.dataset import Dataset
from segmeter.data.sample import Sample
from segmeter.distributed.batches import BatchOf, own_batches, split_batches
from segmeter.distributed.shards import Shard, check_filled


def take_batches(dataset: Dataset, shard: Shard, *, batch_size: int) -> tuple[Dataset, list[BatchOf]]:
    """Take every n-th batch of the cases; with ``batch_size=1`` that is every n-th case.

    Whole batches: only so are the shards' results, to the byte, those of the whole run.

    Returns
    -------
    The cases of the shard, and the batch of each.

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


def note_shard(identity: Mapping[str, Any]) -> dict[str, Any]:
    """What the metrics of a shard say, so that nobody takes them for those of the whole run."""
    return {"shard": identity["shard"]["shard"]} if "shard" in identity else {}


def describe(sample: Sample) -> dict[str, Any]:
    """What a case's entry notes of its image: its kind, which decides on batches."""
    return {"image": [*sample.image.shape, str(sample.image.dtype)]}
