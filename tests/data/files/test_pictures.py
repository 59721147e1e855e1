"""PNG, JPEG and BMP files: our reader of label PNGs gives what Pillow gives, or leaves the file to Pillow."""

import io
import os
import struct
import subprocess
import sys
import zlib
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from segmeter.classes import ClassSpec
from segmeter.data.files import pictures
from segmeter.data.files.pictures import decode_samples
from segmeter.data.files.png_rows import undo_filters
from segmeter.data.images import read_image
from segmeter.errors import DataError
from tests.data.crafted import BINARY, chunk, encoded, noise, orientation, png_bytes, put, read_mask
from tests.data.files.fuzzed.mutations import in_bytes, in_png, of

KINDS = [(0, 1), (0, 2), (0, 4), (0, 8), (0, 16), (3, 1), (3, 2), (3, 4), (3, 8)]
LIMIT = 10**6


def pack_rows(samples, bits):
    """Return the bytes of rows of samples, by the definition in the PNG specification."""
    if bits == 16:
        return samples.astype(">u2").view(np.uint8).reshape(len(samples), -1)
    each = np.unpackbits(samples.astype(np.uint8)[:, :, None], axis=2)[:, :, 8 - bits :]
    return np.packbits(each.reshape(len(samples), -1), axis=1)


