"""Overlaps of objects by hand and by loops; matches are one to one, with the largest sum of IoU below 0.5."""

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from segmeter.metrics.objects import matching
from segmeter.metrics.objects.matching import aggregated_jaccard, choose_pairs, find_overlaps, renumber

TARGET = np.array([[1, 1, 1, 0, 5, 5, 0]])
INSTANCES = np.array([[7, 7, 9, 9, 0, 3, 3]])


def test_pairs_and_sizes_by_hand():
    found = find_overlaps(TARGET, INSTANCES)
    assert (found.target_ids.tolist(), found.target_sizes.tolist()) == ([1, 5], [3, 2])
    assert (found.instance_ids.tolist(), found.instance_sizes.tolist()) == ([3, 7, 9], [2, 2, 2])
    pairs = zip(found.target_ids[found.first], found.instance_ids[found.second], found.common, strict=True)
    assert list(pairs) == [(1, 7, 2), (1, 9, 1), (5, 3, 1)]
    assert found.iou().tolist() == [2 / 3, 1 / 4, 1 / 3]
    assert found.dice().tolist() == [4 / 5, 2 / 5, 2 / 4]


def test_void_is_in_no_object_and_excuses_what_lies_mostly_in_it():
    void = np.array([[0, 0, 0, 1, 0, 0, 1]], bool)
    found = find_overlaps(TARGET, INSTANCES, void)
    assert found.instance_sizes.tolist() == [1, 2, 1]
    assert not found.mostly_void.any()  # half is not more than half
    wider = find_overlaps(TARGET, INSTANCES, void | (np.arange(7) == 2))
    assert wider.instance_ids.tolist() == [3, 7]  # nothing is left of 9
    excused = find_overlaps(TARGET[:, 3:], np.array([[9, 9, 9, 0]]), np.array([[1, 1, 0, 0]], bool))
    assert excused.mostly_void.tolist() == [True]
    assert excused.spurious(np.empty(0, np.int64)).tolist() == []


@pytest.mark.parametrize("shift", [0, 2**40], ids=["small ids", "large ids"])
@pytest.mark.parametrize("threshold", [0.0, 0.2, 0.5])
def test_matches_are_the_best_assignment_of_a_full_table(threshold, shift):
    rng = np.random.default_rng(3)
    target = rng.integers(0, 9, (12, 12))
    instances = np.where(rng.random((12, 12)) < 0.5, target, rng.integers(0, 7, (12, 12)))
    found = find_overlaps(target, np.where(instances, instances + shift, 0))
    table = np.zeros((target.max(), instances.max()))
    for i in range(table.shape[0]):
        for j in range(table.shape[1]):
            one, other = target == i + 1, instances == j + 1
            table[i, j] = (one & other).sum() / max((one | other).sum(), 1)
    table[table <= threshold] = 0
    rows, columns = linear_sum_assignment(table, maximize=True)
    chosen = choose_pairs(found, threshold)
    assert len(set(found.first[chosen])) == len(set(found.second[chosen])) == len(chosen)
    assert found.iou()[chosen].sum() == pytest.approx(table[rows, columns].sum(), rel=1e-12)
    assert (found.iou()[chosen] > threshold).all()


def test_objects_are_numbered_in_the_order_of_the_ids():
    given = np.array([[0, 4, 2**40, 4, 9]])
    assert renumber(given, np.array([2**40, 4])).tolist() == [[0, 2, 1, 2, 0]]


@pytest.mark.parametrize("shape", [(23, 17), (9, 5, 7), (1, 40), (0, 5)])
@pytest.mark.parametrize("far", [1, 2**40], ids=["small ids", "sparse ids"])
@pytest.mark.parametrize("hidden", [False, True])
def test_counting_by_bands_of_rows_is_counting_at_once(monkeypatch, shape, far, hidden):
    """Mutation seen to fail: the ids of a band taken for those of the map."""
    rng = np.random.default_rng(5)
    target, instances = (np.kron(rng.integers(0, 9, shape), np.ones(2, np.int64)) * far for _ in range(2))
    void = rng.random(target.shape) < 0.6 if hidden else None
    whole = find_overlaps(target, instances, void)
    for band in (1, 40, 100):
        monkeypatch.setattr(matching, "_BAND", band)
        found = find_overlaps(target, instances, void)
        for name, value in vars(whole).items():
            np.testing.assert_array_equal(getattr(found, name), value, err_msg=name)
            assert getattr(found, name).dtype == value.dtype


def jaccard(target, instances):
    return aggregated_jaccard(find_overlaps(np.array(target), np.array(instances)))


def test_the_aggregated_jaccard_index_by_hand():
    """`test_void.py` compares it with Algorithm 1 of Kumar et al. in plain loops."""
    # each target's best is 9, 2 of 4 pixels: 4 / 8, and 9 is not added once more
    assert jaccard([[1, 1, 2, 2]], [[9, 9, 9, 9]]) == (4, 8)
    some, nothing = [[1, 1, 2]], [[0, 0, 0]]
    assert (jaccard(some, nothing), jaccard(nothing, some), jaccard(nothing, nothing)) == ((0, 3), (0, 3), (0, 0))


def test_of_predictions_with_one_iou_that_with_most_pixels_in_common_is_taken():
    target = np.repeat([1, 0], 8)[None]
    one, other = np.repeat([1, 0], [1, 15])[None], np.repeat([0, 1], [6, 10])[None]  # 1 of 8, and 2 of 16
    for numbers in ((5, 9), (9, 5)):
        instances = numbers[0] * one + numbers[1] * other
        assert jaccard(target, instances) == (2, 16 + 1)
