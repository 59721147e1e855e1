import numpy as np
import pytest

from segmeter.data.files.array import ArrayRows
from segmeter.data.images import LONGEST, Thumbnail, tapped, thumbnail_step


@pytest.mark.parametrize("heights", [(1, 1, 1, 4), (7,), (3, 4), (2, 0, 5)], ids=str)
@pytest.mark.parametrize("step", [1, 2, 3, 10])
@pytest.mark.parametrize("planes", [None, 2])
def test_a_thumbnail_has_every_nth_row_and_column_however_rows_come(heights, step, planes):
    whole = np.arange(7 * 11 * (planes or 1)).reshape(*([] if planes is None else [planes]), 7, 11)
    small, top = Thumbnail(step, -2), 0
    for height in heights:
        small.add(top, whole[..., top : top + height, :])
        top += height
    np.testing.assert_array_equal(small.pixels(), whole[..., ::step, ::step])


def test_rows_that_are_read_twice_are_taken_once():
    image = np.arange(9 * 5 * 3).reshape(9, 5, 3)
    small = Thumbnail(2, -3)
    rows = tapped(ArrayRows(image), small)
    for start, stop in ((0, 4), (2, 7), (5, 9)):
        np.testing.assert_array_equal(rows.read(start, stop), image[start:stop])
    np.testing.assert_array_equal(small.pixels(), image[::2, ::2])


def test_a_picture_is_never_larger_than_its_limit():
    for height, width in ((1, 1), (LONGEST, 9), (LONGEST + 1, 9), (3, 10 * LONGEST - 1)):
        step = thumbnail_step(height, width)
        assert len(range(0, max(height, width), step)) <= LONGEST
