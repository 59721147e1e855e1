import numpy as np
import pytest
import tifffile
from PIL import Image

from segmeter.data.files.header import read_header
from segmeter.data.files.sniff import file_format, is_junk, show
from segmeter.errors import DataError
from tests.data.crafted import encoded, noise, png_bytes, put


@pytest.mark.parametrize(
    ("suffix", "array", "kind", "bits"),
    [
        ("png", noise(7, 5), "rgb", 8),
        ("png", noise(7, 5, None), "gray", 8),
        ("png", noise(7, 5, 4), "rgba", 8),
        ("png", np.zeros((7, 5), np.uint16), "gray", 16),
        ("jpg", noise(7, 5), "rgb", 8),
        ("bmp", noise(7, 5), "rgb", 8),
        ("tif", noise(7, 5, None), "gray", 8),
    ],
)
def test_header_says_what_is_stored(tmp_path, suffix, array, kind, bits):
    Image.fromarray(array).save(tmp_path / f"x.{suffix}")
    header = read_header(tmp_path / f"x.{suffix}")
    assert (header.height, header.width) == (7, 5)
    assert (header.kind, header.bits, header.dtype) == (kind, bits, array.dtype)
    assert header.channels == (1 if array.ndim == 2 else array.shape[2])
    assert header.lossy == (suffix == "jpg")


def test_header_alone_refuses_a_truncated_tiff_and_npy(tmp_path):
    tifffile.imwrite(tmp_path / "x.tif", noise(32, 32, None))
    np.save(tmp_path / "x.npy", noise(32, 32, None))
    for name in ("x.tif", "x.npy"):
        read_header(tmp_path / name)
        content = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(content[:-1])
        with pytest.raises(DataError, match=r"truncated or damaged data \((the file ends|1023 bytes of pixels)"):
            read_header(tmp_path / name)


def test_header_of_a_png_decodes_no_pixel(tmp_path):
    """Its pixels are rubbish; only reading them finds out."""
    path = put(tmp_path / "x.png", png_bytes(b"rubbish", height=9, width=9))
    assert read_header(path).height == 9


def test_npy_of_one_or_four_axes_is_no_picture(tmp_path):
    for shape in ((5,), (2, 3, 4, 5)):
        np.save(tmp_path / "x.npy", np.zeros(shape, np.uint8))
        with pytest.raises(DataError, match=r"`shape` \(height, width\) or \(height, width, channels\), got \("):
            read_header(tmp_path / "x.npy")


def test_format_is_told_by_content_and_suffixes_of_one_format_are_equal(tmp_path):
    jpeg = encoded(noise(), "JPEG")
    assert file_format(put(tmp_path / "x.jpg", jpeg)) == "jpeg"
    assert file_format(put(tmp_path / "x.JPEG", jpeg)) == "jpeg"
    with pytest.raises(DataError, match=r"Rename the file to .jpg"):
        file_format(put(tmp_path / "x.png", jpeg))


def test_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(DataError, match=r"no.png: expected `file` to be readable, got No such file"):
        file_format(tmp_path / "no.png")


@pytest.mark.parametrize(
    ("name", "junk"),
    [(".x.png", True), ("._a.png", True), ("__MACOSX", True), ("notes.TXT", True), ("a.png", False), ("a.gif", False)],
)
def test_junk_is_what_is_no_data(tmp_path, name, junk):
    assert is_junk(tmp_path / name) == junk


def test_show_keeps_one_harmless_line(tmp_path):
    assert show(tmp_path / "a b") == str(tmp_path / "a b")
    assert show(tmp_path / "a\nb\x1b[0m").endswith(r"a\nb\x1b[0m'")
