"""Mask operations: by hand, against scikit-image and SciPy, and at the edges."""

import numpy as np
import pytest
from scipy import ndimage
from skimage import measure, morphology, segmentation

from segmeter.postprocess import masks


def drawn(*lines):
    return np.array([[letter == "#" for letter in line] for line in lines])


def random_mask(rng, shape=(50, 40), share=0.6):
    return ndimage.binary_closing(rng.random(shape) < share * 0.7, iterations=1) ^ (rng.random(shape) < 0.02)


@pytest.mark.parametrize(("connectivity", "kept"), [(4, ("##..", "....", "....")), (8, ("##..", "..#.", "...#"))])
def test_remove_small_by_hand(connectivity, kept):
    # By sides there are components of 2, 1 and 1 pixels, by corners one of 4.
    mask = drawn("##..", "..#.", "...#")
    found = masks.remove_small(mask, min_pixels=2, connectivity=connectivity)
    np.testing.assert_array_equal(found, drawn(*kept))


@pytest.mark.parametrize("min_pixels", [1, 2, 5, 30, 10_000])
@pytest.mark.parametrize("connectivity", [4, 8])
def test_remove_small_equals_scikit_image(rng, min_pixels, connectivity):
    mask = random_mask(rng, share=0.4)
    parts = measure.label(mask, connectivity=connectivity // 4)  # remove_small_objects has another keyword before 0.26
    reference = mask & (np.bincount(parts.ravel())[parts] >= min_pixels)
    np.testing.assert_array_equal(masks.remove_small(mask, min_pixels=min_pixels, connectivity=connectivity), reference)


def test_keep_largest_takes_the_first_of_equal_ones():
    mask = drawn("#..##", ".....", "##..#")
    np.testing.assert_array_equal(masks.keep_largest(mask, connectivity=8), drawn("...##", ".....", "....."))


@pytest.mark.parametrize("margin", [0, 1, 4])
def test_clear_border_equals_scikit_image(rng, margin):
    mask = random_mask(rng, share=0.4)
    reference = segmentation.clear_border(ndimage.label(mask, np.ones((3, 3)))[0], buffer_size=margin) > 0
    np.testing.assert_array_equal(masks.clear_border(mask, margin=margin, connectivity=8), reference)
    assert not masks.clear_border(np.ones((3, 9), bool), margin=margin + 1, connectivity=8).any()


def test_fill_holes_by_hand():
    mask = drawn("#####", "#.#.#", "#####", "#...#", "####.")
    everything = drawn("#####", "#####", "#####", "#####", "####.")
    only_small = drawn("#####", "#####", "#####", "#...#", "####.")
    np.testing.assert_array_equal(masks.fill_holes(mask, max_pixels=None, connectivity=4), everything)
    np.testing.assert_array_equal(masks.fill_holes(mask, max_pixels=3, connectivity=4), everything)
    np.testing.assert_array_equal(masks.fill_holes(mask, max_pixels=2, connectivity=4), only_small)
    np.testing.assert_array_equal(masks.fill_holes(mask, max_pixels=None, connectivity=8), only_small)


@pytest.mark.parametrize("radius", [1, 2, 3, 15])
@pytest.mark.parametrize("shape", [(50, 40), (1, 9), (30, 2)])
@pytest.mark.parametrize("name", ["opening", "closing"])
def test_opening_and_closing_equal_scikit_image(rng, radius, shape, name):
    for share in (0.3, 0.6, 0.9):
        mask = random_mask(rng, shape, share)
        reference = getattr(morphology, name)(mask, morphology.disk(radius), mode="ignore")
        np.testing.assert_array_equal(getattr(masks, name)(mask, radius=radius), reference)


def test_a_full_mask_stays_full_and_dilation_adds_exactly_the_disk():
    full, dot = np.ones((7, 9), bool), np.zeros((11, 11), bool)
    dot[5, 5] = True
    assert masks.opening(full, radius=3).all()
    assert masks.closing(full, radius=3).all()
    np.testing.assert_array_equal(masks.dilate(dot, radius=5), morphology.disk(5).astype(bool))


def disk_majority(mask, radius):
    """Brute force: each pixel looks at the disk around it, inside the image."""
    found = mask.copy()
    rows, columns = np.indices(mask.shape)
    for row, column in np.ndindex(mask.shape):
        disk = (rows - row) ** 2 + (columns - column) ** 2 <= radius * radius
        share = 2 * np.count_nonzero(mask & disk) - np.count_nonzero(disk)
        found[row, column] = share > 0 or (mask[row, column] and share == 0)
    return found


@pytest.mark.parametrize("radius", [1, 2, 4])
@pytest.mark.parametrize("density", [0.1, 0.5, 0.9])
def test_smooth_is_the_majority_of_the_disk(rng, density, radius):
    """Mutation seen to fail: what lies beyond the image counted as outside the mask."""
    mask = rng.random((23, 30)) < density
    mask[:, 20:] = False
    np.testing.assert_array_equal(masks.smooth(mask, radius=radius), disk_majority(mask, radius))
