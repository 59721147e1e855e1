"""Windows of TIFF and NPY files and of Zarr folders are what decoding the whole has there."""

from itertools import product

import numpy as np
import pytest
import tifffile

from segmeter.data.files.opened import open_array, read_header
from segmeter.data.images import read_image
from segmeter.errors import DataError
from segmeter.training.data.windows import has_windows
from tests.data.crafted import noise, patch, put, write_zarr

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
    found = read_window(tmp_path / "a.npy", slice(3, 9), slice(5, 6))
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
