"""Rows of arrays, and planes of one size as one map."""

import numpy as np
import pytest

from segmeter.data.files.array import ArrayRows, stack_planes


@pytest.mark.parametrize(("axis", "wanted"), [(0, slice(3, 5)), (1, (slice(None), slice(3, 5)))])
def test_rows_lie_along_the_axis_that_is_named(axis, wanted):
    array = np.arange(6 * 7 * 8, dtype=np.uint16).reshape(6, 7, 8)
    rows = ArrayRows(array, axis)
    assert (rows.shape, rows.dtype) == ((6, 7, 8), np.uint16)
    np.testing.assert_array_equal(rows.read(3, 5), array[wanted])


@pytest.mark.parametrize(("start", "stop", "count"), [(0, 6, 6), (2, 2, 0), (5, 9, 1)])
def test_a_read_ends_with_the_array(start, stop, count):
    array = np.arange(12).reshape(6, 2)
    np.testing.assert_array_equal(ArrayRows(array).read(start, stop), array[start : start + count])


def test_planes_are_stacked_in_their_order():
    planes = [np.full((4, 3), k, np.uint8) for k in (7, 5, 9)]
    planes[1][2] = 1
    rows = stack_planes([ArrayRows(plane) for plane in planes])
    assert (rows.shape, rows.dtype) == ((3, 4, 3), np.uint8)
    found = rows.read(1, 3)
    assert found.dtype == np.uint8
    assert found[:, :, 0].tolist() == [[7, 7], [5, 1], [9, 9]]
