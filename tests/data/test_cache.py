import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from segmeter.data.build import build_dataset
from segmeter.data.cache import CachedDataset
from tests.data.crafted import folder, make_folder

CASE_BYTES = 12 * 10 * 4  # three channels and the target, one byte each


@pytest.fixture
def dataset(tmp_path):
    return build_dataset(folder(make_folder(tmp_path)))


def test_cache_gives_what_the_dataset_gives_and_the_same_arrays_again(dataset):
    cached = CachedDataset(dataset, 10**6)
    assert len(cached) == 3
    for index in range(3):
        sample = cached[index]
        np.testing.assert_array_equal(sample.image, dataset[index].image)
        np.testing.assert_array_equal(sample.target, dataset[index].target)
        assert cached[index] is sample
    assert cached.kept_bytes == 3 * CASE_BYTES


@pytest.mark.parametrize("limit", [0, CASE_BYTES - 1, CASE_BYTES, 2 * CASE_BYTES, 2 * CASE_BYTES + 1])
def test_cache_never_keeps_more_than_its_limit(dataset, limit):
    cached = CachedDataset(dataset, limit)
    for _ in range(2):
        for index in range(3):
            np.testing.assert_array_equal(cached[index].image, dataset[index].image)
    assert cached.kept_bytes == limit // CASE_BYTES * CASE_BYTES


def test_cached_arrays_can_not_be_written_to(dataset):
    sample = CachedDataset(dataset, 0)[0]
    with pytest.raises(ValueError, match="read-only"):
        sample.image[0, 0, 0] = 1


def test_cache_counts_a_case_once_when_two_threads_read_it_at_once(dataset):
    both_reading = threading.Barrier(2, timeout=30)

    class Slow:
        def __getitem__(self, index):
            both_reading.wait()
            return dataset[index]

    cached = CachedDataset(Slow(), 10**6)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(cached.__getitem__, [0, 0]))
    assert cached.kept_bytes == CASE_BYTES


def test_cache_starts_empty_in_another_process(dataset):
    cached = CachedDataset(dataset, 10**6)
    cached[0]
    copy = pickle.loads(pickle.dumps(cached))
    assert copy.kept_bytes == 0
    np.testing.assert_array_equal(copy[1].image, dataset[1].image)
