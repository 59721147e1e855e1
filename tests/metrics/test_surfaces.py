"""Surface distances by hand, by class, of empty masks, and what is refused.

`test_distances.py` compares the distances with those of all pairs of points, and `tests/differential/test_surfaces.py`
every figure with other tools.
"""

import math

import numpy as np
import pytest
from scipy import ndimage

from segmeter.errors import InputError
from segmeter.metrics.distances import Distances
from segmeter.metrics.surfaces import surface_metrics, surface_metrics_by_class

DISTANCES = ("hd", "hd95", "hd95_pooled", "assd", "masd", "mean_from_target", "mean_from_mask")


def single(shape, *points):
    mask = np.zeros(shape, bool)
    for point in points:
        mask[point] = True
    return mask


def test_one_pixel_against_two_by_hand():
    target = single((10, 10), (2, 2))
    mask = single((10, 10), (2, 2), (5, 6))
    # spacing (1, 0.75): the spur is (3, 3) away, so sqrt(18); from the target 0, from the mask 0 and sqrt(18)
    found = surface_metrics(target, mask, spacing=(1, 0.75), tolerances=(0, 4.2, 4.3))
    far = math.sqrt(18)
    expected = {
        "hd": far,
        "hd95": 0.95 * far,  # linear between 0 and sqrt(18)
        "hd95_pooled": 0.9 * far,  # of 0, 0, sqrt(18): at 1.9
        "assd": far / 3,
        "masd": far / 4,
        "mean_from_target": 0,
        "mean_from_mask": far / 2,
    }
    assert {name: getattr(found, name) for name in expected} == pytest.approx(expected, rel=1e-12)
    np.testing.assert_allclose(found.nsd, [2 / 3, 2 / 3, 1], rtol=1e-12)
    assert (found.status, found.points_target, found.points_mask) == ("ok", 1, 2)
    assert found.nsd.dtype == np.float64
    assert found.tolerances == (0, 4.2, 4.3)


def test_a_pixel_that_only_a_corner_opens_is_no_surface():
    target = np.ones((5, 5), bool)
    target[0, 0] = False
    # (1, 1) touches the hole by its corner only, and with the 4-neighbourhood it is inside: 24 - 9
    assert surface_metrics(target, target, spacing=(1, 1)).points_target == 15


def test_a_distance_of_the_tolerance_is_within_it_whatever_the_rounding():
    target, mask = single((1, 9), (0, 1)), single((1, 9), (0, 4))
    assert 3 * 0.1 > 0.3  # in float64
    found = surface_metrics(target, mask, spacing=(1, 0.1), tolerances=(0.2999999, 0.3))
    assert found.nsd.tolist() == [0, 1]


EMPTY = {"prediction_empty": (True, False), "target_empty": (False, True)}
PENALTIES = {"inf": math.inf, "nan": math.nan, "diagonal": math.hypot(4 * 2, 12 * 0.5), "number": 7.5}


@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("status", EMPTY)
def test_one_empty_mask_costs_the_penalty_and_all_of_the_surface_dice(status, penalty):
    masks = [single((4, 12), (1, 1)) if held else np.zeros((4, 12), bool) for held in EMPTY[status]]
    found = surface_metrics(*masks, spacing=(2, 0.5), penalty=7.5 if penalty == "number" else penalty)
    assert found.status == status
    np.testing.assert_array_equal([getattr(found, name) for name in DISTANCES], PENALTIES[penalty])
    assert found.nsd.tolist() == [0] * 5


@pytest.mark.parametrize("shape", [(5, 6), (3, 4, 5), (0, 4)], ids=str)
def test_two_empty_masks_are_undefined_whatever_the_penalty(shape):
    empty = np.zeros(shape, bool)
    found = surface_metrics(empty, empty, spacing=(1,) * len(shape), penalty=3, tolerances=(1, 2))
    assert found.status == "both_empty"
    assert np.isnan([*(getattr(found, name) for name in DISTANCES), *found.nsd]).all()
    assert (found.points_target, found.points_mask) == (0, 0)


