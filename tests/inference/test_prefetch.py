import threading
import time

import numpy as np
import pytest

from segmeter.data.sample import Sample
from segmeter.inference.prefetch import read_ahead as read_timed
from segmeter.inference.prefetch import same_shape_groups
from segmeter.progress import Stages


def read_ahead(samples, count):
    return read_timed(samples, count, stages=Stages())


class Numbered:
    """A data set of numbers that remembers what is being read."""

    def __init__(self, count, *, fail_at=None):
        self.count = count
        self.fail_at = fail_at
        self.asked = []

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        self.asked.append(index)
        if index == self.fail_at:
            raise ValueError(f"file {index}")
        time.sleep(0.001 * (3 - index % 4))  # later ones may be ready first
        return index


@pytest.mark.parametrize("make", [Numbered, range])
@pytest.mark.parametrize("count", [1, 3, 50])
def test_samples_come_in_their_order(make, count):
    assert list(read_ahead(make(20), count)) == list(range(20))


def test_nothing_comes_from_nothing():
    assert list(read_ahead([], 4)) == []


def test_no_more_than_the_count_is_read_ahead():
    source = Numbered(100)
    reader = read_ahead(source, 3)
    next(reader)
    time.sleep(0.05)
    assert max(source.asked) <= 3  # the one given out, and three waiting at most


def test_reading_goes_on_while_the_consumer_works():
    source = Numbered(10)
    reader = read_ahead(source, 4)
    next(reader)
    time.sleep(0.05)
    assert len(source.asked) > 1


def test_an_error_comes_out_in_its_turn():
    reader = read_ahead(Numbered(10, fail_at=5), 4)
    assert [next(reader) for _ in range(5)] == [0, 1, 2, 3, 4]
    with pytest.raises(ValueError, match="file 5"):
        next(reader)


def test_stopping_early_leaves_no_thread_behind():
    before = threading.active_count()
    reader = read_ahead(Numbered(1000), 8)
    next(reader)
    reader.close()
    assert threading.active_count() == before


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
