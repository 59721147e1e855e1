"""TIFF stacks of labels and levels of pyramids: axes, spacing, lines, and what is refused."""

import struct
from contextlib import ExitStack

import numpy as np
import pytest
import tifffile

from segmeter.data.files.opened import open_array, read_header
from segmeter.data.masks.reading import read_map, read_values
from segmeter.data.sample import Reading
from segmeter.errors import DataError
from tests.data.crafted import THREE, patch, put, write_pyramid

VOLUME = np.arange(2 * 20 * 30, dtype=np.uint16).reshape(2, 20, 30)


@pytest.fixture
def decoded(tmp_path):
    """Write a file and read it as a map."""

    def written(array, *, max_pixels=10**6, **options):
        tifffile.imwrite(tmp_path / "a.tif", array, **({"photometric": "minisblack"} | options))
        reading = Reading(spec=THREE, label_map={}, max_pixels=max_pixels, instances=True)
        found = read_map(tmp_path / "a.tif", reading)
        return found.values, found.geometry

    return written


@pytest.mark.parametrize("compression", [None, "zlib", "lzw", "zstd"])
@pytest.mark.parametrize("byteorder", ["<", ">"])
def test_planes_become_a_volume_whatever_packs_them(compression, byteorder, decoded):
    values, geometry = decoded(VOLUME, compression=compression, byteorder=byteorder)
    np.testing.assert_array_equal(values, VOLUME, strict=True)
    assert geometry.spacing is None


def test_one_page_and_axes_of_one_element_are_a_plane(decoded):
    assert decoded(VOLUME[0])[0].shape == (20, 30)
    assert decoded(VOLUME[:1, None], ome=True, metadata={"axes": "ZCYX"})[0].shape == (20, 30)


@pytest.mark.parametrize(
    ("array", "options", "found"),
    [
        (VOLUME, {"max_pixels": 1199}, "at most 1199 pixels, got 2 x 20 x 30"),
        (VOLUME, {"imagej": True, "metadata": {"axes": "CYX"}}, "to have one channel, got axes CYX of 2 x 20 x 30"),
        (VOLUME, {"imagej": True, "metadata": {"axes": "TYX"}}, "to have one channel, got axes TYX"),
        (np.zeros((20, 30, 3), np.uint8), {"photometric": "rgb"}, "to have one channel, got rgb with 3 channels"),
        (np.zeros((32, 32), np.uint8), {"compression": "jpeg"}, "to be stored exactly, got a lossy TIFF"),
        (VOLUME[0], {"compression": "jpegxl"}, "to be stored exactly, got a lossy TIFF"),  # which may be exact
        (VOLUME[0], {"extratags": [(274, 3, 1, 6, True)]}, r"`EXIF orientation` to be 1 \(upright\), got 6"),
    ],
    ids=["size", "channels", "times", "rgb", "jpeg", "jpegxl", "orientation"],
)
def test_what_is_no_stack_of_labels_is_refused(array, options, found, decoded):
    with pytest.raises(DataError, match=found):
        decoded(array, **options)


@pytest.mark.parametrize("bigtiff", [False, True])
@pytest.mark.parametrize("byteorder", ["<", ">"])
def test_pages_that_lead_back_to_an_earlier_one_are_refused(byteorder, bigtiff, tmp_path):
    """tifffile follows a circle of more than 100 pages without end, and shortens the stack at a smaller one."""
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, VOLUME, photometric="minisblack", metadata=None, byteorder=byteorder, bigtiff=bigtiff)
    with tifffile.TiffFile(path) as tiff:
        targets, end = [page.offset for page in tiff.pages], tiff.pages.next_page_offset
    for target in targets:
        patch(path, end, struct.pack(byteorder + ("Q" if bigtiff else "I"), target))
        for read in (read_values, read_header):
            with pytest.raises(DataError, match=r"a.tif: .*its pages lead back to an earlier one"):
                read(path, max_pixels=10**6)


def test_a_page_that_nobody_needs_is_not_parsed_and_all_planes_have_the_size_of_the_first(tmp_path):
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, VOLUME, photometric="minisblack")  # its description tells the shape
    with tifffile.TiffFile(path) as tiff:
        link, width = tiff.pages.next_page_offset, tiff.pages[1].tags["ImageWidth"].valueoffset
    patch(path, link, struct.pack("<I", path.stat().st_size))
    put(path, path.read_bytes() + bytes(6))  # a writer's slip: a last page without any tag
    assert np.array_equal(read_values(path, max_pixels=10**6).values, VOLUME)
    patch(path, width, struct.pack("<H", 29))
    with pytest.raises(DataError, match="keyframe"):
        read_values(path, max_pixels=10**6)


@pytest.mark.parametrize("offset", [0, 4])
def test_a_strip_that_lies_over_the_head_of_the_file_is_refused(offset, tmp_path):
    """tifffile gives zeros for one at 0."""
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, VOLUME[0], photometric="minisblack")
    with tifffile.TiffFile(path, mode="r+b") as tiff:
        tiff.pages[0].tags["StripOffsets"].overwrite(offset)
    with pytest.raises(DataError, match="has its own head for pixels"):
        read_values(path, max_pixels=10**6)


@pytest.mark.parametrize("kind", ["miniswhite", "minisblack"])
def test_values_of_a_map_are_those_that_are_stored_whatever_a_viewer_makes_of_them(kind, decoded):
    labels = np.arange(600, dtype=np.uint8).reshape(20, 30) % 3
    np.testing.assert_array_equal(decoded(labels, photometric=kind)[0], labels)


RNG = np.random.default_rng(0)


@pytest.fixture
def rows_of(monkeypatch):
    """Open a file whose lines are read while the test lasts."""
    monkeypatch.setattr("segmeter.data.files.array.STREAMED_PIXELS", 1000)
    with ExitStack() as stack:
        yield lambda path, **options: stack.enter_context(open_array(path, streams=True, **options))


def test_a_level_of_a_pyramid_is_chosen_or_refused_with_those_that_are_there(tmp_path, rows_of):
    levels = [RNG.integers(0, 256, (256 // scale, 192 // scale, 3), dtype=np.uint8) for scale in (1, 2, 4)]
    path = write_pyramid(tmp_path / "a.tif", *levels, tile=(32, 32))
    for level, wanted in enumerate(levels):
        header = read_header(path, level=level)
        assert (header.height, header.width, header.levels) == (*wanted.shape[:2], 3)
        rows = rows_of(path, level=level)
        assert np.array_equal(rows.read(0, rows.shape[0]), wanted)
        with open_array(path, level=level) as array:
            assert np.array_equal(array.read(3, 30, slice(20, 41)), wanted[3:30, 20:41])
    with pytest.raises(DataError, match=r"data.level.* got 3. Set .* to 0 .. 2 \(0: 256 x 192, 1: 128 x 96, 2:"):
        read_header(path, level=3)


def test_a_strip_that_is_too_large_to_decode_is_refused(tmp_path, rows_of):
    tifffile.imwrite(tmp_path / "a.tif", np.zeros((300, 300), np.uint8), rowsperstrip=300)
    with pytest.raises(DataError, match=r"tiles.* of at most 80000 pixels, got 300 x 300"):
        rows_of(tmp_path / "a.tif", max_pixels=80000)
