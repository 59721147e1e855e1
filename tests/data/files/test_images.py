import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tifffile
from PIL import Image, ImageOps

from segmeter.classes import ClassSpec
from segmeter.data.files import images
from segmeter.data.files.images import read_file, read_image
from segmeter.errors import DataError
from tests.data.crafted import BINARY, THREE, chunk, encoded, noise, png_bytes, put, read_mask


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


def test_read_image_takes_big_endian_and_fortran_arrays(tmp_path):
    pixels = np.asfortranarray(np.arange(70, dtype=">u2").reshape(7, 5, 2))
    np.save(tmp_path / "x.npy", pixels)
    image = read_image(tmp_path / "x.npy", channels=2)
    assert image.dtype == np.uint16
    assert image.dtype.isnative
    assert image.flags.c_contiguous
    np.testing.assert_array_equal(image, pixels)


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


@pytest.mark.parametrize("at", [10, 50, 90], ids=lambda percent: f"{percent}-percent")
def test_read_refuses_a_png_with_one_flipped_byte(tmp_path, at):
    content = bytearray(encoded(noise(40, 40)))
    content[len(content) * at // 100] ^= 1
    with pytest.raises(DataError, match=r"expected `file` to be complete, got truncated or damaged"):
        read_image(put(tmp_path / "x.png", bytes(content)))


def test_read_takes_a_png_whose_damage_pillow_alone_would_not_see(tmp_path):
    """A wrong CRC over right pixels: Pillow shows the picture, we don't."""
    content = bytearray(encoded(noise(4, 4)))
    content[-13] ^= 1  # last byte of the IDAT chunk's CRC
    path = put(tmp_path / "x.png", bytes(content))
    np.asarray(Image.open(path))
    with pytest.raises(DataError, match=r"checksum"):
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


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="asks Linux for the peak of its memory")
def test_read_refuses_a_huge_png_from_its_header_in_little_memory(tmp_path):
    path = put(tmp_path / "bomb.png", png_bytes(b"\0" * 1000, height=50000, width=50000))
    code = (
        "import sys\nfrom pathlib import Path\nfrom segmeter.data.files.images import read_image\n"
        "try:\n    read_image(Path(sys.argv[1]))\nexcept Exception as error:\n    print(error)\n"
        "print(Path('/proc/self/status').read_text().partition('VmHWM:')[2].split()[0])"
    )
    run = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=True)
    message, kilobytes = run.stdout.splitlines()  # of this program alone: getrusage counts the parent's peak too
    assert "got 50000 x 50000" in message
    assert "data.max_pixels=2500000000" in message
    assert int(kilobytes) < 200 * 1024


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


