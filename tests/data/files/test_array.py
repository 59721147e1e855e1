"""Rows of arrays, and planes of one size as one map."""

import numpy as np
import pytest

from segmeter.data.files.array import ArrayRows, stack_planes


@pytest.mark.parametrize(("start", "stop"), [(0, 6), (2, 2), (3, 5), (5, 9)])
def test_rows_lie_along_the_axis_that_is_named_and_end_with_it(start, stop):
    array = np.arange(6 * 7 * 8, dtype=np.uint16).reshape(6, 7, 8)
    rows, columns = ArrayRows(array), ArrayRows(array, 1)
    assert (rows.shape, rows.dtype) == ((6, 7, 8), np.uint16)
    np.testing.assert_array_equal(rows.read(start, stop), array[start:stop])
    np.testing.assert_array_equal(columns.read(start, stop), array[:, start:stop])


def test_planes_are_stacked_in_their_order():
    planes = [np.full((4, 3), k, np.uint8) for k in (7, 5, 9)]
    planes[1][2] = 1
    rows = stack_planes([ArrayRows(plane) for plane in planes])
    assert (rows.shape, rows.dtype) == ((3, 4, 3), np.uint8)
    found = rows.read(1, 3)
    assert found.dtype == np.uint8
    assert found[:, :, 0].tolist() == [[7, 7], [5, 1], [9, 9]]
