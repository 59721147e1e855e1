"""Mask operations against scikit-image, SciPy and brute force, how steps run them, and how masks become label maps."""

import runpy
from pathlib import Path

import numpy as np
import pytest
from scipy import ndimage
from skimage import measure, morphology, segmentation

from segmeter.errors import ConfigError
from segmeter.postprocess import config as schema
from segmeter.postprocess import masks
from segmeter.postprocess.config import STEPS
from segmeter.postprocess.masks import apply_per_class, class_indices, fill_from_nearest

from .conftest import make_spec

SPEC = make_spec(2, "binary")
DOCS = Path(__file__).parents[2] / "docs"


def drawn(*lines):
    return np.array([[letter == "#" for letter in line] for line in lines])


def random_mask(rng, shape=(50, 40), share=0.6):
    return ndimage.binary_closing(rng.random(shape) < share * 0.7, iterations=1) ^ (rng.random(shape) < 0.02)


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


@pytest.mark.parametrize(
    ("config", "operation", "options"),
    [
        (schema.RemoveSmallObjectsConfig(min_pixels=9), masks.remove_small, {"min_pixels": 9, "connectivity": 8}),
        (schema.LargestComponentConfig(), masks.keep_largest, {"connectivity": 8}),
        (schema.ClearBorderConfig(), masks.clear_border, {"margin": 0, "connectivity": 8}),
        (schema.FillHolesConfig(max_pixels=None), masks.fill_holes, {"max_pixels": None, "connectivity": 4}),
        (schema.OpeningConfig(radius=1), masks.opening, {"radius": 1}),
        (schema.ClosingConfig(radius=1), masks.closing, {"radius": 1}),
        (schema.SmoothConfig(radius=1), masks.smooth, {"radius": 1}),
        (schema.SkeletonConfig(), morphology.skeletonize, {}),
    ],
    ids=lambda each: getattr(each, "name", ""),
)
def test_a_step_does_to_its_class_what_the_operation_does_to_the_mask(config, operation, options, rng):
    mask = ndimage.binary_dilation(rng.random((40, 50)) < 0.08) ^ (rng.random((40, 50)) < 0.02)
    found = STEPS.build(config, spec=SPEC)(mask.astype(np.uint8))
    wanted = operation(mask, **options)
    np.testing.assert_array_equal(found == 1, wanted)
    assert (wanted != mask).any()


@pytest.mark.parametrize("name", ["opening", "closing", "smooth", "skeleton"])
@pytest.mark.parametrize("corner", [(0, 0), (20, 30), (44, 54)])
def test_the_box_around_the_mask_changes_nothing(rng, name, corner):
    mask, options = np.zeros((60, 70), bool), {} if name == "skeleton" else {"radius": 4}
    mask[corner[0] : corner[0] + 16, corner[1] : corner[1] + 16] = rng.random((16, 16)) < 0.7
    found = STEPS.build(STEPS.schema(name)(**options), spec=SPEC)(mask.astype(np.uint8)) == 1
    np.testing.assert_array_equal(found, getattr(masks, name, morphology.skeletonize)(mask, **options))


def test_the_picture_of_the_page_can_be_drawn_and_shows_every_step(tmp_path):
    page = runpy.run_path(str(DOCS / "draw_postprocess.py"))
    page["draw"](tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes()[:4] == b"\x89PNG"
    assert sorted(step["name"] for step in page["STEPS_SHOWN"]) == sorted(STEPS.names())


def test_equally_near_labels_are_decided_alike_wherever_they_lie():
    found = set()
    for top, left in ((0, 0), (3, 5), (7, 1)):
        labels = np.zeros((10, 10), np.uint8)
        labels[top : top + 3, left : left + 3] = [[0, 5, 0], [3, 9, 4], [0, 6, 0]]
        fill_from_nearest(labels, labels == 9, of=labels == 9)
        found.add(int(labels[top + 1, left + 1]))
    assert found in ({3}, {4}, {5}, {6})


def test_a_lost_pixel_never_gets_its_own_class_back():
    # Class 1 lies on both sides of the lost pixel, one step away; class 2 is two steps away and class 0 three.
    labels = np.array([[0, 1, 1, 1, 1, 2]], np.uint8)

    def lose_the_fourth(mask):
        return mask & (np.arange(6) != 3)

    result = apply_per_class(labels, lose_the_fourth, classes=(1,), multilabel=False)
    np.testing.assert_array_equal(result, [[0, 1, 1, 2, 1, 2]])


@pytest.mark.parametrize("share", [0.05, 0.5, 0.95])
@pytest.mark.parametrize("shape", [(30, 41), (1, 50), (50, 1)])
def test_labels_come_from_the_smallest_city_block_distance(rng, share, shape):
    labels = np.arange(np.prod(shape), dtype=np.int32).reshape(shape)  # a label says where it came from
    of = rng.random(shape) < share
    of.flat[0] = False
    lost = of & (rng.random(shape) < 0.5)
    filled = labels.copy()
    fill_from_nearest(filled, lost, of=of)
    np.testing.assert_array_equal(filled[~lost], labels[~lost])
    rows, columns = np.nonzero(lost)
    source_rows, source_columns = np.divmod(filled[lost], shape[1])
    distance = ndimage.distance_transform_cdt(of, metric="taxicab")[lost]
    np.testing.assert_array_equal(abs(rows - source_rows) + abs(columns - source_columns), distance)
    assert not of[source_rows, source_columns].any()


def test_gained_pixels_are_taken_from_any_class_and_later_classes_see_it():
    labels = np.array([[1, 2, 3, 0]], np.uint8)
    for classes, expected in (((1, 3), [1, 3, 3, 3]), ((3, 1), [1, 1, 3, 3])):
        found = apply_per_class(labels, ndimage.binary_dilation, classes=classes, multilabel=False)
        assert found.tolist() == [expected]


def test_classes_default_to_all_but_the_first_and_to_every_plane():
    assert class_indices(None, make_spec(4), where="x") == (1, 2, 3)
    assert class_indices(None, make_spec(2, "multilabel"), where="x") == (0, 1)
    assert class_indices(("c", "a"), make_spec(4), where="x") == (2, 0)


def test_unknown_classes_are_refused_all_at_once():
    with pytest.raises(ConfigError, match=r"x: expected `classes` .* got 'x'\. Known: a, b") as caught:
        class_indices(("x", "a", "y"), make_spec(2), where="x")
    assert len(caught.value.problems) == 2
