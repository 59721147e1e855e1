"""The aggregated Jaccard index by hand and by Algorithm 1 of Kumar et al. in plain loops."""

import numpy as np
import pytest

from segmeter.metrics.objects.matching import aggregated_jaccard, find_overlaps


def test_one_prediction_counts_for_every_target_that_takes_it():
    target, instances = np.array([[1, 1, 2, 2]]), np.array([[9, 9, 9, 9]])
    # each target's best is 9, 2 of 4 pixels: 4 / 8, and 9 is not added once more
    assert aggregated_jaccard(find_overlaps(target, instances)) == (4, 8)


def loops(target, instances):
    """Algorithm 1: each target takes the prediction of the largest IoU; what nobody took is added to the union."""
    ours = [target == i for i in np.unique(target) if i]
    theirs = [instances == j for j in np.unique(instances) if j]
    common, union, used = 0, 0, set()
    for mask in ours:
        iou = [(mask & other).sum() / (mask | other).sum() for other in theirs]
        if not any(iou):
            union += mask.sum()
            continue
        best = int(np.argmax(iou))
        common, union = common + (mask & theirs[best]).sum(), union + (mask | theirs[best]).sum()
        used.add(best)
    return common, union + sum(other.sum() for j, other in enumerate(theirs) if j not in used)


@pytest.mark.parametrize("seed", range(5))
def test_it_equals_plain_loops(seed):
    rng = np.random.default_rng(seed)
    target = rng.integers(0, 6, (6, 7)) * (rng.random((6, 7)) < 0.7)
    instances = np.where(rng.random((6, 7)) < 0.6, target + 3, rng.integers(0, 9, (6, 7)))
    assert aggregated_jaccard(find_overlaps(target, instances)) == loops(target, instances)


def test_of_predictions_with_one_iou_that_with_most_pixels_in_common_is_taken():
    target = np.repeat([1, 0], 8)[None]
    one, other = np.repeat([1, 0], [1, 15])[None], np.repeat([0, 1], [6, 10])[None]  # 1 of 8, and 2 of 16
    for numbers in ((5, 9), (9, 5)):
        instances = numbers[0] * one + numbers[1] * other
        assert aggregated_jaccard(find_overlaps(target, instances)) == (2, 16 + 1)


def test_nothing_on_one_side_is_all_union():
    some, nothing = np.array([[1, 1, 2]]), np.zeros((1, 3), int)
    assert aggregated_jaccard(find_overlaps(some, nothing)) == (0, 3)
    assert aggregated_jaccard(find_overlaps(nothing, some)) == (0, 3)
    assert aggregated_jaccard(find_overlaps(nothing, nothing)) == (0, 0)
