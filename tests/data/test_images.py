"""Images whole and by lines, masks by lines, and thumbnails: every pixel as stored, or a refusal."""

import io

import numpy as np
import pytest
import tifffile
from PIL import Image, ImageOps

from segmeter.classes import ClassSpec
from segmeter.data.files.array import ArrayRows
from segmeter.data.files.opened import read_header
from segmeter.data.images import Thumbnail, open_image_lines, read_image, tapped
from segmeter.data.masks.reading import open_map
from segmeter.data.sample import Reading
from segmeter.errors import DataError
from tests.data.crafted import THREE, encoded, noise, orientation, put, read_mask, write_zarr


@pytest.mark.parametrize("suffix", ["png", "bmp", "tif", "npy"])
@pytest.mark.parametrize("channels", [None, 3], ids=["gray", "rgb"])
def test_read_image_gives_every_pixel_of_lossless_formats(tmp_path, suffix, channels):
    pixels = noise(7, 5, channels)
    image = read_image(put(tmp_path / f"x.{suffix}", pixels))
    assert image.dtype == np.uint8
    assert image.shape == (7, 5, channels or 1)
    np.testing.assert_array_equal(image, pixels.reshape(image.shape))


@pytest.mark.parametrize("cut", [10, 50, 90], ids=lambda percent: f"{percent}-percent")
@pytest.mark.parametrize("suffix", ["png", "jpg", "bmp", "tif", "npy"])
def test_read_refuses_truncated_files(tmp_path, suffix, cut):
    path = put(tmp_path / f"x.{suffix}", noise(64, 64))
    content = path.read_bytes()
    path.write_bytes(content[: len(content) * cut // 100])
    with pytest.raises(DataError, match=r"x\.\w+: expected .* got truncated or damaged data"):
        read_image(path)


def test_read_image_takes_max_pixels_and_not_one_more(tmp_path):
    path = put(tmp_path / "x.png", noise(12, 10))
    assert read_image(path, max_pixels=120).shape == (12, 10, 3)
    with pytest.raises(DataError, match=r"at most 119 pixels, got 12 x 10"):
        read_image(path, max_pixels=119)


@pytest.mark.parametrize("tag", range(2, 9))
@pytest.mark.parametrize("suffix", ["png", "tif"])
def test_orientation_apply_turns_the_pixels_as_pillow_does(tmp_path, tag, suffix):
    pixels, path = noise(6, 4), tmp_path / f"x.{suffix}"
    picture = encoded(pixels, exif=orientation(tag))
    if suffix == "png":
        put(path, picture)
    else:
        tifffile.imwrite(path, pixels, photometric="rgb", extratags=[(274, "H", 1, tag, True)])
    found = read_image(path, orientation="apply")
    np.testing.assert_array_equal(found, np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(picture)))))
    assert found.flags.c_contiguous
    np.testing.assert_array_equal(read_image(path, orientation="ignore"), pixels)


def test_read_mask_gives_16_bit_values(tmp_path):
    names = tuple(map(str, range(300)))
    spec = ClassSpec(task="multiclass", names=names, colours=((0, 0, 0),) * 300, ignore_index=65535)
    values = np.uint16([[0, 299], [256, 65535]])
    put(tmp_path / "x.png", values)
    tifffile.imwrite(tmp_path / "x.tif", values)
    for name in ("x.png", "x.tif"):
        np.testing.assert_array_equal(read_mask(tmp_path / name, spec=spec), values, strict=True)


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


def test_more_pixels_than_allowed_may_only_be_read_by_rows(tmp_path):
    write_zarr(tmp_path / "a.zarr", noise(40, 30, None), "yx", chunks=(8, 8))
    tifffile.imwrite(tmp_path / "a.tif", noise(40, 30, None), tile=(16, 16))
    for name in ("a.zarr", "a.tif"):
        assert read_header(tmp_path / name, max_pixels=1000, streams=True).streamed
        with pytest.raises(DataError, match=rf"{name}: .*at most 1000 pixels, got 40 x 30.*data.max_pixels=1200"):
            read_header(tmp_path / name, max_pixels=1000)


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"orientation": "apply"}, "`EXIF orientation` to be 1 in a large file, got 6"),
        ({"orientation": "refuse"}, "orientation"),
        ({"orientation": "ignore", "channels": 3}, "to have 3 channels"),
    ],
    ids=str,
)
def test_a_large_image_on_its_side_or_of_other_channels_is_refused_before_a_row_is_read(tmp_path, options, rule):
    tags = [(274, "H", 1, 6, True)]
    tifffile.imwrite(tmp_path / "a.tif", noise(40, 30, None), extratags=tags, metadata=None)
    with open_image_lines(tmp_path / "a.tif", **(READ | {"orientation": "ignore"})) as rows:
        assert rows.shape == (40, 30, 1)
    with pytest.raises(DataError, match=rule):
        open_image_lines(tmp_path / "a.tif", **(READ | options)).__enter__()


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
