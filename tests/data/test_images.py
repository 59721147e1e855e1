import os

import numpy as np
import pytest
import tifffile
from PIL import Image, ImageOps

from segmeter.classes import ClassSpec
from segmeter.data.images import read_image
from segmeter.errors import DataError
from tests.data.crafted import THREE, encoded, noise, png_bytes, put, read_mask


@pytest.mark.parametrize("suffix", ["png", "bmp", "tif", "npy"])
@pytest.mark.parametrize("channels", [None, 3], ids=["gray", "rgb"])
def test_read_image_gives_every_pixel_of_lossless_formats(tmp_path, suffix, channels):
    pixels = noise(7, 5, channels)
    path = tmp_path / f"x.{suffix}"
    if suffix == "npy":
        np.save(path, pixels)
    else:
        Image.fromarray(pixels).save(path)
    image = read_image(path)
    assert image.dtype == np.uint8
    assert image.shape == (7, 5, channels or 1)
    np.testing.assert_array_equal(image, pixels.reshape(image.shape))


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "float32"])
@pytest.mark.parametrize("planar", [False, True], ids=["interleaved", "planar"])
def test_read_image_gives_tiff_samples_in_their_dtype(tmp_path, dtype, planar):
    pixels = (np.arange(7 * 5 * 3).reshape(7, 5, 3) * 2).astype(dtype)
    stored = np.moveaxis(pixels, -1, 0) if planar else pixels
    tifffile.imwrite(tmp_path / "x.tif", stored, photometric="rgb", planarconfig="separate" if planar else "contig")
    image = read_image(tmp_path / "x.tif", channels=3)
    assert image.dtype == dtype
    np.testing.assert_array_equal(image, pixels)


@pytest.mark.parametrize("planar", [False, True], ids=["interleaved", "planar"])
def test_tiff_planes_are_told_from_samples_where_all_sides_are_equal(tmp_path, planar):
    pixels = np.arange(27, dtype=np.uint8).reshape(3, 3, 3)
    stored = np.moveaxis(pixels, -1, 0) if planar else pixels
    tifffile.imwrite(tmp_path / "x.tif", stored, photometric="rgb", planarconfig="separate" if planar else "contig")
    np.testing.assert_array_equal(read_image(tmp_path / "x.tif"), pixels)


def test_read_refuses_a_tiff_strip_that_is_not_there(tmp_path):
    """Decoders fill it with zeros, which a mask would take for background."""
    path = tmp_path / "x.tif"
    tifffile.imwrite(path, noise(8, 8, None), rowsperstrip=2, compression="zlib")
    with tifffile.TiffFile(path, mode="r+b") as tiff:
        tag = tiff.pages.first.tags["StripByteCounts"]
        tag.overwrite((*tag.value[:3], 0))
    assert (tifffile.imread(path)[6:] == 0).all()
    with pytest.raises(DataError, match=r"the file ends before its pixels do"):
        read_image(path)


def test_read_image_widens_float16_and_refuses_float64(tmp_path):
    np.save(tmp_path / "half.npy", np.float16([[0.5, 2.25]]))
    image = read_image(tmp_path / "half.npy")
    assert image.dtype == np.float32
    assert image[0, 1, 0] == 2.25
    np.save(tmp_path / "double.npy", np.float64([[0.1]]))
    with pytest.raises(DataError, match=r"of dtype uint8, uint16, float32, got float64"):
        read_image(tmp_path / "double.npy")


def test_read_image_refuses_16_bit_colour_png_which_pillow_would_cut(tmp_path):
    path = put(tmp_path / "x.png", png_bytes(b"\0" + b"\x12\x34" * 3, height=1, width=1, bits=16, colour=2))
    assert np.asarray(Image.open(path)).dtype == np.uint8
    with pytest.raises(DataError, match=r"16-bit colour PNG. Save it as TIFF"):
        read_image(path)


@pytest.mark.parametrize("cut", [10, 50, 90], ids=lambda percent: f"{percent}-percent")
@pytest.mark.parametrize("suffix", ["png", "jpg", "bmp", "tif", "npy"])
def test_read_refuses_truncated_files(tmp_path, suffix, cut):
    path = tmp_path / f"x.{suffix}"
    pixels = noise(64, 64)
    if suffix == "npy":
        np.save(path, pixels)
    else:
        Image.fromarray(pixels).save(path)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) * cut // 100])
    with pytest.raises(DataError, match=r"x\.\w+: expected .* got truncated or damaged data"):
        read_image(path)


