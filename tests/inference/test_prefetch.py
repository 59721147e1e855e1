import time

import numpy as np
import pytest

from segmeter.data.sample import Sample
from segmeter.inference.batches import read_ahead, same_shape_groups
from segmeter.progress import Stages


def test_samples_come_in_order_and_no_more_than_the_count_is_read_ahead():
    asked = []

    class Numbers(list):
        def __getitem__(self, index):
            asked.append(index)
            return super().__getitem__(index)

    reader = read_ahead(Numbers(range(100)), 3, stages=Stages())
    assert next(reader) == 0
    time.sleep(0.05)
    assert max(asked) <= 3  # the one given out, and three waiting at most
    assert list(reader) == list(range(1, 100))


def sample(name, shape=(4, 5, 3), dtype=np.uint8):
    return Sample(case_id=name, image=np.zeros(shape, dtype), target=None)


def names(groups):
    return [[each.case_id for each in group] for group in groups]


def test_groups_hold_consecutive_samples_of_one_shape_and_dtype():
    samples = [
        sample("a"), sample("b"), sample("c"), sample("d", (4, 6, 3)), sample("e"), sample("f", dtype=np.uint16)
    ]  # fmt: skip
    assert names(same_shape_groups(samples, 2)) == [["a", "b"], ["c"], ["d"], ["e"], ["f"]]
    assert names(same_shape_groups(samples[:3], 8)) == [["a", "b", "c"]]
    assert names(same_shape_groups([], 2)) == []


def test_what_was_read_before_an_error_is_not_lost():
    def source():
        yield sample("a")
        yield sample("b")
        raise ValueError("file c")

    groups = same_shape_groups(source(), 8)
    assert names([next(groups)]) == [["a", "b"]]
    with pytest.raises(ValueError, match="file c"):
        next(groups)
