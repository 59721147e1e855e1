"""Which cases a shard of eval or predict takes: whole batches, so that no image is predicted beside others."""

from pathlib import Path

import pytest

from segmeter.data.verification.report import build_dataset
from segmeter.distributed.batches import take_batches
from segmeter.distributed.shards import Shard
from segmeter.errors import ConfigError
from tests.data.crafted import folder, make_folder


def test_a_shard_takes_every_nth_batch_whole(tmp_path: Path) -> None:
    """Mutation seen to fail: every n-th case instead of batch."""
    dataset = build_dataset(folder(make_folder(tmp_path, tuple("abcdefg"))))
    taken = [take_batches(dataset, Shard(number, 3), batch_size=2) for number in (1, 2, 3)]
    assert ["".join(part.case_ids) for part, _ in taken] == ["abg", "cd", "ef"]
    assert [[batch.number for batch in batches] for _, batches in taken] == [[0, 0, 3], [1, 1], [2, 2]]
    with pytest.raises(ConfigError, match="at most 4 shards"):
        take_batches(dataset, Shard(1, 5), batch_size=2)
