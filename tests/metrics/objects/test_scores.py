"""Matched objects by hand, and lesions as challenges score them: by hand, and by plain loops over their parts."""

import math

import numpy as np
import pytest
from skimage.measure import label as flood
from skimage.morphology import dilation as grow

from segmeter.metrics.objects import matching as pairs
from segmeter.metrics.objects.scores import autopet_volumes, brats_lesions, match_instances, regional_dice
from segmeter.metrics.surfaces import surface_metrics
from tests.metrics import build


def random_objects(shape, count, *, seed=0):
    """Boxes with gaps and overlaps, ids far apart, and a prediction that is moved and rough."""
    rng = np.random.default_rng(seed)
    target = np.zeros(shape, np.int64)
    for i in range(count):
        corner = [rng.integers(0, length - 2) for length in shape]
        box = tuple(slice(start, start + rng.integers(2, 9)) for start in corner)
        target[box] = 3 + 7 * i
    instances = np.roll(target, 1, axis=-1) * 2
    rough = rng.random(shape) < 0.1
    instances[rough] = rng.permutation(instances[rough])
    return target, instances


def as_pairs(found):
    ids = zip(found.target_ids.tolist(), found.instance_ids.tolist(), strict=True)
    return dict(zip(ids, found.iou.tolist(), strict=True))


def test_a_row_of_objects_by_hand():
    target = np.array([[1, 1, 1, 0, 2, 2, 2, 2, 0, 5, 5]])
    instances = np.array([[4, 4, 0, 0, 6, 6, 6, 8, 8, 0, 0]])
    found = match_instances(target, instances, spacing=(1, 0.5))
    # 1 with 4: 2 of 3; 2 with 6: 3 of 4; 8 shares 1 of 5 with 2; 5 is missed
    assert as_pairs(found) == {(1, 4): 2 / 3, (2, 6): 3 / 4}
    assert found.dice.tolist() == [4 / 5, 6 / 7]
    # all pixels are surface: the last of the target is one pixel, 0.5, from the prediction
    assert found.masd.tolist() == [0.5 / 3 / 2, 0.5 / 4 / 2]
    assert (found.missed_ids.tolist(), found.spurious_ids.tolist()) == ([5], [8])
    assert (found.tp, found.fp, found.fn, found.status) == (2, 1, 1, "ok")
    figures = (found.rq, found.sq, found.pq, found.mean_dice, found.mean_masd)
    np.testing.assert_allclose(figures, [2 / 3, 17 / 24, 17 / 36, 29 / 35, 7 / 96], rtol=1e-12)
    assert {one.dtype for one in (found.target_ids, found.instance_ids, found.missed_ids)} == {np.dtype(np.int64)}


def test_below_one_half_the_sum_of_iou_decides_and_not_the_best_pair():
    target = np.array([[1] * 10 + [2] * 4])
    instances = np.array([[7] * 4 + [8] * 10])
    # IoU: 1-7 .4, 1-8 6/14, 2-7 0, 2-8 .4: taking 6/14 first would leave 2 and 7 alone
    assert as_pairs(match_instances(target, instances, threshold=0.2)) == {(1, 7): 0.4, (2, 8): 0.4}
    assert match_instances(target, instances, threshold=0.4).iou.tolist() == [6 / 14]  # an IoU of .4 is no match


def test_neither_ids_nor_dtypes_matter():
    target, instances = random_objects((20, 30), 6)
    found = match_instances(target, instances, spacing=(1, 1))
    order = np.random.default_rng(0).permutation(200)
    wide = np.where(target, target + 2**40, 0)
    renamed = match_instances(wide, np.where(instances, order[instances] + 1, 0).astype(np.uint16), spacing=(1, 1))
    expected = {"target_ids": found.target_ids + 2**40, "instance_ids": order[found.instance_ids] + 1}
    expected |= {name: getattr(found, name) for name in ("tp", "fp", "pq", "masd")}
    for name, value in expected.items():
        np.testing.assert_array_equal(getattr(renamed, name), value, err_msg=name)
    narrow = match_instances(target.astype(np.uint8), instances.astype(np.uint64))
    np.testing.assert_array_equal(narrow.iou, found.iou)


def test_a_table_too_large_to_fill_gives_the_same(monkeypatch):
    pair = random_objects((20, 30), 6, seed=2)
    found = match_instances(*pair, threshold=0.1)
    monkeypatch.setattr(pairs, "_DENSE", 1)
    sorted_instead = match_instances(*pair, threshold=0.1)
    assert as_pairs(sorted_instead) == as_pairs(found)
    assert sorted_instead.spurious_ids.tolist() == found.spurious_ids.tolist()


@pytest.mark.parametrize("shape", [(20, 30), (8, 9, 12)], ids=["2-D", "3-D"])
def test_the_surface_distance_of_a_pair_is_that_of_its_masks(shape):
    target, instances = random_objects(shape, 6, seed=3)
    spacing = (2.0, 0.5, 1.5)[: len(shape)]
    found = match_instances(target, instances, threshold=0.1, spacing=spacing)
    expected = [
        surface_metrics(target == i, instances == j, spacing=spacing).masd
        for i, j in zip(found.target_ids, found.instance_ids, strict=True)
    ]
    assert len(expected) >= 2
    np.testing.assert_allclose(found.masd, expected, rtol=1e-12)
    assert found.mean_masd == np.mean(found.masd)


ONE, NONE = np.ones((2, 2), np.uint8), np.zeros((2, 2), np.uint8)


@pytest.mark.parametrize(
    ("target", "instances", "status", "counted", "rq"),
    [
        (NONE, NONE, "both_empty", (0, 0, 0), math.nan),
        (ONE, NONE, "prediction_empty", (0, 0, 1), 0),
        (NONE, ONE, "target_empty", (0, 1, 0), 0),
        (NONE[:0], NONE[:0], "both_empty", (0, 0, 0), math.nan),
    ],
    ids=["both", "prediction", "target", "no pixel"],
)
@pytest.mark.parametrize("threshold", [0.2, 0.5])
def test_empty_maps_follow_the_table(target, instances, status, counted, rq, threshold):
    found = match_instances(target, instances, spacing=(1, 1), threshold=threshold)
    assert (found.status, (found.tp, found.fp, found.fn)) == (status, counted)
    np.testing.assert_array_equal([found.rq, found.pq], rq)
    assert np.isnan([found.sq, found.mean_dice, found.mean_masd]).all()
    assert found.masd.shape == found.iou.shape == (0,)


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


def test_brats_of_nothing_is_perfect_and_lesions_up_to_the_least_size_do_not_count():
    found = brats_lesions(boxes((2, 2, 4, 4)), boxes(), spacing=(1.0, 1.0), least=4)
    assert (found.dice, found.hd95, found.fn) == (1, 0, 0)


def test_the_dice_of_regions_by_hand():
    """`tests/differential/test_lesions.py` compares it with panoptica's regions, but for ties and empty targets."""
    target = boxes((1, 2, 2, 4), (1, 7, 2, 8), shape=(3, 11))
    labels = boxes((1, 3, 2, 7), shape=(3, 11))  # columns 3 to 6, of which column 5 is as near to both parts
    assert regional_dice(target, labels).tolist() == [2 * 1 / (2 + 3), 0]
    assert regional_dice(boxes(), boxes((2, 2, 4, 4))).tolist() == [0]
    assert regional_dice(boxes(), boxes()).tolist() == [1]
