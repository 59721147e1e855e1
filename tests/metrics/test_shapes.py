"""Boundary IoU against the published algorithm, and centreline Dice by hand and against its parts."""

import numpy as np
import pytest
from scipy import ndimage
from skimage.draw import line
from skimage.morphology import skeletonize

from segmeter.metrics.shapes import boundary_iou, centreline_dice


def published(target, labels, width):
    """Cheng et al.'s recipe for two masks: pad by 1, erode `width` times with 3 x 3, subtract, intersect."""
    bands, box = [], np.ones((3,) * target.ndim)
    for mask in (target, labels):
        inside = ndimage.binary_erosion(np.pad(mask, 1), box, iterations=width, border_value=1)
        bands.append(mask & ~inside[(slice(1, -1),) * mask.ndim])
    union = (bands[0] | bands[1]).sum()
    return (bands[0] & bands[1]).sum() / union if union else np.nan


def random_maps(shape, num_classes, *, seed=0):
    """Smooth regions and specks, cut by the border."""
    rng = np.random.default_rng(seed)
    fields = ndimage.gaussian_filter(rng.standard_normal((num_classes, *shape)), (0, 4, 4))
    target = fields.argmax(axis=0).astype(np.uint8)
    labels = np.roll(target, (1, 2), (0, 1))
    specks = rng.random(shape) < 0.01
    labels[specks] = rng.integers(0, num_classes, specks.sum())
    return target, labels


@pytest.mark.parametrize("width", [1, 2, 3, 7, 19, 20, 40])
@pytest.mark.parametrize("shape", [(40, 61), (61, 40), (1, 50), (5, 5), (1, 1)], ids=str)
def test_every_class_equals_the_published_algorithm(shape, width):
    target, labels = random_maps(shape, 4, seed=width)
    found = boundary_iou(target, labels, num_classes=4, width=width)
    np.testing.assert_array_equal(found.iou, [published(target == k, labels == k, width) for k in range(4)])


@pytest.mark.parametrize("width", [1, 2, 3, 5])
@pytest.mark.parametrize("shape", [(12, 20, 17), (1, 9, 9), (5, 30, 8)], ids=str)
def test_volumes_equal_the_published_algorithm_with_a_cube(shape, width):
    """Mutation seen to fail: windows of 2 `width` voxels."""
    rng = np.random.default_rng(width)
    fields = ndimage.gaussian_filter(rng.standard_normal((3, *shape)), (0, 2, 3, 3))
    target = fields.argmax(axis=0).astype(np.uint8)
    labels = np.roll(target, (1, 1, 2), (0, 1, 2))
    target[rng.random(shape) < 0.02] = 255
    found = boundary_iou(target, labels, num_classes=3, ignore_index=255, width=width)
    kept = np.where(target == 255, 3, labels)
    np.testing.assert_array_equal(found.iou, [published(target == k, kept == k, width) for k in range(3)])


@pytest.mark.parametrize(("num_classes", "void"), [(3, 255), (254, 255), (255, 255), (300, 65535), (3, -7)])
def test_ignored_pixels_belong_to_no_class_of_either_map(num_classes, void):
    target, labels = random_maps((50, 40), 3, seed=5)
    valid = np.ones(target.shape, bool)
    valid[10:25, 5:30] = False
    labels = labels.astype(np.int32)
    labels[12, 12] = 70_000  # of no class, but ignored
    given = np.where(valid, target.astype(np.int32), void)
    found = boundary_iou(given, labels, num_classes=num_classes, ignore_index=void, width=3)
    expected = [published(valid & (target == k), valid & (labels == k), 3) for k in range(3)]
    np.testing.assert_array_equal(found.iou[:3], expected)
    assert found.counts.sum() == target.size


@pytest.mark.parametrize(
    ("shape", "width"), [((1024, 1024), 29), ((480, 640), 16), ((10, 10), 1), ((15, 20), 1), ((60, 45), 2)], ids=str
)
def test_the_width_is_two_percent_of_the_diagonal_and_at_least_one(shape, width):
    # 0.02 * 800 = 16; 0.02 * 25 = 0.5, which rounds to 0 and so becomes 1; 0.02 * 75 = 1.5, which rounds to 2
    assert boundary_iou(*np.zeros((2, *shape), np.uint8), num_classes=3).width == width