def test_orientation_after_the_pixels_is_refused_too(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    plain = encoded(noise(6, 4))
    late = plain[:-12] + chunk(b"eXIf", exif.tobytes()[6:]) + plain[-12:]
    with pytest.raises(DataError, match=r"got 6, after the pixels"):
        read_image(put(tmp_path / "x.png", late), orientation="apply")


def test_read_image_gives_the_colours_of_a_palette(tmp_path):
    picture = Image.fromarray(np.uint8([[0, 1], [1, 2]])).convert("P")
    picture.putpalette([10, 20, 30, 40, 50, 60, 70, 80, 90])
    picture.save(tmp_path / "x.png")
    expected = [[[10, 20, 30], [40, 50, 60]], [[40, 50, 60], [70, 80, 90]]]
    np.testing.assert_array_equal(read_image(tmp_path / "x.png", channels=3), expected)


def test_read_image_refuses_a_palette_with_a_transparent_colour(tmp_path):
    extra = chunk(b"PLTE", bytes(6)) + chunk(b"tRNS", b"\x00\xff")
    path = put(tmp_path / "x.png", png_bytes(b"\0\0\1", height=1, width=2, colour=3, extra=extra))
    with pytest.raises(DataError, match=r"to be opaque, got transparent pixels"):
        read_image(path)


def test_rgba_is_four_channels_only_where_four_are_asked_for(tmp_path):
    pixels = noise(5, 4, 4)
    path = put(tmp_path / "x.png", pixels)
    np.testing.assert_array_equal(read_image(path, channels=4), pixels)
    with pytest.raises(DataError, match=r"transparent pixels"):
        read_image(path, channels=3)


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
def test_read_mask_gives_the_stored_values_of_low_bit_depths(tmp_path, bits):
    """0b00011011 holds the samples 0,0,0,1,1,0,1,1 or 0,1,2,3 or 1,11 or 27."""
    samples = {1: [0, 0, 0, 1, 1, 0, 1, 1], 2: [0, 1, 2, 3], 4: [1, 11], 8: [27]}[bits]
    path = put(tmp_path / "x.png", png_bytes(b"\0\x1b", height=1, width=len(samples), bits=bits))
    names = tuple(f"class {k}" for k in range(30))
    spec = ClassSpec(task="multiclass", names=names, colours=((0, 0, 0),) * 30)
    labels = read_mask(path, spec=spec)
    assert labels.dtype == np.uint8
    np.testing.assert_array_equal(labels, [samples])


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


EXIF_ON_ITS_SIDE = Image.Exif()
EXIF_ON_ITS_SIDE[0x0112] = 6
TURNED = EXIF_ON_ITS_SIDE.tobytes().removeprefix(b"Exif\0\0")


@pytest.mark.parametrize(
    ("name", "body"),
    [
        (b"eXIf", TURNED),
        (b"tEXt", b"Raw profile type exif\0\nexif\n%8d\n%s\n" % (len(TURNED), TURNED.hex().encode())),
        (b"tEXt", b'XML:com.adobe.xmp\0<rdf tiff:Orientation="6"/>'),
    ],
    ids=["exif", "profile", "xmp"],
)
def test_read_mask_refuses_an_orientation_wherever_a_png_holds_it(tmp_path, name, body):
    """Mutation seen to fail: every text is harmless."""
    content = encoded(noise(4, 6, None) % 2)
    path = put(tmp_path / "x.png", content[:33] + chunk(name, body) + content[33:])
    with pytest.raises(DataError, match=r"`EXIF orientation` to be 1 \(upright\), got 6"):
        read_mask(path, spec=BINARY)


def test_read_mask_refuses_an_animation_of_one_channel(tmp_path):
    frames = [Image.fromarray(noise(4, 6, None, seed=i) % 2) for i in range(3)]
    frames[0].save(tmp_path / "x.png", save_all=True, append_images=frames[1:])
    with pytest.raises(DataError, match="to hold one picture, got 3 frames"):
        read_mask(tmp_path / "x.png", spec=BINARY)


def test_small_masks_are_left_to_pillow_which_gives_the_same(tmp_path, monkeypatch):
    path = put(tmp_path / "x.png", noise(40, 50, None) % 2)
    compiled = read_mask(path, spec=BINARY)
    monkeypatch.setattr(images, "LEAST_COMPILED", 2001)
    monkeypatch.setattr(images, "decode_samples", lambda *_, **__: pytest.fail("the compiled reader was loaded"))
    np.testing.assert_array_equal(read_mask(path, spec=BINARY), compiled)


def test_a_mask_that_is_too_large_is_refused_before_its_content_is_read(tmp_path):
    path = put(tmp_path / "x.png", png_bytes(b"rubbish", height=3, width=4))
    with pytest.raises(DataError, match=r"at most 11 pixels, got 3 x 4 \(height x width\)"):
        read_file(path, max_pixels=11)


def _save(path, values):
    Image.fromarray(values).save(path)


def test_read_mask_takes_bool_and_wide_integers_that_are_labels(tmp_path):
    for values in (np.array([[True, False]]), np.int64([[1, 0]]), np.array([[1, 0]], ">i2")):
        np.save(tmp_path / "x.npy", values)
        labels = read_mask(tmp_path / "x.npy", spec=BINARY)
        assert labels.dtype == np.uint8
        np.testing.assert_array_equal(labels, [[1, 0]])


def test_read_mask_maps_colours(tmp_path):
    colours = np.uint8([[[128, 64, 0], [0, 0, 0]], [[255, 255, 255], [128, 64, 0]]])
    path = put(tmp_path / "x.png", colours)
    label_map = {"128,64,0": 2, "0,0,0": 0, "255,255,255": 255}
    np.testing.assert_array_equal(read_mask(path, spec=THREE, label_map=label_map), [[2, 0], [255, 2]])
    with pytest.raises(DataError, match=r"128,64,0; 0,0,0, got 255,255,255 \(1 pixels\)"):
        read_mask(path, spec=THREE, label_map={"128,64,0": 2, "0,0,0": 0})


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads files whatever their mode")
def test_read_names_a_file_that_may_not_be_read(tmp_path):
    path = put(tmp_path / "x.png", noise())
    path.chmod(0)
    with pytest.raises(DataError, match=r"Permission denied"):
        read_image(path)
