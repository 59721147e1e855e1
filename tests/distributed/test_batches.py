"""Whole batches are shared out, and predicting a part gives these batches and no others."""

from itertools import groupby
from pathlib import Path

import numpy as np
import pytest

from segmeter.data.sample import Sample
from segmeter.data.verification.report import build_dataset
from segmeter.distributed.shards import Shard, own_batches, split_batches, take_batches
from segmeter.errors import ConfigError
from segmeter.inference.batches import same_shape_groups
from tests.data.crafted import folder, make_folder


def grouped(kinds: list[int], size: int) -> list[list[int]]:
    """Items that follow each other and are of one kind, at most `size` of them, as the predictor groups images."""
    found = []
    for _, run in groupby(range(len(kinds)), key=lambda index: kinds[index]):
        items = list(run)
        found += [items[start : start + size] for start in range(0, len(items), size)]
    return found


@pytest.mark.parametrize("seed", range(30))
def test_the_parts_of_all_processes_are_the_batches_of_one(seed: int) -> None:
    """Mutation seen to fail: batches that are not told apart by their number."""
    rng = np.random.default_rng(seed)
    kinds = rng.integers(0, 2, rng.integers(0, 25)).tolist()
    size, count = int(rng.integers(1, 5)), int(rng.integers(1, 8))
    assert [list(batch) for batch in split_batches(kinds, size)] == grouped(kinds, size)
    found = []
    for number in range(1, count + 1):
        mine, batches = own_batches(kinds, Shard(number, count), size)
        samples = [Sample(case_id=str(index), image=np.zeros((1 + kinds[index], 1, 1)), target=None) for index in mine]
        found += [[int(each.case_id) for each in group] for group in same_shape_groups(samples, size, batches)]
    assert sorted(found) == grouped(kinds, size)


def test_a_shard_takes_every_nth_batch_whole(tmp_path: Path) -> None:
    """No image is predicted beside others. Mutation seen to fail: every n-th case instead of batch."""
    dataset = build_dataset(folder(make_folder(tmp_path, tuple("abcdefg"))))
    taken = [take_batches(dataset, Shard(number, 3), batch_size=2) for number in (1, 2, 3)]
    assert ["".join(part.case_ids) for part, _ in taken] == ["abg", "cd", "ef"]
    assert [batches for _, batches in taken] == [[0, 0, 3], [1, 1], [2, 2]]
    with pytest.raises(ConfigError, match="at most 4 shards"):
        take_batches(dataset, Shard(1, 5), batch_size=2)