@pytest.mark.parametrize("surface", ["border_pixels", "marching_cubes"])
@pytest.mark.parametrize("shape", [(30, 41), (8, 15, 12)], ids=["2-D", "3-D"])
@pytest.mark.parametrize(
    ("num_classes", "void", "classes", "dtype"),
    [
        (5, 255, None, np.uint8),
        (255, 255, (3, 1), np.uint16),
        (256, 300, (0, 2), np.int64),
        (300, -1, (0, 2), np.int64),
    ],
)
def test_each_class_of_a_map_scores_as_its_masks_do(shape, num_classes, void, classes, dtype, surface):
    """Ignored pixels belong to no class of either map, whatever the prediction holds there."""
    rng, options = np.random.default_rng(3), {"spacing": (1.5, 0.8, 0.3)[: len(shape)], "surface": surface}
    field = ndimage.gaussian_filter(rng.standard_normal(shape), 2)
    target = np.digitize(field, np.quantile(field, [0.3, 0.5, 0.8]))
    labels, valid = np.roll(target, 1, axis=0), rng.random(shape) < 0.95
    labels[labels == 2] = 0  # a class that is never predicted
    foreign = 77 if dtype is np.uint8 else 9999
    given = (np.where(valid, *pair).astype(dtype) for pair in ((target, void), (labels, foreign)))
    found = surface_metrics_by_class(*given, num_classes=num_classes, classes=classes, ignore_index=void, **options)
    chosen = range(5) if classes is None else classes
    for k, one in zip(chosen, found, strict=True):
        alone = surface_metrics(valid & (target == k), valid & (labels == k), **options)
        assert one.status == alone.status == {2: "prediction_empty", 4: "both_empty"}.get(k, "ok")
        for name in (*DISTANCES, "nsd", "points_target", "points_mask"):
            np.testing.assert_array_equal(getattr(one, name), getattr(alone, name), err_msg=name)


MASK = np.ones((3, 4), bool)
MAP = np.zeros((3, 4), np.uint8)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"target": MAP}, r"`target` to have dtype bool, got uint8 \(3, 4\)"),
        ({"mask": MASK[:2]}, r"`mask` to have the target's shape \(3, 4\), got \(2, 4\)"),
        ({"target": MASK[0], "mask": MASK[0]}, r"`target` to have 2 or 3 axes, got \(4,\)"),
        ({"spacing": (1, 1, 1)}, r"`spacing` to have 2 finite values > 0, one per axis, got \(1, 1, 1\)"),
        ({"spacing": (1, 0)}, r"`spacing` to have 2 finite values > 0, .* got \(1, 0\)"),
        ({"spacing": (1, math.nan)}, "`spacing` to have 2 finite values"),
        ({"tolerances": (1, -2)}, r"`tolerances` >= 0, got \(1, -2\)"),
        ({"tolerances": (math.nan,)}, r"`tolerances` >= 0, got \(nan,\)"),
        ({"penalty": "zero"}, "`penalty` to be one of inf, diagonal, nan or a number >= 0, got 'zero'"),
        ({"penalty": -1.0}, r"`penalty` .* got -1\.0"),
    ],
)
def test_refusals_name_the_argument_and_what_was_given(changes, message):
    with pytest.raises(InputError, match=f"surface_metrics: expected {message}"):
        surface_metrics(**{"target": MASK, "mask": MASK, "spacing": (1, 1), **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"labels": MASK}, r"`labels` to have dtype integer, got bool \(3, 4\)"),
        ({"labels": MAP + np.uint8(7)}, r"`labels` to hold only classes 0 to 2, got 12 pixels of 7\."),
        ({"target": MAP - np.int16(1)}, r"`target` .* got 12 pixels of -1\. Pass its void value as ignore_index"),
        ({"num_classes": 0}, "`num_classes` between 1 and 65533, got 0"),
        ({"ignore_index": 1}, r"`ignore_index` to lie outside the classes \(0 to 2\), got 1"),
    ],
)
def test_refusals_of_the_multiclass_form(changes, message):
    with pytest.raises(InputError, match=f"surface_metrics_by_class: expected {message}"):
        surface_metrics_by_class(**{"target": MAP, "labels": MAP, "num_classes": 3, "spacing": (1, 1), **changes})


@pytest.mark.parametrize("size", [0.1, 0.3, 0.7, 1.1])
def test_a_percentile_that_the_surface_reaches_exactly_is_the_same_for_every_rounding(size):
    """19 of 20 equal elements are 95 %; sums of 0.3 and 1.1 miss it by one bit. Mutation seen to fail: no margin."""
    weighed = Distances(np.arange(1.0, 21.0), np.full(20, size), weighted=True)
    assert weighed.percentile(95) == 19.0
