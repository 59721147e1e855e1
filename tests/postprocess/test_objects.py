"""Objects as rows and as polygons: one row per object, and rings that are the mask again when they are filled.

scikit-image's polygon test and Matplotlib's even-odd rule fill the rings.
"""

import numpy as np
import pytest
from scipy import ndimage
from skimage.draw import polygon
from skimage.measure import regionprops_table

from segmeter.postprocess.objects import COLUMNS, area, polygonise, region_table

from .conftest import make_spec

SQUARE_RING = np.pad(np.pad(np.zeros((1, 1), bool), 1, constant_values=True), 1)


def filled(rings, shape):
    """Pixel centres inside an odd number of the rings, by scikit-image's polygon test."""
    inside = np.zeros(shape, bool)
    for ring in rings:
        x, y = np.array(ring, float).T
        rows, columns = polygon(y - 0.5, x - 0.5, shape)
        inside[rows, columns] ^= True
    return inside


@pytest.mark.parametrize("connectivity", [4, 8])
@pytest.mark.parametrize("density", [0.1, 0.5, 0.8])
def test_filling_the_polygons_gives_the_mask_back(rng, density, connectivity):
    """Mutation seen to fail: holes left out; the same turn for both connectivities."""
    mask = rng.random((41, 53)) < density
    found = polygonise(mask, connectivity=connectivity)
    structure = np.ones((3, 3)) if connectivity == 8 else None
    parts, count = ndimage.label(mask, structure)
    assert len(found) == count
    for number, rings in enumerate(found, 1):
        np.testing.assert_array_equal(filled(rings, mask.shape), parts == number)
        areas = [area(ring) for ring in rings]
        assert areas[0] > 0
        assert all(hole < 0 for hole in areas[1:])
        assert sum(areas) == np.count_nonzero(parts == number)
        assert all(ring[0] == ring[-1] for ring in rings)


def test_a_ring_of_pixels_has_a_hole_and_corners_only_where_it_turns():
    """Rows and columns 1 to 3 around pixel (2, 2): 9 - 1 pixels."""
    ((outer, hole),) = polygonise(SQUARE_RING)
    assert sorted(outer[:-1]) == [(1, 1), (1, 4), (4, 1), (4, 4)]
    assert sorted(hole[:-1]) == [(2, 2), (2, 3), (3, 2), (3, 3)]
    assert (area(outer), area(hole)) == (9, -1)
    assert polygonise(0 * SQUARE_RING) == []


def test_a_rectangle_by_hand():
    """Rows 2-3, columns 4-9: 12 pixels, centre (2.5, 6.5); second moment of n pixels (n^2 - 1) / 12, axis 4 sqrt(m)."""
    labels = np.zeros((6, 12), np.uint8)
    labels[2:4, 4:10] = 2
    (row,) = region_table(labels, None, make_spec())
    assert tuple(row) == COLUMNS
    assert (row["class"], row["object"], row["pixels"]) == ("c", 1, 12)
    assert [row[key] for key in COLUMNS[3:7]] == [2, 4, 4, 10]
    assert (row["row_centre"], row["column_centre"]) == (2.5, 6.5)
    assert row["axis_major"] == pytest.approx(4 * np.sqrt(35 / 12))
    assert row["axis_minor"] == pytest.approx(4 * np.sqrt(3 / 12))
    assert (row["angle_deg"], row["solidity"]) == (pytest.approx(0), 1)


@pytest.mark.parametrize(("line", "angle"), [(np.eye(9), -45), (np.eye(9)[::-1], 45)], ids=["falling", "rising"])
def test_the_angle_is_that_of_the_long_axis_from_the_column_axis(line, angle):
    (row,) = region_table(line.astype(np.uint8), None, make_spec(2, "binary"))
    assert row["angle_deg"] == pytest.approx(angle)


def test_instances_are_measured_as_scikit_image_measures_the_whole_map(blobs):
    instances = (np.indices(blobs.shape)[1] // 9 + 1).astype(np.int32) * (blobs == 1)
    rows = [row for row in region_table(blobs, instances, make_spec()) if row["class"] == "b"]
    wanted = regionprops_table(
        instances, properties=("label", "area", "bbox", "centroid", "axis_major_length", "perimeter", "solidity")
    )
    ours = ("object", "pixels", "row_min", "column_min", "row_max", "column_max", "row_centre", "column_centre")
    for key, name in zip((*ours, "axis_major", "perimeter", "solidity"), wanted, strict=True):
        np.testing.assert_allclose([row[key] for row in rows], wanted[name], rtol=1e-9, err_msg=key)


def test_planes_of_multilabel_are_measured_one_by_one():
    planes = np.zeros((2, 4, 4), np.uint8)
    planes[0, :2, :2] = planes[1, 1:, 1:] = 1
    rows = region_table(planes, None, make_spec(2, "multilabel"))
    assert [(row["class"], row["object"], row["pixels"]) for row in rows] == [("a", 1, 4), ("b", 2, 9)]
