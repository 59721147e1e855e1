"""Surface distances equal a brute force that shares no code, follow the table of empty cases, and refuse the rest."""

import math

import numpy as np
import pytest
from scipy import ndimage

from segmeter.errors import InputError
from segmeter.metrics.distances import distances_by_class
from segmeter.metrics.surfaces import _Weighed, surface_metrics, surface_metrics_by_class

DISTANCES = ("hd", "hd95", "hd95_pooled", "assd", "masd", "mean_from_target", "mean_from_mask")
TOLERANCES = (0.0, 0.3, 1.0, 2.0, 3.5)
SHAPES = {
    "square": ((24, 24), (1.0, 1.0)),
    "wide": ((7, 40), (0.7, 1.9)),
    "tall": ((40, 7), (2.0, 0.31)),
    "volume": ((9, 14, 11), (2.5, 0.6, 1.0)),
    "one row": ((1, 30), (1.0, 0.1)),
    "one slice": ((1, 12, 12), (3.0, 1.0, 1.0)),
}


def brute_force(target, mask, spacing, tolerances):
    """All pairs of surface points, in plain NumPy; the surface by SciPy's erosion."""
    cross = ndimage.generate_binary_structure(target.ndim, 1)
    first, second = (np.argwhere(m & ~ndimage.binary_erosion(m, cross, border_value=0)) for m in (target, mask))
    apart = np.sqrt((((first[:, None] - second[None]) * np.asarray(spacing)) ** 2).sum(axis=-1))
    ours, theirs = apart.min(axis=1), apart.min(axis=0)
    both = np.concatenate([ours, theirs])
    return {
        "hd": max(ours.max(), theirs.max()),
        "hd95": max(np.quantile(ours, 0.95), np.quantile(theirs, 0.95)),
        "hd95_pooled": np.quantile(both, 0.95),
        "assd": (ours.sum() + theirs.sum()) / (len(ours) + len(theirs)),
        "masd": (ours.mean() + theirs.mean()) / 2,
        "mean_from_target": ours.mean(),
        "mean_from_mask": theirs.mean(),
        "nsd": [(both <= t * (1 + 1e-9)).mean() for t in tolerances],
        "points_target": len(ours),
        "points_mask": len(theirs),
    }


def blob(rng, shape, smooth=2.0, share=0.3):
    """A mask of a few rough objects, some of which touch the border."""
    field = ndimage.gaussian_filter(rng.standard_normal(shape), smooth)
    return field > np.quantile(field, 1 - share)


def single(shape, *points):
    mask = np.zeros(shape, bool)
    for point in points:
        mask[point] = True
    return mask


def assert_equal_to(found, expected):
    for name, value in expected.items():
        np.testing.assert_allclose(getattr(found, name), value, rtol=1e-12, atol=1e-12, err_msg=name)


def test_one_pixel_against_two_by_hand():
    target = single((10, 10), (2, 2))
    mask = single((10, 10), (2, 2), (5, 6))
    # spacing (1, 0.75): the spur is (3, 3) away, so sqrt(18); from the target 0, from the mask 0 and sqrt(18)
    found = surface_metrics(target, mask, spacing=(1, 0.75), tolerances=(0, 4.2, 4.3))
    far = math.sqrt(18)
    assert_equal_to(
        found,
        {
            "hd": far,
            "hd95": 0.95 * far,  # linear between 0 and sqrt(18)
            "hd95_pooled": 0.9 * far,  # of 0, 0, sqrt(18): at 1.9
            "assd": far / 3,
            "masd": far / 4,
            "mean_from_target": 0,
            "mean_from_mask": far / 2,
            "nsd": [2 / 3, 2 / 3, 1],
        },
    )
    assert (found.status, found.points_target, found.points_mask) == ("ok", 1, 2)
    assert found.nsd.dtype == np.float64
    assert found.tolerances == (0, 4.2, 4.3)


def test_a_pixel_that_only_a_corner_opens_is_no_surface():
    target = np.ones((5, 5), bool)
    target[0, 0] = False
    # (1, 1) touches the hole by its corner only, and with the 4-neighbourhood it is inside: 24 - 9
    assert surface_metrics(target, target, spacing=(1, 1)).points_target == 15


