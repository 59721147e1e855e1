"""Levels of TIFF pyramids, and what may be read line by line; `test_tiff_windows` compares pixels."""

from contextlib import ExitStack

import numpy as np
import pytest
import tifffile

from segmeter.data.files.opened import open_array, read_header
from segmeter.errors import DataError

RNG = np.random.default_rng(0)


@pytest.fixture
def rows_of(monkeypatch):
    """Open a file whose lines are read while the test lasts."""
    monkeypatch.setattr("segmeter.data.files.array.STREAMED_PIXELS", 1000)
    with ExitStack() as stack:
        yield lambda path, **options: stack.enter_context(open_array(path, streams=True, **options))


@pytest.fixture
def pyramid(tmp_path):
    """Three levels as sub-pictures, as OME-TIFF has them, and their arrays."""
    levels = [RNG.integers(0, 256, (256 // scale, 192 // scale, 3), dtype=np.uint8) for scale in (1, 2, 4)]
    path = tmp_path / "a.tif"
    with tifffile.TiffWriter(path, bigtiff=True) as writer:
        writer.write(levels[0], tile=(32, 32), photometric="rgb", subifds=2)
        for level in levels[1:]:
            writer.write(level, tile=(32, 32), photometric="rgb", subfiletype=1)
    return path, levels


@pytest.mark.parametrize("level", [0, 1, 2])
def test_a_level_of_a_pyramid_is_chosen(pyramid, level, rows_of):
    path, levels = pyramid
    header = read_header(path, level=level)
    assert (header.height, header.width, header.levels) == (*levels[level].shape[:2], 3)
    rows = rows_of(path, level=level)
    assert np.array_equal(rows.read(0, rows.shape[0]), levels[level])


def test_a_level_that_is_not_there_is_refused_with_those_that_are(pyramid):
    with pytest.raises(
        DataError, match=r"data.level.* got 3. Set data.level to 0 .. 2 \(0: 256 x 192, 1: 128 x 96, 2:"
    ):
        read_header(pyramid[0], level=3)


def test_a_strip_that_is_too_large_to_decode_is_refused(tmp_path, rows_of):
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, np.zeros((300, 300), np.uint8), rowsperstrip=300)
    with pytest.raises(DataError, match=r"tiles.* of at most 80000 pixels, got 300 x 300"):
        rows_of(path, max_pixels=80000)


def test_more_pixels_than_allowed_may_only_be_read_by_rows(tmp_path, monkeypatch):
    monkeypatch.setattr("segmeter.data.files.array.STREAMED_PIXELS", 1000)
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, np.zeros((100, 100), np.uint8), tile=(16, 16))
    with pytest.raises(DataError, match=r"at most 5000 pixels, got 100 x 100.*data.max_pixels=10000"):
        read_header(path, max_pixels=5000)
    assert read_header(path, max_pixels=5000, streams=True).streamed
