"""The bad-input corpus: one refusal (or stated reading) per number of a file, with the message that a user sees."""

import io
import os
from pathlib import Path

import numpy as np
import pytest
import tifffile
from PIL import Image

from segmeter.data.images import read_image
from segmeter.data.verification.splits import build_dataset, check_dataset
from segmeter.errors import DataError
from segmeter.files import safe_id
from tests.data.crafted import BINARY, encoded, folder, make_folder, noise, orientation, png_bytes, put, read_mask


def _animated(form):
    first, *others = [Image.fromarray(noise(seed=seed)) for seed in range(3)]
    return encoded(first, form, save_all=True, append_images=others)


def _tiff(array, **options):
    buffer = io.BytesIO()
    tifffile.imwrite(buffer, array, **options)
    return buffer.getvalue()


def _rgba(alpha):
    return np.dstack([noise(), np.full((12, 10), alpha, np.uint8)])


PNG, INKS = encoded(noise()), Image.fromarray(noise()).convert("CMYK")
TURNED = encoded(noise(), "JPEG", exif=orientation(6))
DEEP = png_bytes(b"\0" + b"\x12\x34" * 3, height=1, width=1, bits=16, colour=2)
PAGES = _tiff(np.stack([noise(channels=None, seed=s) for s in range(4)]), photometric="minisblack")
IMAGES = [
    ("55-empty", "x.png", b"", r"x.png: expected `file` to hold an image, got an empty file \(0 bytes\)"),
    ("57-bomb", "x.png", png_bytes(b"\0", height=50000, width=50000), "at most 200000000 pixels, got 50000 x 50000"),
    ("58-text-as-png", "x.png", b"hello world", "to be PNG, JPEG, BMP, TIFF or NPY, got text. Replace it"),
    ("58-html-as-png", "x.png", b"<!DOCTYPE html><html>", "got an HTML page. Download the file itself"),
    ("58-git-lfs", "x.png", b"version https://git-lfs.github.com/spec/v1", "git-lfs pointer. Run `git lfs pull`"),
    ("58-unknown", "x.png", b"\x00\xfe", "got unknown bytes. Save the picture as PNG"),
    ("59-png-as-jpg", "x.jpg", PNG, "suffix` to fit the content, PNG, got '.jpg'. Rename the file to .png"),
    ("60-cmyk", "x.jpg", encoded(INKS, "JPEG"), r"to be gray or RGB, got CMYK \(4 inks\). Convert it to RGB"),
    ("61-rgba", "x.png", encoded(_rgba(254)), "to be opaque, got transparent pixels. Flatten it"),
    ("62-16-bit-colours", "x.png", DEEP, "16-bit colour PNG. Save it as TIFF: PNG decoding would cut it to 8 bits"),
    ("64-double", "x.npy", np.float64([[0.1]]), "of dtype uint8, uint16, float32, got float64. Save it as one"),
    ("64-nan", "x.tif", _tiff(np.float32([[np.nan, 1, np.inf]])), "to be finite, got 2 NaN or infinite values"),
    ("65-pages", "x.tif", PAGES, "to hold one page, got 4 pages. Save each page as its own file"),
    ("66-apng", "x.png", _animated("PNG"), "to hold one picture, got 3 frames. Save one frame"),
    ("66-gif", "x.png", _animated("GIF"), "got a GIF. Save the one frame that counts as PNG"),
    ("67-no-width", "x.npy", np.zeros((4, 0)), "at least 1 along every axis, got 4 x 0"),
    ("68-exif", "x.jpg", TURNED, r"to be 1 \(upright\), got 6. The mask .*data.orientation=apply"),
    ("103-one-axis", "x.npy", np.zeros(5), r"`shape` \(height, width\) or \(height, width, channels\), got \(5,\)"),
    ("103-four-axes", "x.npy", np.zeros((2, 3, 4, 5)), r"or \(height, width, channels\), got \(2, 3, 4, 5\)"),
    ("103-objects", "x.npy", np.array([["a", None]]), "to be numbers, got Python objects"),
    ("103-npz", "x.npy", b"PK\x03\x04" + bytes(60), "got a ZIP or NPZ archive. Save each array as its own .npy"),
]


@pytest.mark.parametrize(("name", "content", "message"), [i[1:] for i in IMAGES], ids=[i[0] for i in IMAGES])
def test_read_image_refuses(tmp_path, name, content, message):
    path = put(tmp_path / name, content)
    with pytest.raises(DataError, match=message) as refusal:
        read_image(path)
    assert len(refusal.value.problems) == 1
    assert "\n" not in str(refusal.value)
    assert str(path) in str(refusal.value)


TAKEN = [
    ("61-rgba-opaque", "x.png", encoded(_rgba(255)), noise()),
    ("62-16-bit", "x.png", encoded(np.uint16([[0, 700], [65535, 4]])), np.uint16([[[0], [700]], [[65535], [4]]])),
    ("63-1-bit", "x.png", encoded(np.array([[True, False]])), np.uint8([[[255], [0]]])),
    ("64-half", "x.npy", np.float16([[0.5, 2.25]]), np.float32([[[0.5], [2.25]]])),
    ("64-float", "x.tif", _tiff(np.float32([[0.25, -1]])), np.float32([[[0.25], [-1]]])),
    ("67-1-by-n", "x.png", encoded(noise(1, 9)), noise(1, 9)),
    ("71-corrupt-icc", "x.png", encoded(noise(), icc_profile=b"rubbish"), noise()),
]


