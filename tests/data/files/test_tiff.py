"""TIFF stacks of labels, levels of pyramids, and windows of these, of NPY files and of Zarr folders."""

import struct
from contextlib import ExitStack
from itertools import product

import numpy as np
import pytest
import tifffile

from segmeter.data.files.opened import open_array, read_header
from segmeter.data.images import read_image
from segmeter.data.masks.reading import read_map, read_values
from segmeter.data.sample import Reading
from segmeter.errors import DataError
from segmeter.training.data.windows import has_windows
from tests.data.crafted import THREE, noise, patch, put, write_pyramid, write_zarr

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


@pytest.mark.parametrize(("tag", "value"), [("StripOffsets", 0), ("StripOffsets", 4), ("StripByteCounts", 0)])
def test_a_strip_that_is_not_there_or_lies_over_the_head_of_the_file_is_refused(tag, value, tmp_path):
    """tifffile gives zeros for one at 0 or without bytes, which a mask would take for background."""
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, VOLUME[0], photometric="minisblack")
    with tifffile.TiffFile(path, mode="r+b") as tiff:
        tiff.pages[0].tags[tag].overwrite(value)
    with pytest.raises(DataError, match="the file ends before its pixels do, or has its own head for pixels"):
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


def test_pictures_beside_a_pyramid_are_smaller_or_its_mask(tmp_path):
    image = RNG.integers(0, 256, (64, 64, 3), dtype=np.uint8)
    others = {"label": (image[:20, :30], {}), "mask": (image[..., 0] > 9, {"subfiletype": 4}), "second": (image, {})}
    for name, (other, options) in others.items():
        with tifffile.TiffWriter(tmp_path / "a.tif", ome=True) as writer:
            writer.write(image, tile=(16, 16), photometric="rgb", subifds=1)
            writer.write(image[::2, ::2], tile=(16, 16), photometric="rgb", subfiletype=1)
            writer.write(other, tile=(16, 16), **options)
        if name == "second":
            with pytest.raises(DataError, match="to hold one image, got another one of 64 x 64"):
                read_image(tmp_path / "a.tif")
        else:
            assert np.array_equal(read_image(tmp_path / "a.tif"), image), name


def test_a_strip_that_is_too_large_to_decode_is_refused(tmp_path, rows_of):
    tifffile.imwrite(tmp_path / "a.tif", np.zeros((300, 300), np.uint8), rowsperstrip=300)
    with pytest.raises(DataError, match=r"tiles.* of at most 80000 pixels, got 300 x 300"):
        rows_of(tmp_path / "a.tif", max_pixels=80000)


KINDS = {
    "tiles": {"tile": (32, 48)},
    "tiles packed": {"tile": (32, 16), "compression": "zlib", "predictor": 2},
    "tiles lzw": {"tile": (16, 16), "compression": "lzw"},
    "jpeg": {"tile": (32, 32), "compression": "jpeg"},
    "strips": {"rowsperstrip": 7},
    "strips packed": {"rowsperstrip": 11, "compression": "zstd"},
    "one strip": {},
    "planes": {"planarconfig": "separate", "tile": (32, 48)},
    "planes in strips": {"planarconfig": "separate", "rowsperstrip": 9},
    "big-endian": {"tile": (32, 48), "byteorder": ">"},
}
SIZE = (75, 101)


def read_window(path, rows, columns, **options):
    with open_array(path, **options) as array:
        return array.read(rows.start, rows.stop, columns)


def windows():
    rng = np.random.default_rng(0)
    corners = [(0, 1, 0, 1), (0, 75, 0, 101), (74, 75, 100, 101), (31, 33, 47, 49)]
    drawn = [(*sorted(rng.choice(76, 2, False)), *sorted(rng.choice(102, 2, False))) for _ in range(6)]
    return [(slice(int(a), int(b)), slice(int(c), int(d))) for a, b, c, d in corners + drawn]


def values(dtype, channels):
    shape = SIZE if channels is None else (*SIZE, channels)
    drawn = np.random.default_rng(1).random(shape)
    return (drawn * (1 if dtype == "float32" else 60_000 if dtype == "uint16" else 255)).astype(dtype)


