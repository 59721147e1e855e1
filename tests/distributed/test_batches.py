"""Whole batches are shared out, and predicting a part in passes gives these batches and no others."""

from itertools import groupby

import numpy as np
import pytest

from segmeter.distributed.batches import own_batches, split_batches, split_passes
from segmeter.distributed.shards import Shard


def grouped(kinds: list[int], size: int) -> list[list[int]]:
    """Items that follow each other and are of one kind, at most `size` of them, as the predictor groups images."""
    found = []
    for _, run in groupby(range(len(kinds)), key=lambda index: kinds[index]):
        items = list(run)
        found += [items[start : start + size] for start in range(0, len(items), size)]
    return found


@pytest.mark.parametrize("seed", range(30))
def test_the_parts_of_all_processes_are_the_batches_of_one(seed: int) -> None:
    """Mutation seen to fail: passes that are not split."""
    rng = np.random.default_rng(seed)
    kinds, size, count = (
        rng.integers(0, 2, rng.integers(0, 25)).tolist(),
        int(rng.integers(1, 5)),
        int(rng.integers(1, 8)),
    )
    expected = grouped(kinds, size)
    assert [list(batch) for batch in split_batches(kinds, size)] == expected
    found = []
    for number in range(1, count + 1):
        mine, batches = own_batches(kinds, Shard(number, count), size)
        for part in split_passes(batches, range(len(mine)), size):
            taken = mine[part.start : part.stop]
            found += [[taken[place] for place in batch] for batch in grouped([kinds[i] for i in taken], size)]
    assert sorted(found) == expected