def test_empty_classes_follow_the_table():
    target, labels = np.zeros((2, 6, 6), np.uint8)
    target[2, 2], labels[4, 4] = 1, 2
    found = boundary_iou(target, labels, num_classes=4)
    assert found.status == ("ok", "prediction_empty", "target_empty", "both_empty")
    np.testing.assert_array_equal(found.iou[1:], [0, 0, np.nan])


@pytest.mark.parametrize("shape", [(4, 4), (0, 4), (4, 0)], ids=str)
def test_nothing_to_count_is_undefined(shape):
    ignored = np.full(shape, 255, np.uint8)
    found = boundary_iou(ignored, 0 * ignored, num_classes=2, ignore_index=255)
    np.testing.assert_array_equal(found.iou, [np.nan, np.nan])
    assert found.status == ("both_empty", "both_empty")


def tubes(seed, shape=(60, 70)):
    """Four lines, three pixels wide; the prediction lacks one and is two rows lower."""
    ends = np.random.default_rng(seed).integers(0, 50, (4, 4))
    masks = np.zeros((2, *shape), bool)
    for mask, count, shift in ((masks[0], 4, 0), (masks[1], 3, 2)):
        for y, x, v, w in ends[:count]:
            rows, columns = line(y, x, v, w)
            for d in range(3):
                mask[rows + d + shift, columns] = True
    return masks


def maps_of_every_kind(seed):
    """Noise, blobs, sheets within one slice, and blocks that may touch the border; 2-D, 3-D and thin volumes."""
    rng = np.random.default_rng(seed)
    for kind in ("noise", "blobs", "slice", "block") * 10:
        shape = tuple(rng.integers(1, 14, rng.integers(2, 4)))
        noise, held = rng.random((2, *shape)), np.ones(shape, bool)
        if kind == "blobs":
            noise = ndimage.uniform_filter(noise, (0,) + (3,) * len(shape))
        if kind == "slice":
            held[:] = False
            np.moveaxis(held, rng.integers(held.ndim), 0)[0] = True
            held = np.roll(held, rng.integers(0, 14, held.ndim), axis=tuple(range(held.ndim)))
        if kind == "block":
            held[tuple(slice(*sorted(rng.integers(0, side + 1, 2))) for side in shape)] = False
            held = ~held
        yield tuple((noise < rng.uniform(0.45, 0.95)) & held)


def parts_of_the_whole_map(target, mask):
    """As the measure defines them, from scikit-image's skeletons of the uncut maps."""
    ours, theirs = (
        skeleton if skeleton.any() else one
        for one, skeleton in ((one, skeletonize(one) if one.any() else one) for one in (target, mask))
    )
    return (theirs & target).sum(), theirs.sum(), (ours & mask).sum(), ours.sum()


def parts_of(found):
    return found.inside_target, found.points_mask, found.inside_mask, found.points_target


@pytest.mark.parametrize("seed", range(4))
def test_cutting_the_maps_to_their_objects_changes_no_skeleton(seed):
    for target, mask in maps_of_every_kind(seed):
        assert parts_of(centreline_dice(target, mask)) == parts_of_the_whole_map(target, mask)


@pytest.mark.parametrize("shape", [(6, 9), (4, 6, 9)])
def test_maps_that_cannot_be_written_to_are_measured(shape):
    target = np.random.default_rng(0).random(shape) < 0.7
    target.flags.writeable = False
    assert centreline_dice(target, target[::-1]).points_mask > 0


def test_an_empty_side_is_0_and_two_are_undefined():
    full, empty, far = np.zeros((3, 4, 6), bool)
    full[1:3, 1:5], far[0, 5] = True, True
    pairs = (full, empty), (empty, full), (empty, empty), (full, full), (full, far)
    np.testing.assert_equal([centreline_dice(*pair).cldice for pair in pairs], [0, 0, np.nan, 1, 0])
    assert np.isnan(centreline_dice(full, empty).precision)
    assert centreline_dice(empty, full).status == "target_empty"


def test_a_cube_that_thinning_makes_vanish_is_its_own_skeleton():
    cube = np.zeros((6, 6, 6), bool)
    cube[2:4, 2:4, 2:4] = True
    assert not skeletonize(cube).any()
    assert centreline_dice(cube, cube).cldice == 1.0
