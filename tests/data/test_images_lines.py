"""Images and masks by rows are what decoding the whole gives, and what is refused of the whole is refused here."""

import numpy as np
import pytest
import tifffile
from PIL import Image

from segmeter.data.files.opened import open_array, read_header
from segmeter.data.images import open_image_lines, read_image
from segmeter.data.masks.reading import open_map
from segmeter.data.sample import Reading
from segmeter.errors import DataError
from tests.data.crafted import THREE, noise, write_zarr

READ = {"channels": None, "orientation": "refuse", "max_pixels": 10_000, "level": 0}
PARTS = ((0, 5), (5, 23), (23, 40))


def whole(rows):
    """All rows, in parts."""
    return np.concatenate([rows.read(start, min(stop, rows.shape[0])) for start, stop in PARTS])


@pytest.fixture(autouse=True)
def tiffs_are_large(monkeypatch):
    monkeypatch.setattr("segmeter.data.files.array.STREAMED_PIXELS", 100)


@pytest.mark.parametrize(
    ("dtype", "channels", "wanted"),
    [("uint8", 3, "uint8"), ("uint16", None, "uint16"), ("float16", None, "float32"), ("bool", None, "uint8")],
)
def test_rows_of_a_tiff_are_those_of_the_image(tmp_path, dtype, channels, wanted):
    """Floats of 16 bits and single bits are given as `read_image` gives them."""
    array = (noise(40, 30, channels) // (128 if dtype == "bool" else 1)).astype(dtype)
    kind = "rgb" if channels else "minisblack"
    tifffile.imwrite(tmp_path / "a.tif", array, photometric=kind, rowsperstrip=8, metadata=None)
    image = read_image(tmp_path / "a.tif")
    with open_image_lines(tmp_path / "a.tif", **READ) as rows:
        assert (rows.shape, rows.dtype) == (image.shape, np.dtype(wanted)) == ((40, 30, channels or 1), image.dtype)
        found = whole(rows)
    assert found.dtype == image.dtype
    np.testing.assert_array_equal(found, image)


def test_a_large_zarr_has_a_header_but_only_where_it_is_read_by_rows(tmp_path):
    write_zarr(tmp_path / "a.zarr", noise(40, 30, None), "yx", chunks=(8, 8))
    assert read_header(tmp_path / "a.zarr", max_pixels=100, streams=True).height == 40
    with pytest.raises(DataError, match=r"a\.zarr"):
        read_header(tmp_path / "a.zarr", max_pixels=100)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_value_that_is_not_finite_is_refused_where_its_row_is_read(tmp_path, bad):
    array = noise(40, 30, None).astype(np.float32)
    array[30, 7] = array[30, 9] = bad
    tifffile.imwrite(tmp_path / "a.tif", array, rowsperstrip=8)
    with open_image_lines(tmp_path / "a.tif", **READ) as rows:
        assert rows.read(0, 30).shape == (30, 30, 1)
        with pytest.raises(DataError, match=r"a.tif: expected `image` to be finite, got 2 NaN or infinite values"):
            rows.read(29, 31)


@pytest.mark.parametrize(
    ("orientation", "rule"), [("apply", "`EXIF orientation` to be 1 in a large file, got 6"), ("refuse", "orientation")]
)
def test_a_large_image_on_its_side_is_not_turned(tmp_path, orientation, rule):
    tags = [(274, "H", 1, 6, True)]
    tifffile.imwrite(tmp_path / "a.tif", noise(40, 30, None), extratags=tags, metadata=None)
    with open_image_lines(tmp_path / "a.tif", **(READ | {"orientation": "ignore"})) as rows:
        assert rows.shape == (40, 30, 1)
    with pytest.raises(DataError, match=rule):
        open_image_lines(tmp_path / "a.tif", **(READ | {"orientation": orientation})).__enter__()


def test_the_number_of_channels_is_checked_before_a_row_is_read(tmp_path):
    tifffile.imwrite(tmp_path / "a.tif", noise(40, 30, None))
    with pytest.raises(DataError, match="channel"), open_image_lines(tmp_path / "a.tif", **(READ | {"channels": 3})):
        pass


@pytest.mark.parametrize("suffix", [".tif", ".bmp", ".zarr"])
def test_rows_of_a_mask_are_labels_by_the_label_map(tmp_path, suffix):
    stored = np.array([10, 20, 77], np.uint8)[noise(40, 30, None) % 3]
    path = tmp_path / f"a{suffix}"
    if suffix == ".zarr":
        write_zarr(path, stored, "yx", chunks=(16, 16))
    else:
        Image.fromarray(stored).save(path)
    label_map = {"10": 2, "20": 0, "77": 255}
    with open_map(path, Reading(spec=THREE, label_map=label_map, max_pixels=10_000)) as rows:
        assert (rows.shape, rows.dtype) == ((40, 30), np.uint8)
        np.testing.assert_array_equal(whole(rows), np.array([2, 0, 255])[np.searchsorted([10, 20, 77], stored)])


def test_a_value_that_is_no_label_is_refused_where_its_row_is_read(tmp_path):
    mask = noise(40, 30, None) % 3
    mask[35, 3] = 9
    tifffile.imwrite(tmp_path / "a.tif", mask, rowsperstrip=8)
    with open_map(tmp_path / "a.tif", Reading(spec=THREE, label_map={}, max_pixels=10_000)) as rows:
        np.testing.assert_array_equal(rows.read(0, 32), mask[:32])
        with pytest.raises(DataError, match=r"`mask` to hold only 0 to 2 and 255 \(ignored\), got 9 \(1 pixels\)"):
            rows.read(32, 40)


def test_a_place_is_read_without_pixels(tmp_path):
    tifffile.imwrite(tmp_path / "a.tif", noise(8, 9, None), imagej=True, resolution=(4, 2), metadata={"unit": "um"})
    array = noise(8, 9, None)
    write_zarr(tmp_path / "b.zarr", array, "yx", attributes={"spacing": [0.5, 0.25], "unit": "um"})
    for path in (tmp_path / "b.zarr" / "c").rglob("*"):
        if path.is_file():
            path.write_bytes(b"x")
    for name in ("a.tif", "b.zarr"):
        with open_array(tmp_path / name) as array:
            found = array.geometry
        assert (found.spacing, found.unit) == ((0.5, 0.25), "um")
    (tmp_path / "b.zarr" / "zarr.json").write_text("{")
    with pytest.raises(DataError, match=r"b\.zarr: expected `file` to be complete, got truncated or damaged data"):
        read_header(tmp_path / "b.zarr")


def test_lines_of_a_picture_that_is_decoded_whole_are_those_of_the_image(tmp_path):
    Image.fromarray(noise(40, 30, 3)).save(tmp_path / "a.png")
    with open_image_lines(tmp_path / "a.png", **READ) as lines:
        np.testing.assert_array_equal(whole(lines), noise(40, 30, 3))