def test_read_refuses_a_tiff_of_absurd_shape_before_allocating(tmp_path):
    path = tmp_path / "x.tif"
    tifffile.imwrite(path, noise(8, 8, None))
    with tifffile.TiffFile(path, mode="r+b") as tiff:
        tiff.pages.first.tags["ImageWidth"].overwrite(2_000_000_000)
    with pytest.raises(DataError, match=r"got 8 x 2000000000"):
        read_image(path)


@pytest.mark.parametrize(("limit", "passes"), [(120, True), (119, False)])
def test_read_image_takes_max_pixels_and_not_one_more(tmp_path, limit, passes):
    path = put(tmp_path / "x.png", noise(12, 10))
    if passes:
        assert read_image(path, max_pixels=limit).shape == (12, 10, 3)
    else:
        with pytest.raises(DataError, match=r"at most 119 pixels, got 12 x 10"):
            read_image(path, max_pixels=limit)


@pytest.mark.parametrize("tag", range(2, 9))
@pytest.mark.parametrize("suffix", ["png", "tif"])
def test_orientation_apply_turns_the_pixels_as_pillow_does(tmp_path, tag, suffix):
    pixels = noise(6, 4)
    exif = Image.Exif()
    exif[0x0112] = tag
    path = tmp_path / f"x.{suffix}"
    if suffix == "png":
        put(path, encoded(pixels, exif=exif.tobytes()))
        upright = np.asarray(ImageOps.exif_transpose(Image.open(path)))
    else:
        tifffile.imwrite(path, pixels, photometric="rgb", extratags=[(274, "H", 1, tag, True)])
        picture = Image.fromarray(pixels)
        picture.getexif()[0x0112] = tag
        upright = np.asarray(ImageOps.exif_transpose(picture))
    np.testing.assert_array_equal(read_image(path, orientation="apply"), upright)
    np.testing.assert_array_equal(read_image(path, orientation="ignore"), pixels)
    with pytest.raises(DataError, match=r"data.orientation=apply"):
        read_image(path)


def test_read_mask_gives_16_bit_values(tmp_path):
    spec = ClassSpec(
        task="multiclass", names=tuple(map(str, range(300))), colours=((0, 0, 0),) * 300, ignore_index=65535
    )
    values = np.uint16([[0, 299], [256, 65535]])
    for name in ("x.png", "x.tif"):
        (tifffile.imwrite if name.endswith("tif") else _save)(tmp_path / name, values)
        labels = read_mask(tmp_path / name, spec=spec)
        assert labels.dtype == np.uint16
        np.testing.assert_array_equal(labels, values)


def _save(path, values):
    Image.fromarray(values).save(path)


def test_read_mask_maps_colours(tmp_path):
    colours = np.uint8([[[128, 64, 0], [0, 0, 0]], [[255, 255, 255], [128, 64, 0]]])
    path = put(tmp_path / "x.png", colours)
    label_map = {"128,64,0": 2, "0,0,0": 0, "255,255,255": 255}
    np.testing.assert_array_equal(read_mask(path, spec=THREE, label_map=label_map), [[2, 0], [255, 2]])
    with pytest.raises(DataError, match=r"128,64,0; 0,0,0, got 255,255,255 \(1 pixels\)"):
        read_mask(path, spec=THREE, label_map={"128,64,0": 2, "0,0,0": 0})


@pytest.mark.skipif(getattr(os, "geteuid", int)() == 0, reason="root, and anyone on Windows, reads files of any mode")
def test_read_names_a_file_that_may_not_be_read(tmp_path):
    path = put(tmp_path / "x.png", noise())
    path.chmod(0)
    with pytest.raises(DataError, match=r"Permission denied"):
        read_image(path)


def test_read_image_takes_big_endian_and_fortran_arrays(tmp_path):
    pixels = np.asfortranarray(np.arange(70, dtype=">u2").reshape(7, 5, 2))
    np.save(tmp_path / "x.npy", pixels)
    image = read_image(tmp_path / "x.npy", channels=2)
    assert image.dtype == np.uint16
    assert image.dtype.isnative
    assert image.flags.c_contiguous
    np.testing.assert_array_equal(image, pixels)
