"""Centreline Dice: by hand, against its parts, and where a skeleton is missing."""

import numpy as np
import pytest
from scipy import ndimage
from skimage.draw import line
from skimage.morphology import skeletonize

from segmeter.errors import InputError
from segmeter.metrics.surfaces.shape import centreline_dice


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


def test_lines_one_pixel_wide_by_hand():
    # the skeleton of a line is the line: 6 of the prediction's 8 pixels are in the target of 10, and 6 of its 10
    target, mask = np.zeros((5, 14), bool), np.zeros((5, 14), bool)
    target[2, 1:11], mask[2, 5:13] = True, True
    found = centreline_dice(target, mask)
    assert (found.inside_target, found.points_mask, found.inside_mask, found.points_target) == (6, 8, 6, 10)
    assert found.precision == 0.75
    assert found.sensitivity == 0.6
    assert found.cldice == pytest.approx(2 * 0.75 * 0.6 / 1.35, rel=1e-12)


def test_width_does_not_matter_where_the_centre_is_found():
    target, mask = np.zeros((9, 30), bool), np.zeros((9, 30), bool)
    target[1:8, 2:28], mask[3:6, 2:28] = True, True
    found = centreline_dice(target, mask)
    dice = 2 * (target & mask).sum() / (target.sum() + mask.sum())
    assert found.precision == 1.0
    assert found.cldice > 0.97 > 0.61 > dice


@pytest.mark.parametrize("seed", range(4))
def test_the_parts_are_those_of_the_whole_image(seed):
    target, mask = tubes(seed)
    ours, theirs = skeletonize(target), skeletonize(mask)
    precision, sensitivity = (theirs & target).sum() / theirs.sum(), (ours & mask).sum() / ours.sum()
    found = centreline_dice(target, mask)
    assert 0 < precision < 1
    assert found.precision == precision
    assert found.sensitivity == sensitivity
    swapped = centreline_dice(mask, target)
    assert swapped.cldice == found.cldice
    assert (swapped.precision, swapped.sensitivity) == (found.sensitivity, found.precision)


def test_objects_within_one_slice_have_the_skeleton_of_the_volume():
    target, mask = np.zeros((3, 4, 4), bool), np.zeros((3, 4, 4), bool)
    target[1] = [[1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 1, 0], [1, 1, 0, 1]]
    mask[1] = [[1, 1, 0, 1], [1, 1, 1, 1], [1, 1, 1, 1], [0, 1, 1, 0]]
    assert parts_of(centreline_dice(target, mask)) == parts_of_the_whole_map(target, mask)
    assert centreline_dice(target, mask).cldice == pytest.approx(2 / 3, rel=1e-12)


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
    full, empty = np.zeros((4, 6), bool), np.zeros((4, 6), bool)
    full[1:3, 1:5] = True
    assert centreline_dice(full, empty).cldice == 0.0
    assert np.isnan(centreline_dice(full, empty).precision)
    assert centreline_dice(empty, full).status == "target_empty"
    assert np.isnan(centreline_dice(empty, empty).cldice)
    assert centreline_dice(full, full).cldice == 1.0
    far = np.zeros((4, 6), bool)
    far[0, 5] = True
    assert centreline_dice(full, far).cldice == 0.0


def test_a_cube_that_thinning_makes_vanish_is_its_own_skeleton():
    cube = np.zeros((6, 6, 6), bool)
    cube[2:4, 2:4, 2:4] = True
    assert not skeletonize(cube).any()
    assert centreline_dice(cube, cube).cldice == 1.0


def test_other_dtypes_and_shapes_are_refused():
    with pytest.raises(InputError, match="centreline_dice: expected `target` to have dtype bool"):
        centreline_dice(np.zeros((3, 3), np.uint8), np.zeros((3, 3), bool))
    with pytest.raises(InputError, match="to have the target's shape"):
        centreline_dice(np.zeros((3, 3), bool), np.zeros((3, 4), bool))