def filtered(rows, kinds, step):
    """Filter each row as the specification says; shares no code with the reader."""
    out, height, width = bytearray(), *rows.shape
    for y in range(height):
        out.append(kinds[y])
        for x in range(width):
            a = int(rows[y, x - step]) if x >= step else 0
            b = int(rows[y - 1, x]) if y else 0
            c = int(rows[y - 1, x - step]) if y and x >= step else 0
            nearest = min((abs(b - c), 0, a), (abs(a - c), 1, b), (abs(a + b - 2 * c), 2, c))[2]
            guess = (0, a, b, (a + b) // 2, nearest)[kinds[y]]
            out.append((int(rows[y, x]) - guess) % 256)
    return bytes(out)


def encode(samples, colour, bits, kinds, *, parts=1, before=b"", after=b""):
    """A PNG with these samples, and with other chunks before and after its pixels."""
    rows = pack_rows(samples, bits)
    packed = zlib.compress(filtered(rows, kinds, max(1, bits // 8)))
    edges = np.linspace(0, len(packed), parts + 1).astype(int)
    palette = chunk(b"PLTE", bytes(range(3 * 2 ** min(bits, 8) % 256)) or bytes(768)) if colour == 3 else b""
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", struct.pack(">IIBBBBB", samples.shape[1], samples.shape[0], bits, colour, 0, 0, 0))
        + palette
        + before
        + b"".join(chunk(b"IDAT", packed[a:b]) for a, b in pairwise(edges))
        + after
        + chunk(b"IEND", b"")
    )


def by_pillow(content):
    """Stored samples as Pillow gives them, or None where it refuses."""
    try:
        with Image.open(io.BytesIO(content), formats=["PNG"]) as picture:
            picture.load()
            samples, bits = np.asarray(picture), content[24]
            if picture.mode == "L" and bits in (2, 4):
                samples = samples // (85 if bits == 2 else 17)
            return samples.astype(np.uint16 if bits == 16 else np.uint8)
    except Exception:
        return None


def draw(rng: np.random.Generator, height: int, width: int, bits: int) -> np.ndarray:
    """Flat areas with some noise, as label maps have."""
    areas = rng.integers(0, 2**bits, (height // 4 + 1, width // 9 + 1))
    samples = np.repeat(np.repeat(areas, 4, 0), 9, 1)[:height, :width]
    noisy = rng.random(samples.shape) < rng.choice([0, 0.02, 1])
    return np.where(noisy, rng.integers(0, 2**bits, samples.shape), samples)


@pytest.mark.parametrize(("colour", "bits"), KINDS)
def test_every_kind_and_filter_gives_the_stored_samples(colour, bits):
    rng = np.random.default_rng(bits + 100 * colour)
    for width in (1, 2, 7, 8, 9, 17, 40, 65):
        for kinds in (*np.full((5, 13), np.arange(5)[:, None]), rng.integers(0, 5, 13)):
            samples = draw(rng, 13, width, bits)
            content = encode(samples, colour, bits, kinds, parts=int(rng.integers(1, 4)))
            found = decode_samples(content, max_pixels=LIMIT)
            assert found is not None
            assert found.dtype == (np.uint16 if bits == 16 else np.uint8)
            np.testing.assert_array_equal(found, samples)
            np.testing.assert_array_equal(by_pillow(content), samples)


@pytest.mark.parametrize("seed", range(4))
def test_a_damaged_file_is_never_accepted_unless_pillow_gives_the_same(seed):
    """A thousand files a seed, changed in any bytes or behind checksums that fit."""
    rng = np.random.default_rng(seed)
    accepted = 0
    for _ in range(1000):
        colour, bits = KINDS[rng.integers(len(KINDS))]
        samples = draw(rng, int(rng.integers(1, 12)), int(rng.integers(1, 30)), bits)
        content = encode(samples, colour, bits, rng.integers(0, 5, len(samples)), parts=int(rng.integers(1, 3)))
        broken = of(rng, (in_png, in_png, in_bytes))(content, rng)
        found = decode_samples(broken, max_pixels=LIMIT)
        if found is not None:
            accepted += 1
            np.testing.assert_array_equal(found, by_pillow(broken), err_msg=repr(broken))
    assert accepted > 50, "the mutations are too strong to test anything"


CHUNKS = (b"gAMA", b"cHRM", b"sRGB", b"pHYs", b"tIME", b"bKGD", b"sBIT", b"tRNS", b"tEXt", b"zTXt", b"iTXt", b"eXIf")
CHUNKS += (b"iCCP", b"PLTE", b"acTL", b"fcTL", b"fdAT", b"IDAT", b"IHDR", b"vpAg", b"IEND")


@pytest.mark.parametrize(("colour", "bits"), KINDS)
def test_other_chunks_change_nothing_and_are_never_accepted_where_pillow_refuses(colour, bits):
    """Every name with bodies of many lengths."""
    rng = np.random.default_rng(bits + 100 * colour)
    samples, accepted = draw(rng, 5, 9, bits), set()
    for name in CHUNKS:
        for length in (*range(12), 26, 31, 32, 33, 255, 256, 257, 768, 769):
            if name == b"cHRM" and length > 32 and length % 4:
                continue  # refused by Pillow 12 alone, which reads all of it as whole numbers
            body = rng.choice([0, 1, 255, 65], length).astype(np.uint8).tobytes()
            for where in ("before", "after"):
                content = encode(samples, colour, bits, np.zeros(5, int), **{where: chunk(name, body)})
                found = decode_samples(content, max_pixels=LIMIT)
                if found is not None:
                    accepted.add(name)
                    np.testing.assert_array_equal(found, by_pillow(content), err_msg=f"{name!r} {length} {where}")
    assert accepted - {b"IDAT"} == {b"gAMA", b"cHRM", b"sRGB", b"pHYs", b"tIME", b"bKGD", b"sBIT", b"tRNS"}


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content[:-1],
        lambda content: content + b"\0",
        lambda content: content.replace(b"IEND", b"IEnD"),
        lambda content: b"",
        lambda content: content[:33],
        lambda content: content[:8] + content[33:],
        lambda content: content[:8] + bytes(25),
    ],
)
def test_what_is_not_in_order_is_left_to_pillow(change):
    content = encode(np.ones((3, 4), int), 0, 8, np.zeros(3, int))
    assert decode_samples(content, max_pixels=LIMIT) is not None
    assert decode_samples(change(content), max_pixels=LIMIT) is None


def test_a_size_over_the_limit_is_not_inflated(monkeypatch):
    content = encode(np.ones((3, 4), int), 0, 8, np.zeros(3, int))
    monkeypatch.setattr(pictures, "_inflate", lambda *_, **__: pytest.fail("inflated"))
    assert decode_samples(content, max_pixels=11) is None


def test_a_stream_of_another_length_than_the_header_says_is_refused():
    found = [decode_samples(png_bytes(bytes(rows * 5), height=3, width=4), max_pixels=LIMIT) for rows in (2, 3, 4)]
    assert [each is None for each in found] == [True, False, True]


def test_an_unknown_filter_is_told():
    assert not undo_filters(np.array([5, 1], np.uint8), np.zeros(1, np.uint8), 1, 1, 1)


@pytest.mark.slow
def test_the_kernels_stay_inside_their_arrays(tmp_path):
    """The same files with every index checked by numba."""
    code = "import pytest; raise SystemExit(pytest.main(['-q', '-p', 'no:cacheprovider', '-k', 'every_kind', PATH]))"
    environment = os.environ | {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", code.replace("PATH", repr(__file__))]
    options = {"capture_output": True, "text": True, "cwd": Path(__file__).parents[3]}
    done = subprocess.run(command, env=environment, check=False, **options)
    assert done.returncode == 0, done.stdout[-2000:]


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


TURNED = orientation(6).removeprefix(b"Exif\0\0")


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
