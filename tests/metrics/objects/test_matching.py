"""Overlaps, matches and events of objects by hand and by loops; how a prediction cuts them, by scikit-image."""

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment
from skimage.metrics import adapted_rand_error, variation_of_information

from segmeter.metrics.objects import matching
from segmeter.metrics.objects.matching import (
    INSTANCE_EVENTS,
    TARGET_EVENTS,
    aggregated_jaccard,
    choose_pairs,
    find_events,
    find_overlaps,
    partition_scores,
)

TARGET = np.array([[1, 1, 1, 0, 5, 5, 0]])
INSTANCES = np.array([[7, 7, 9, 9, 0, 3, 3]])


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


def jaccard(target, instances):
    return aggregated_jaccard(find_overlaps(np.array(target), np.array(instances)))


def test_of_predictions_with_one_iou_that_with_most_pixels_in_common_is_taken():
    target = np.repeat([1, 0], 8)[None]
    one, other = np.repeat([1, 0], [1, 15])[None], np.repeat([0, 1], [6, 10])[None]  # 1 of 8, and 2 of 16
    for numbers in ((5, 9), (9, 5)):
        instances = numbers[0] * one + numbers[1] * other
        assert jaccard(target, instances) == (2, 16 + 1)


def events(target, instances, void=None, threshold=0.5):
    overlaps = find_overlaps(np.array(target), np.array(instances), None if void is None else np.array(void, bool))
    found = find_events(overlaps, choose_pairs(overlaps, threshold))
    ours = dict(zip(overlaps.target_ids.tolist(), (TARGET_EVENTS[k] for k in found.targets), strict=True))
    theirs = dict(zip(overlaps.instance_ids.tolist(), (INSTANCE_EVENTS[k] for k in found.instances), strict=True))
    return ours, theirs, found.numbers()


def test_void_objects_are_not_counted():
    _, theirs, _ = events([[1, 1, 0, 0]], [[4, 4, 6, 6]], [[0, 0, 1, 0]])
    assert theirs == {4: "matched", 6: "spurious"}  # half void is not mostly void
    _, theirs, numbers = events([[1, 1, 0, 0, 0]], [[4, 4, 6, 6, 6]], [[0, 0, 1, 1, 0]])
    assert theirs == {4: "matched", 6: "void"}
    assert numbers["spurious"] == 0


@pytest.mark.parametrize("seed", range(50))
def test_every_object_is_one_event_as_loops_over_all_pairs_find_it(seed):
    rng = np.random.default_rng(seed)
    target = np.kron(rng.integers(0, 7, (4, 4)), np.ones((2, 3), int))  # of 6 pixels, so that some are half covered
    instances = np.where(rng.random((8, 12)) < 0.7, np.roll(target, 1, 1), rng.integers(0, 8, (8, 12)))
    ours, theirs, numbers = events(target, instances)
    masks = {t: target == t for t in ours}
    segments = {s: instances == s for s in theirs}
    share = {(t, s): (masks[t] & segments[s]).sum() for t in masks for s in segments}
    matched = {(t, s) for (t, s), n in share.items() if n / (masks[t] | segments[s]).sum() > 0.5}
    held = {s: [t for t in masks if 2 * share[t, s] > masks[t].sum()] for s in segments}
    parts = {t: [s for s in segments if 2 * share[t, s] > segments[s].sum()] for t in masks}
    for t in masks:
        expected = "missed"
        if any(t == one for one, _ in matched):
            expected = "matched"
        elif any(t in held[s] and len(held[s]) > 1 for s in segments):
            expected = "merged"
        elif len(parts[t]) > 1:
            expected = "split"
        assert ours[t] == expected
    for s in segments:
        expected = "spurious"
        if any(s == other for _, other in matched):
            expected = "matched"
        elif len(held[s]) > 1:
            expected = "merging"
        elif any(s in parts[t] and ours[t] == "split" for t in masks):
            expected = "part"
        assert theirs[s] == expected
    assert sum(numbers[name] for name in TARGET_EVENTS) == len(masks)
    assert numbers["matched"] + numbers["part"] + numbers["merging"] + numbers["spurious"] == len(segments)


def scores(target, instances, missed="pixels"):
    return partition_scores(find_overlaps(np.array(target), np.array(instances)), missed)[0]


def random_pair(seed):
    rng = np.random.default_rng(seed)
    target = np.kron(rng.integers(0, 6, (3, 4)), np.ones((4, 4), int))
    return target, np.where(rng.random((12, 16)) < 0.8, target, rng.integers(0, 9, (12, 16)))


@pytest.mark.parametrize("seed", range(100))
def test_scikit_image_gives_the_same_under_its_rule_and_under_ours(seed):
    target, instances = random_pair(seed)
    alone = np.where(instances == 0, np.arange(instances.size).reshape(instances.shape) + 100, instances)
    for given, missed in ((instances, "segment"), (alone, "pixels")):  # every missed pixel a segment of its own
        found = scores(target, instances, missed)
        split, merge = variation_of_information(target, given, ignore_labels=[0])
        assert [found["voi_split"], found["voi_merge"]] == pytest.approx([split, merge], abs=1e-9)
        error, _, _ = adapted_rand_error(target, given, ignore_labels=[0])
        assert found["are"] == pytest.approx(error)


def test_nothing_to_cut_has_no_score_and_an_empty_side_the_worst():
    assert np.isnan([*scores([[0, 0]], [[0, 0]]).values()]).all()
    for empty in (scores([[0, 0]], [[1, 0]]), scores([[1, 0]], [[0, 0]])):
        assert empty == {"voi": np.inf, "voi_split": np.inf, "voi_merge": np.inf, "are": 1.0}