@pytest.mark.parametrize(("shape", "spacing"), SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("seed", range(4))
def test_every_figure_equals_a_brute_force(shape, spacing, seed):
    rng = np.random.default_rng(seed)
    target, mask = blob(rng, shape), blob(rng, shape, smooth=1.0, share=0.2)
    found = surface_metrics(target, mask, spacing=spacing, tolerances=TOLERANCES)
    assert found.status == "ok"
    assert_equal_to(found, brute_force(target, mask, spacing, TOLERANCES))


def test_a_distance_of_the_tolerance_is_within_it_whatever_the_rounding():
    target, mask = single((1, 9), (0, 1)), single((1, 9), (0, 4))
    assert 3 * 0.1 > 0.3  # in float64
    found = surface_metrics(target, mask, spacing=(1, 0.1), tolerances=(0.2999999, 0.3))
    assert found.nsd.tolist() == [0, 1]


def test_distances_to_no_surface_are_infinite():
    target, mask = np.zeros((2, 4, 5), np.uint8)
    target[1, 2] = 1
    (found,) = distances_by_class(target, mask, range(1, 2), np.ones(2))
    assert (found.from_target.tolist(), found.from_mask.tolist()) == ([math.inf], [])


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


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.int64], ids=str)
@pytest.mark.parametrize("shape", [(30, 41), (8, 15, 12)], ids=["2-D", "3-D"])
def test_each_class_of_a_map_scores_as_its_masks_do(shape, dtype):
    rng = np.random.default_rng(3)
    spacing = (1.5, 0.8, 0.3)[: len(shape)]
    field = ndimage.gaussian_filter(rng.standard_normal(shape), 2)
    target = np.digitize(field, np.quantile(field, [0.3, 0.5, 0.8])).astype(dtype)
    labels = np.roll(target, 1, axis=0)
    labels[labels == 2] = 0  # a class that is never predicted
    found = surface_metrics_by_class(target, labels, num_classes=5, spacing=spacing, tolerances=TOLERANCES)
    assert [one.status for one in found] == ["ok", "ok", "prediction_empty", "ok", "both_empty"]
    for k in (0, 1, 3):
        assert_equal_to(found[k], brute_force(target == k, labels == k, spacing, TOLERANCES))


@pytest.mark.parametrize(("num_classes", "void"), [(3, 255), (255, 255), (256, 300), (3, -1)])
def test_ignored_pixels_belong_to_no_class_of_either_map(num_classes, void):
    rng = np.random.default_rng(4)
    target, labels = rng.integers(0, 3, (2, 4, 5)).repeat(4, axis=1).repeat(4, axis=2)
    valid = np.ones(target.shape, bool)
    valid[3:9, 6:13] = False
    labels[4, 8] = 9999  # of no class, but ignored
    found = surface_metrics_by_class(
        np.where(valid, target, void), labels, num_classes=num_classes, spacing=(1, 1), ignore_index=void
    )
    assert len(found) == num_classes
    for k in range(3):
        assert_equal_to(found[k], brute_force(valid & (target == k), valid & (labels == k), (1, 1), (1, 2, 3, 4, 5)))


MASK = np.ones((3, 4), bool)
MAP = np.zeros((3, 4), np.uint8)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"target": MAP}, r"`target` to have dtype bool, got uint8 \(3, 4\)"),
        ({"mask": [[True]]}, "`mask` to be a plain NumPy array, got list"),
        ({"mask": MASK[:2]}, r"`mask` to have the target's shape \(3, 4\), got \(2, 4\)"),
        ({"target": MASK[0], "mask": MASK[0]}, r"`target` to have 2 or 3 axes, got \(4,\)"),
        ({"spacing": (1, 1, 1)}, r"`spacing` to have 2 values, one per axis, got 3: \(1, 1, 1\)"),
        ({"spacing": (1, 0)}, r"`spacing` > 0 and finite, got \(1, 0\)"),
        ({"spacing": (1, math.nan)}, r"`spacing` > 0 and finite"),
        ({"tolerances": (1, -2)}, r"`tolerances` >= 0, got \(1, -2\)"),
        ({"tolerances": (math.nan,)}, r"`tolerances` >= 0, got \(nan,\)"),
        ({"surface": "C"}, "`surface` to be one of border_pixels, marching_cubes, got 'C'"),
        ({"penalty": "zero"}, "`penalty` to be one of inf, diagonal, nan or a number >= 0, got 'zero'"),
        ({"penalty": -1.0}, r"`penalty` .* got -1\.0"),
    ],
    ids=range(12),
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
    ids=range(5),
)
def test_refusals_of_the_multiclass_form(changes, message):
    with pytest.raises(InputError, match=f"surface_metrics_by_class: expected {message}"):
        surface_metrics_by_class(**{"target": MAP, "labels": MAP, "num_classes": 3, "spacing": (1, 1), **changes})


@pytest.mark.parametrize("size", [0.1, 0.3, 0.7, 1.1])
def test_a_percentile_that_the_surface_reaches_exactly_is_the_same_for_every_rounding(size):
    """19 of 20 equal elements are 95 %; sums of 0.3 and 1.1 miss it by one bit. Mutation seen to fail: no margin."""
    weighed = _Weighed(np.arange(1.0, 21.0), np.full(20, size))
    assert weighed.percentile(95) == 19.0
