"""One row per object: its class, place and shape."""

import numpy as np
import pytest
from skimage.measure import regionprops_table

from segmeter.postprocess.objects import COLUMNS, region_table

from .conftest import make_spec


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
