import numpy as np
import pytest

from segmeter.training.data.cases import Budget, CachedDataset
from tests.training.tiny import TinyCases

CASE_BYTES = 16 * 16 * 3 * 4 + 16 * 16


def test_what_fits_is_read_once_and_the_rest_each_time():
    cases = TinyCases(count=4)
    cached = CachedDataset(cases, Budget(2 * CASE_BYTES + CASE_BYTES // 2))
    for _ in range(3):
        for index in range(4):
            assert cached[index].case_id == f"case{index:02d}"
    assert sorted(cases.read) == [0, 1, 2, 2, 2, 3, 3, 3]


def test_caches_share_a_budget():
    budget = Budget(3 * CASE_BYTES)
    train, val = CachedDataset(TinyCases(count=2), budget), CachedDataset(TinyCases(count=2), budget)
    for cached in (train, val):
        _ = cached[0], cached[1]
    assert budget.left == 0
    _ = train[0], train[1], val[0], val[1]
    assert len(train.cases.read) == 2
    assert len(val.cases.read) == 3


def test_kept_arrays_are_the_same_and_can_not_be_changed():
    cached = CachedDataset(TinyCases(), Budget(10**6))
    np.testing.assert_array_equal(cached[1].image, TinyCases()[1].image)
    assert cached[1].image is cached[1].image
    with pytest.raises(ValueError, match="read-only"):
        cached[1].target[0, 0] = 1


def test_nothing_is_kept_without_a_budget():
    cases = TinyCases()
    cached = CachedDataset(cases, Budget(0))
    _ = cached[0], cached[0]
    assert cases.read == [0, 0]
    assert (len(cached), cached.case_ids, cached.fingerprint()) == (10, cases.case_ids, cases.fingerprint())
