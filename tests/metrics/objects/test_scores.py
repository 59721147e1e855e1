"""Matched objects by hand, and what is left out; `test_matching.py` compares the matches with SciPy's assignment."""

import math

import numpy as np
import pytest

from segmeter.errors import InputError
from segmeter.metrics.objects import matching as pairs
from segmeter.metrics.objects.scores import match_instances
from segmeter.metrics.surfaces import surface_metrics


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


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"target": ONE == 1}, r"`target` to have dtype integer, got bool \(2, 2\)"),
        ({"instances": ONE[:1]}, r"`instances` to have the target's shape \(2, 2\), got \(1, 2\)"),
        ({"target": ONE[0], "instances": ONE[0]}, r"`target` to have 2 or 3 axes, got \(2,\)"),
        ({"instances": ONE - np.int16(3)}, r"`instances` to hold ids between 0 and 2\*\*63 - 1, got -2 to -2"),
        ({"target": ONE * np.uint64(2**63)}, r"`target` to hold ids between 0 and 2\*\*63 - 1"),
        ({"threshold": 1.0}, r"`threshold` to be at least 0 and below 1, got 1\.0"),
        ({"threshold": math.nan}, "`threshold` to be at least 0 and below 1, got nan"),
        ({"spacing": (1,)}, r"`spacing` to have 2 finite values > 0, one per axis, got \(1,\)"),
        ({"void": ONE}, r"`void` to have dtype bool, got uint8 \(2, 2\)"),
    ],
)
def test_refusals_name_the_argument_and_what_was_given(changes, message):
    with pytest.raises(InputError, match=f"match_instances: expected {message}"):
        match_instances(**{"target": ONE, "instances": ONE, **changes})
