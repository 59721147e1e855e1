"""Lesions as challenges score them: by hand, and by plain loops over flood-filled parts."""

import numpy as np
import pytest
from skimage.measure import label as flood
from skimage.morphology import dilation as grow

from segmeter.metrics.objects.scores import autopet_volumes, brats_lesions, picai_lesions, regional_dice
from segmeter.metrics.surfaces import surface_metrics
from tests.metrics import build


def boxes(*places, shape=(12, 30)):
    return build.boxes(shape, *places) > 0


def random_pair(seed, shape=(8, 9, 10)):
    rng = np.random.default_rng(seed)
    target = np.zeros(shape, bool)
    for _ in range(rng.integers(0, 4)):
        corner = [rng.integers(0, side - 2) for side in shape]
        target[tuple(slice(c, c + rng.integers(1, 4)) for c in corner)] = True
    labels = np.roll(target, rng.integers(-1, 2), 0) & (rng.random(shape) < 0.9) | (rng.random(shape) < 0.01)
    return target, labels


def test_brats_joins_what_meets_dilated_and_counts_what_is_made_up():
    # two parts one column apart are one lesion of 24 pixels, of which 12 are found; one prediction lies far off
    target = boxes((2, 2, 5, 6), (2, 7, 5, 11))
    labels = boxes((2, 2, 5, 6), (9, 25, 11, 27))
    found = brats_lesions(target, labels, spacing=(1.0, 1.0), dilation=1, least=0)
    assert (found.tp, found.fp, found.fn) == (1, 1, 0)
    assert found.dice == pytest.approx((2 * 12 / 36 + 0) / 2)
    assert found.hd95 > 374 / 2
    apart = brats_lesions(target, labels, spacing=(1.0, 1.0), dilation=0, least=0)
    assert (apart.tp, apart.fp, apart.fn) == (1, 1, 1)
    assert (apart.dice, apart.hd95) == (pytest.approx(1 / 3), pytest.approx(2 * 374 / 3))


def test_brats_leaves_out_small_lesions_and_says_1_where_there_is_nothing():
    small = boxes((2, 2, 4, 4))
    found = brats_lesions(small, boxes(), spacing=(1.0, 1.0), least=4)
    assert (found.dice, found.hd95, found.fn) == (1, 0, 0)
    assert brats_lesions(small, boxes(), spacing=(2.0, 1.0), least=4).fn == 1  # 8 by its spacing
    assert brats_lesions(boxes(), boxes(), spacing=(1.0, 1.0)).dice == 1
    assert brats_lesions(boxes(), small, spacing=(1.0, 1.0)).dice == 0


def test_a_second_candidate_on_a_found_lesion_is_forgiven():
    target = boxes((2, 2, 6, 12))
    labels = boxes((2, 2, 6, 5), (2, 8, 6, 12), (9, 20, 11, 22))
    assert picai_lesions(target, labels) == (1, 1, 0)
    assert picai_lesions(target, labels, overlap=0.35) == (1, 2, 0)  # IoU .3 and .4: the first one is not forgiven
    assert picai_lesions(boxes(), labels) == (0, 3, 0)
    assert picai_lesions(target, boxes()) == (0, 0, 1)


@pytest.mark.parametrize("seed", range(25))
def test_autopet_is_what_loops_over_parts_of_18_neighbours_give(seed):
    target, labels = random_pair(seed)
    expected = []
    for mask, other in ((labels, target), (target, labels)):
        parts = flood(mask, connectivity=2)
        expected.append(sum((parts == n).sum() for n in range(1, parts.max() + 1) if not other[parts == n].any()))
    assert autopet_volumes(target, labels) == tuple(expected)


@pytest.mark.parametrize("seed", range(8))
def test_brats_is_what_loops_over_parts_give(seed):
    target, labels = random_pair(seed)
    reach = np.ones((3, 3, 3), bool)
    reach[::2, ::2, ::2] = False  # no corners
    lesions, parts = flood(grow(target, reach), connectivity=3) * target, flood(labels, connectivity=3)
    dice, hd95, taken = [], [], set()
    for number in set(np.unique(lesions)) - {0}:
        lesion = lesions == number
        meets = set(parts[grow(lesion, reach)]) - {0}
        taken |= meets
        if lesion.sum() * 2.0 > 6:
            found = np.isin(parts, list(meets))
            dice.append(2 * (found & lesion).sum() / (found.sum() + lesion.sum()))
            distance = surface_metrics(lesion, found, spacing=(2.0, 1.0, 1.0), surface="marching_cubes").hd95
            hd95.append(min(distance, 374.0))
    false = len(set(np.unique(parts)) - {0} - taken)
    found = brats_lesions(target, labels, spacing=(2.0, 1.0, 1.0), dilation=1, least=6)
    count = len(dice) + false
    assert found.dice == pytest.approx(sum(dice) / count if count else 1)
    assert found.hd95 == pytest.approx((sum(hd95) + 374 * false) / count if count else 0)
    assert (found.tp + found.fn, found.fp) == (len(dice), false)


def test_the_dice_of_regions_by_hand():
    """`tests/differential/test_lesions.py` compares it with panoptica's regions, but for ties and empty targets."""
    target = boxes((1, 2, 2, 4), (1, 7, 2, 8), shape=(3, 11))
    labels = boxes((1, 3, 2, 7), shape=(3, 11))  # columns 3 to 6, of which column 5 is as near to both parts
    assert regional_dice(target, labels).tolist() == [2 * 1 / (2 + 3), 0]
    assert regional_dice(boxes(), boxes((2, 2, 4, 4))).tolist() == [0]
    assert regional_dice(boxes(), boxes()).tolist() == [1]
