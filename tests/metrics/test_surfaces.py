"""Surfaces and their distances by hand, by SciPy's erosion, by a table of every pair of points, and of empty masks."""

import math
import tracemalloc

import numpy as np
import pytest
from scipy import ndimage
from scipy.spatial.distance import cdist

from segmeter.metrics.distances import Distances, distances_by_class, element_sizes, find_surface
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


@pytest.mark.parametrize("size", [0.1, 0.3, 0.7, 1.1])
def test_a_percentile_that_the_surface_reaches_exactly_is_the_same_for_every_rounding(size):
    """19 of 20 equal elements are 95 %; sums of 0.3 and 1.1 miss it by one bit. Mutation seen to fail: no margin."""
    weighed = Distances(np.arange(1.0, 21.0), np.full(20, size), weighted=True)
    assert weighed.percentile(95) == 19.0


SPACING = np.array([2.0, 0.5, 1.0])


def maps(axes, seed):
    rng = np.random.default_rng(seed)
    target = (ndimage.uniform_filter(rng.random((9, 10, 8)[:axes]), 3) * 6).astype(np.uint8)
    return target, np.roll(target, 1, axis=-1)


def surface_of(mask):
    return np.argwhere(mask & ~ndimage.binary_erosion(mask))


def elements_of(mask):
    """Centres between 2 x 2 (2 x 2 x 2) pixels that are not alike, in pixels and from the corner of the grown map."""
    padded = np.pad(mask, 1)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (2,) * mask.ndim)
    held = windows.sum(axis=tuple(range(-mask.ndim, 0)))
    return np.argwhere((held > 0) & (held < 2**mask.ndim))


@pytest.mark.parametrize("axes", [2, 3])
@pytest.mark.parametrize(("surface", "points_of"), [("border_pixels", surface_of), ("marching_cubes", elements_of)])
def test_distances_are_the_least_of_all_pairs(axes, surface, points_of):
    target, mask = maps(axes, seed=axes)
    spacing = SPACING[:axes]
    classes = range(1, int(target.max()) + 1)
    pairs = distances_by_class(target, mask, classes, spacing, surface=surface)
    for k, (ours, theirs) in zip(classes, pairs, strict=True):
        table = cdist(points_of(target == k) * spacing, points_of(mask == k) * spacing)
        np.testing.assert_allclose(np.sort(ours.distances), np.sort(table.min(axis=1)), rtol=1e-12)
        np.testing.assert_allclose(np.sort(theirs.distances), np.sort(table.min(axis=0)), rtol=1e-12)
        assert ours.weighted == (surface == "marching_cubes")


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_the_surface_of_every_value_is_its_mask_without_the_erosion(axes):
    target, _ = maps(max(axes, 2), seed=5)
    target = target[0] if axes == 1 else target
    for value in np.unique(target):
        mask = target == value
        np.testing.assert_array_equal(np.argwhere(find_surface(target) & mask), surface_of(mask))


@pytest.mark.parametrize("spacing", [(1, 1), (2, 0.7), (1, 1, 1), (3.1, 0.2, 1.4)], ids=str)
def test_every_code_measures_as_in_surface_distance(spacing):
    tables = pytest.importorskip("surface_distance.lookup_tables")
    if len(spacing) == 2:
        kernel = tables.ENCODE_NEIGHBOURHOOD_2D_KERNEL
        theirs = tables.create_table_neighbour_code_to_contour_length(spacing)
    else:
        kernel = tables.ENCODE_NEIGHBOURHOOD_3D_KERNEL
        theirs = tables.create_table_neighbour_code_to_surface_area(spacing)
    weights = kernel.reshape(-1).tolist()
    codes = [sum(w for bit, w in enumerate(weights) if code >> bit & 1) for code in range(len(theirs))]
    np.testing.assert_allclose(element_sizes(spacing), theirs[codes], rtol=1e-14)


def measured(target, mask, spacing):
    return surface_metrics(target, mask, spacing=spacing, tolerances=(1,), surface="marching_cubes")


def test_the_memory_of_a_volume_is_a_few_bytes_per_voxel():
    """Mutation seen to fail: the comparisons with all eight corners held at once, 16 bytes per voxel."""
    target, mask = np.zeros((2, 80, 80, 80), bool)
    target[20:40, 20:40, 20:40], mask[22:42, 20:40, 20:40] = True, True
    target.flat[0] = target.flat[-1] = True  # so that the box around both is the whole volume
    measured(target[:3, :3, :3], mask[:3, :3, :3], (1, 1, 1))  # loads what stays
    tracemalloc.start()
    try:
        measured(target, mask, (1, 1, 1))
        assert tracemalloc.get_traced_memory()[1] < 8 * target.size
    finally:
        tracemalloc.stop()
