import numpy as np
import pytest

from segmeter.data.sample import Sample
from segmeter.distributed.batches import Part, own_batches, split_batches, split_passes
from segmeter.distributed.shards import Shard


@pytest.mark.parametrize("count", [1, 2, 3, 7])
@pytest.mark.parametrize("size", [1, 2, 4])
def test_shards_hold_every_case_once_in_the_batches_of_the_whole_run(count, size):
    kinds = ["large" if index % 5 == 3 else "small" for index in range(23)]
    whole = [tuple(batch) for batch in split_batches(kinds, size)]
    found = []
    for number in range(1, count + 1):
        indices, batches = own_batches(kinds, Shard(number, count), size)
        for part in split_passes(batches, range(len(indices)), size):
            mine = [indices[place] for place in part]
            found += [tuple(mine[place] for place in batch) for batch in split_batches([kinds[i] for i in mine], size)]
    assert sorted(found) == sorted(whole)


def test_a_part_reads_its_own_cases():
    cases = [Sample(case_id=str(number), image=np.zeros((1, 1, 1)), target=None) for number in range(5)]
    part = Part(cases, [4, 1])
    assert [part[0].case_id, part[1].case_id, len(part)] == ["4", "1", 2]
