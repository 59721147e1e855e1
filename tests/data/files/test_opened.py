import numpy as np
import pytest
import tifffile
from PIL import Image

from segmeter.data.files.opened import read_header
from segmeter.errors import DataError
from tests.data.crafted import noise, png_bytes, put


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
