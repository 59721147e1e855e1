"""What each built-in step does to a label map, against scikit-image and SciPy on its mask."""

import runpy
from pathlib import Path

import numpy as np
import pytest
from scipy import ndimage
from skimage import morphology, segmentation

from segmeter.errors import ConfigError
from segmeter.postprocess import config as schema
from segmeter.postprocess.config import STEPS

from .conftest import make_spec

SPEC = make_spec(2, "binary")
DOCS = Path(__file__).parents[2] / "docs"
EIGHT = np.ones((3, 3), bool)


@pytest.fixture
def mask(rng):
    return ndimage.binary_dilation(rng.random((40, 50)) < 0.08)


def of_nine_pixels(mask):
    parts, _ = ndimage.label(mask, EIGHT)
    return mask & (np.bincount(parts.ravel())[parts] >= 9)


def largest(mask):
    parts, count = ndimage.label(mask, EIGHT)
    sizes = ndimage.sum_labels(mask, parts, range(1, count + 1))
    return parts == 1 + int(np.argmax(sizes))


@pytest.mark.parametrize(
    ("config", "reference"),
    [
        (schema.RemoveSmallObjectsConfig(min_pixels=9), of_nine_pixels),
        (schema.LargestComponentConfig(), largest),
        (schema.ClearBorderConfig(), lambda mask: segmentation.clear_border(ndimage.label(mask, EIGHT)[0]) > 0),
        (schema.FillHolesConfig(max_pixels=None), ndimage.binary_fill_holes),
        (schema.OpeningConfig(radius=1), lambda mask: morphology.opening(mask, morphology.disk(1))),
        (schema.SkeletonConfig(), morphology.skeletonize),
    ],
    ids=lambda each: getattr(each, "name", ""),
)
def test_a_step_does_to_its_class_what_the_reference_does_to_the_mask(config, reference, mask):
    found = STEPS.build(config, spec=SPEC)(mask.astype(np.uint8))
    np.testing.assert_array_equal(found == 1, reference(mask))


def test_pixels_that_a_step_removes_become_the_fill_class():
    labels = np.zeros((6, 6), np.uint8)
    labels[2, 2] = 3
    config = schema.RemoveSmallObjectsConfig(min_pixels=4, classes=("d",), fill="b")
    cleaned = STEPS.build(config, spec=make_spec())(labels)
    assert cleaned[2, 2] == 1
    assert (cleaned == 0).sum() == 35


def test_watershed_numbers_touching_discs_one_by_one():
    rows, columns = np.indices((30, 50))
    discs = [(rows - 15) ** 2 + (columns - centre) ** 2 <= 100 for centre in (16, 33)]
    split = STEPS.build(schema.WatershedConfig(min_distance=5), spec=SPEC)((discs[0] | discs[1]).astype(np.uint8))
    assert ndimage.label(discs[0] | discs[1])[1] == 1
    assert split[15, 16] != split[15, 33]
    assert set(np.unique(split)) == {0, 1, 2}


def test_an_unknown_class_is_named_with_the_step():
    with pytest.raises(ConfigError, match=r"postprocess.opening: .*'z'"):
        STEPS.build(schema.OpeningConfig(classes=("z",)), spec=SPEC)


def test_distance_split_numbers_the_cores():
    labels = np.zeros((9, 20), np.uint8)
    labels[1:8, 1:8] = labels[1:8, 11:18] = labels[4, 8:11] = 1
    split = STEPS.build(schema.DistanceSplitConfig(depth=2), spec=SPEC)(labels)
    assert split.max() == 2
    assert split[4, 4] != split[4, 14]


def test_smooth_takes_a_spur_away_and_fills_a_notch():
    labels = np.zeros((12, 12), np.uint8)
    labels[4:9, 2:10] = 1
    labels[3, 5] = 1  # a spur
    labels[8, 6] = 0  # a notch
    cleaned = STEPS.build(schema.SmoothConfig(radius=1), spec=SPEC)(labels)
    assert cleaned[3, 5] == 0
    assert cleaned[8, 6] == 1
    assert np.count_nonzero(cleaned != labels) == 2


def test_the_picture_of_the_page_can_be_drawn_and_shows_every_step(tmp_path):
    page = runpy.run_path(str(DOCS / "draw_postprocess.py"))
    page["draw"](tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes()[:4] == b"\x89PNG"
    assert sorted(step["name"] for step in page["STEPS_SHOWN"]) == sorted(schema.STEPS.names())
