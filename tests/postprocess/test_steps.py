"""Each step runs its operation on the mask of its class; `test_masks.py` compares these with scikit-image."""

import runpy
from pathlib import Path

import numpy as np
import pytest
from scipy import ndimage
from skimage.morphology import skeletonize

from segmeter.postprocess import config as schema
from segmeter.postprocess import masks
from segmeter.postprocess.config import STEPS

from .conftest import make_spec
from .test_instances import disks

SPEC = make_spec(2, "binary")
DOCS = Path(__file__).parents[2] / "docs"


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
        (schema.SkeletonConfig(), skeletonize, {}),
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
    np.testing.assert_array_equal(found, getattr(masks, name, skeletonize)(mask, **options))


def test_steps_that_split_number_the_objects():
    discs = disks((30, 50), (15, 16), (15, 33), radius=10)
    joined = np.zeros((9, 20), bool)
    joined[1:8, 1:8] = joined[1:8, 11:18] = joined[4, 8:11] = True
    for config, mask in (
        (schema.WatershedConfig(min_distance=5), discs),
        (schema.DistanceSplitConfig(depth=2), joined),
    ):
        split = STEPS.build(config, spec=SPEC)(mask.astype(np.uint8))
        assert (ndimage.label(mask)[1], split.max()) == (1, 2)
        np.testing.assert_array_equal(split > 0, mask)


def test_the_picture_of_the_page_can_be_drawn_and_shows_every_step(tmp_path):
    page = runpy.run_path(str(DOCS / "draw_postprocess.py"))
    page["draw"](tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes()[:4] == b"\x89PNG"
    assert sorted(step["name"] for step in page["STEPS_SHOWN"]) == sorted(schema.STEPS.names())