@pytest.mark.parametrize(("name", "content", "pixels"), [i[1:] for i in TAKEN], ids=[i[0] for i in TAKEN])
def test_read_image_takes(tmp_path, name, content, pixels):
    image = read_image(put(tmp_path / name, content))
    assert image.dtype == pixels.dtype
    np.testing.assert_array_equal(image, pixels)


@pytest.mark.parametrize(("mode", "found"), [("RGB", "rgb with 3 channels"), ("P", "palette with 1 channel")])
def test_70_colours_for_a_one_channel_model(tmp_path, mode, found):
    Image.fromarray(noise()).convert(mode).save(tmp_path / "x.png")
    with pytest.raises(DataError, match=rf"got {found}. .*train with data.in_channels=3"):
        read_image(tmp_path / "x.png", channels=1)


def test_72_any_file_name_gets_a_safe_case_id(tmp_path):
    make_folder(tmp_path, ("<a\nb>",))
    assert build_dataset(folder(tmp_path)).case_ids == (safe_id("<a\nb>"),)


def test_73_fifo_is_refused_without_waiting(tmp_path):
    os.mkfifo(tmp_path / "x.png")
    with pytest.raises(DataError, match=r"to be a regular file, got a folder, FIFO, socket or device"):
        read_image(tmp_path / "x.png")
    with pytest.raises(DataError, match=r"to be a regular file"):
        read_image(Path("/dev/null"))


VALUES = noise(channels=None) % 2
GRAY = np.uint8([[0, 17, 60, 120, 180, 200, 230, 250, 254, 255]])
SOFT = np.uint8(np.clip(np.linspace(-3, 4, 3000), 0, 1) * 255).reshape(30, 100)  # every value, most of them 0 and 255
MASKS = [
    ("75-jpeg", "x.jpg", encoded(VALUES, "JPEG"), "stored exactly, got a lossy JPEG file. Its values are blurred"),
    ("75-jpeg-tiff", "x.tif", _tiff(noise(16, 16, None), compression="jpeg"), "to be stored exactly, got a lossy TIFF"),
    ("76-rgb", "x.png", encoded(noise()), """with 3 channels. Name the colours: 'data.label_map={"0,0,0": 0"""),
    ("78-0-255", "x.png", encoded(VALUES * 255), r"got 255 \(\d+ pixels\). .* set 'data.label_map=\{0: 0, 255: 1\}'"),
    ("79-7-of-3", "x.png", encoded(np.uint8([[0, 7, 7]])), r"only 0 to 1, got 7 \(2 pixels\). Name more classes"),
    ("79-from-1", "x.png", encoded(np.uint8([[1, 2]])), r"got 2 \(1 pixels\). Labels start at 0"),
    ("81-negative", "x.tif", _tiff(np.int16([[0, -1]])), r"got -1 \(1 pixels\). Labels are never negative"),
    ("86-uint16", "x.png", encoded(np.uint16([[0, 300]])), r"only 0 to 1, got 300 \(1 pixels\)"),
    ("87-blurred", "x.png", encoded(GRAY), "speak for anti-aliased or resampled edges"),
    ("87-soft-edges", "x.png", encoded(SOFT), "speak for anti-aliased or resampled edges"),
    ("87-overshoot", "x.tif", _tiff(np.int16([range(-3, 30)])), "speak for anti-aliased or resampled edges"),
    ("87-objects", "x.png", encoded(np.uint16([range(600)])), "look like numbers of objects: set"),
    ("87-objects-8", "x.png", encoded(np.arange(30, dtype=np.uint8)[None]), "data.task=binary data.instances=true"),
    ("65-mask-pages", "x.tif", PAGES, "to hold one plane, got 4 x 12 x 10"),
]


@pytest.mark.parametrize(("name", "content", "message"), [i[1:] for i in MASKS], ids=[i[0] for i in MASKS])
def test_read_mask_refuses(tmp_path, name, content, message):
    path = put(tmp_path / name, content)
    with pytest.raises(DataError, match=message) as refusal:
        read_mask(path, spec=BINARY)
    assert str(refusal.value).startswith(f"{path}: expected ")
    assert "\n" not in str(refusal.value)


def test_77_palette_mask_gives_its_indices_and_the_check_says_so(tmp_path):
    make_folder(tmp_path, ("a",))
    picture = Image.fromarray(np.uint8(VALUES)).convert("P")
    picture.putpalette([200, 0, 0, 0, 0, 200])
    picture.save(tmp_path / "masks" / "a.png")
    dataset = build_dataset(folder(tmp_path))
    np.testing.assert_array_equal(dataset[0].target, VALUES)
    assert any("palette; their indices are the labels" in line for line in check_dataset(dataset).warnings)


@pytest.mark.parametrize(
    ("shape", "hint"), [((12, 11), "nothing is resized"), ((10, 12), "swapped")], ids=["82-other-size", "83-swapped"]
)
def test_mask_of_another_size_is_refused_before_the_first_step(tmp_path, shape, hint):
    make_folder(tmp_path)
    put(tmp_path / "masks" / "b.png", np.zeros(shape, np.uint8))
    found = rf"masks/b.png: .*images/b.png, 12 x 10, got {shape[0]} x {shape[1]} \(height x width\). .*{hint}"
    with pytest.raises(DataError, match=found):
        build_dataset(folder(tmp_path))
