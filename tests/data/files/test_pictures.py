"""PNG, JPEG and BMP files by Pillow and by the compiled reader."""

import numpy as np
import pytest
from PIL import Image

from segmeter.classes import ClassSpec
from segmeter.data.files import pictures
from segmeter.data.images import read_image
from segmeter.errors import DataError
from tests.data.crafted import BINARY, chunk, encoded, noise, png_bytes, put, read_mask


def test_read_takes_a_png_whose_damage_pillow_alone_would_not_see(tmp_path):
    """A wrong CRC over right pixels: Pillow shows the picture, we don't."""
    content = bytearray(encoded(noise(4, 4)))
    content[-13] ^= 1  # last byte of the IDAT chunk's CRC
    path = put(tmp_path / "x.png", bytes(content))
    np.asarray(Image.open(path))
    with pytest.raises(DataError, match=r"checksum"):
        read_image(path)


def test_orientation_after_the_pixels_is_refused_too(tmp_path):
    plain = encoded(noise(6, 4))
    late = plain[:-12] + chunk(b"eXIf", TURNED) + plain[-12:]
    with pytest.raises(DataError, match=r"got 6, after the pixels"):
        read_image(put(tmp_path / "x.png", late), orientation="apply")


def test_read_image_gives_the_colours_of_a_palette(tmp_path):
    picture = Image.fromarray(np.uint8([[0, 1], [1, 2]])).convert("P")
    picture.putpalette([10, 20, 30, 40, 50, 60, 70, 80, 90])
    picture.save(tmp_path / "x.png")
    expected = [[[10, 20, 30], [40, 50, 60]], [[40, 50, 60], [70, 80, 90]]]
    np.testing.assert_array_equal(read_image(tmp_path / "x.png", channels=3), expected)


def test_transparency_is_a_channel_only_where_four_are_asked_for(tmp_path):
    pixels = noise(5, 4, 4)
    path = put(tmp_path / "x.png", pixels)
    np.testing.assert_array_equal(read_image(path, channels=4), pixels)
    extra = chunk(b"PLTE", bytes(6)) + chunk(b"tRNS", b"\x00\xff")
    palette = put(tmp_path / "p.png", png_bytes(b"\0\0\1", height=1, width=2, colour=3, extra=extra))
    for each in (path, palette):
        with pytest.raises(DataError, match=r"to be opaque, got transparent pixels"):
            read_image(each, channels=3)


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


ON_ITS_SIDE = Image.Exif()
ON_ITS_SIDE[0x0112] = 6
TURNED = ON_ITS_SIDE.tobytes().removeprefix(b"Exif\0\0")


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
    content = encoded(noise(4, 6, None) % 2)
    path = put(tmp_path / "x.png", content[:33] + chunk(name, body) + content[33:])
    with pytest.raises(DataError, match=r"`EXIF orientation` to be 1 \(upright\), got 6"):
        read_mask(path, spec=BINARY)


def test_the_first_masks_are_left_to_pillow_which_gives_the_same(tmp_path, monkeypatch):
    path, compiled = put(tmp_path / "x.png", noise(40, 50, None) % 2), list[bool]()
    decode = pictures.decode_samples
    monkeypatch.setattr(pictures, "_by_pillow", 0)
    monkeypatch.setattr(pictures, "PLAIN_PIXELS", pictures.LEAST)
    monkeypatch.setattr(
        pictures, "decode_samples", lambda *given, **limit: compiled.append(True) or decode(*given, **limit)
    )
    by_pillow = read_mask(path, spec=BINARY)
    assert not compiled
    np.testing.assert_array_equal(read_mask(path, spec=BINARY), by_pillow)
    assert compiled