@pytest.mark.parametrize(
    ("kind", "dtype", "channels"),
    [
        *(case for case in product(KINDS, ("uint8", "uint16", "float32"), (None, 3, 5)) if case[0] != "jpeg"),
        *(("jpeg", "uint8", channels) for channels in (None, 3)),
    ],
)
def test_a_window_is_that_part_of_the_whole(tmp_path, kind, dtype, channels):
    options = dict(KINDS[kind])
    if channels is None:
        options.pop("planarconfig", None)
    if dtype == "float32" and "predictor" in options:
        options["predictor"] = 3
    array = stored = values(dtype, channels)
    if options.get("planarconfig"):
        array = np.moveaxis(array, -1, 0)
    elif channels:
        options["planarconfig"] = "contig"
    photometric = "rgb" if channels == 3 else "minisblack"
    tifffile.imwrite(tmp_path / "a.tif", array, photometric=photometric, metadata=None, **options)
    header = read_header(tmp_path / "a.tif")
    assert has_windows(header)
    whole = read_image(tmp_path / "a.tif", channels=channels or 1)
    assert header.lossy or np.array_equal(whole, stored.reshape(whole.shape))
    for rows, columns in windows():
        found = read_window(tmp_path / "a.tif", rows, columns)
        wanted = whole[rows, columns] if channels else whole[rows, columns, 0]
        assert found.dtype == whole.dtype == dtype
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("shape", [(20, 30), (20, 30, 4), (20, 30, 1)])
def test_npy_windows_are_those_of_the_array(tmp_path, order, shape):
    array = np.asarray(np.random.default_rng(0).integers(0, 999, shape).astype(">u2"), order=order)
    np.save(tmp_path / "a.npy", array)
    with open_array(tmp_path / "a.npy") as opened:
        found = opened.read(3, 9, slice(5, 6))
        assert "_whole" not in vars(opened)  # the rest is not read
    assert found.dtype == np.dtype("uint16")
    assert found.dtype.isnative
    np.testing.assert_array_equal(found, array[3:9, 5:6].squeeze(2) if shape[2:] == (1,) else array[3:9, 5:6])


ZARRS = {
    "chunks": {"chunks": (32, 48)},
    "one chunk": {"chunks": (75, 101)},
    "version 2": {"chunks": (20, 101), "zarr_format": 2},
    "shards": {"chunks": (8, 16), "shards": (32, 64)},
    "not packed": {"chunks": (7, 9), "compressors": None},
}


@pytest.mark.parametrize("kind", ZARRS)
@pytest.mark.parametrize(
    ("dtype", "axes"), [("uint8", "yx"), ("uint16", "cyx"), ("float32", "yxc"), (">u2", "cyx"), ("int32", "yx")]
)
def test_a_window_of_a_zarr_folder_is_that_part_of_the_whole(tmp_path, kind, dtype, axes):
    array = values("uint16", 5 if "c" in axes else None).astype(dtype)
    array = np.moveaxis(array, -1, 0) if axes == "cyx" else array
    options = dict(ZARRS[kind])
    for name in ("chunks", "shards"):
        if name in options and "c" in axes:
            options[name] = (1, *options[name]) if axes == "cyx" else (*options[name], 5)
    write_zarr(tmp_path / "a.zarr", array, axes, **options)
    with open_array(tmp_path / "a.zarr", max_pixels=50_000) as file:
        header = file.header
    assert has_windows(header)
    whole = np.moveaxis(array, 0, -1) if axes == "cyx" else array
    stored = {path for path in (tmp_path / "a.zarr").rglob("*") if path.is_file()}
    for rows, columns in windows():
        found = file.read(rows.start, rows.stop, columns)
        assert found.dtype == header.dtype
        assert found.dtype.isnative
        np.testing.assert_array_equal(found, whole[rows, columns])
        assert set(file.parts(rows, columns)) <= stored
    assert set(file.parts(slice(0, 75), slice(0, 101))) == {path for path in stored if path.name[0] not in "z."}


def test_a_zarr_window_reads_no_chunk_that_it_does_not_meet(tmp_path):
    """Chunks of which the others are damaged."""
    array = noise(64, 96, None)
    write_zarr(tmp_path / "a.zarr", array, "yx", chunks=(32, 32))
    with open_array(tmp_path / "a.zarr", max_pixels=50_000) as file:
        pass
    met = file.parts(slice(5, 30), slice(40, 60))
    assert [path.relative_to(tmp_path / "a.zarr").as_posix() for path in met] == ["c/0/1"]
    for path in (tmp_path / "a.zarr" / "c").rglob("*"):
        if path.is_file() and path not in met:
            path.write_bytes(b"x")
    np.testing.assert_array_equal(file.read(5, 30, slice(40, 60)), array[5:30, 40:60])
    with pytest.raises(DataError, match=r"a\.zarr: expected `file` to be complete"):
        file.read(5, 30, slice(20, 60))


def test_a_damaged_tile_is_named_and_the_others_are_still_read(tmp_path):
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, noise(64, 64, None), tile=(32, 32), compression="zlib")
    with tifffile.TiffFile(path) as tiff:
        offset = tiff.pages.first.dataoffsets[3]
    patch(path, offset, b"x" * 40)
    np.testing.assert_array_equal(read_window(path, slice(0, 32), slice(10, 50)), noise(64, 64, None)[:32, 10:50])
    with pytest.raises(DataError, match=r"a.tif: expected `file` to be complete"):
        read_window(path, slice(30, 40), slice(30, 40))


def test_what_needs_conversion_has_no_windows(tmp_path):
    put(tmp_path / "a.png", noise())
    tifffile.imwrite(tmp_path / "b.tif", np.zeros((8, 8), bool), photometric="minisblack")
    tifffile.imwrite(tmp_path / "h.tif", np.zeros((8, 8), np.float16))
    assert not any(has_windows(read_header(tmp_path / name)) for name in ("a.png", "b.tif", "h.tif"))
