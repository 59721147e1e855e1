"""Files that are far larger than their pixels: refused by what their headers say, at a bounded cost."""

import struct
import zipfile
from pathlib import Path

import numpy as np
import tifffile

from segmeter.data.masks.options import Reading
from segmeter.data.masks.reading import read_map
from tests.data.crafted import THREE, encoded, put
from tests.data.files.costs import HUGE, made_sparse, refused_cheaply
from tests.data.volumes import VOLUME, save_volume


def test_a_sparse_file_is_refused_before_it_is_read(tmp_path: Path) -> None:
    """300 GB by their size alone; 3 GB, which data.max_pixels would allow, by what their headers say."""
    names = ["a.nii", "a.nii.gz", "a.npy", "a.npz", "a.tif", "a.png"]
    huge, large = [tmp_path / "huge" / name for name in names], [tmp_path / "large" / name for name in names]
    for path in (*huge, *large):
        if path.suffix == ".png":
            put(path, encoded(VOLUME[0]))
        else:
            save_volume(path, VOLUME)
        made_sparse(path, HUGE if path in huge else 3 << 30)
    tiff = large.pop(4)  # its pages say where their bytes are: the rest is only hashed
    assert tiff.suffix == ".tif"
    found = refused_cheaply(*huge, *large)
    assert all("expected `file` of at most" in line for line in (*found[:6], found[-1])), found
    assert all("truncated or damaged data" in line for line in found[6:-1]), found


def test_an_npy_header_of_gigabytes_is_not_read(tmp_path: Path) -> None:
    path = put(tmp_path / "a.npy", b"\x93NUMPY\x02\x00" + struct.pack("<I", 2**32 - 1) + b"{")
    made_sparse(path, 3 << 30)
    assert "reading array header" in refused_cheaply(path)[0]


def test_a_member_of_an_archive_that_grows_is_refused_by_its_header(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        save_volume(tmp_path / "labels.npy", VOLUME)
        content = (tmp_path / "labels.npy").read_bytes()
        archive.writestr("labels.npy", content + bytes(1 << 27))
    assert "more bytes than the 24" in refused_cheaply(tmp_path / "a.npz")[0]


def test_a_large_tiff_is_read_page_by_page_and_hashed_without_being_held(tmp_path: Path) -> None:
    tifffile.imwrite(tmp_path / "a.tif", VOLUME, photometric="minisblack")
    made_sparse(tmp_path / "a.tif", 1 << 28)
    assert np.array_equal(
        read_map(tmp_path / "a.tif", Reading(spec=THREE, label_map={}, max_pixels=10**8)).values, VOLUME
    )


def test_a_tiff_of_absurd_shape_is_refused_by_its_tags(tmp_path: Path) -> None:
    tifffile.imwrite(tmp_path / "a.tif", VOLUME[0])
    with tifffile.TiffFile(tmp_path / "a.tif", mode="r+b") as file:
        for tag in ("ImageWidth", "ImageLength"):
            file.pages[0].tags[tag].overwrite(10**6)
    (problem,) = refused_cheaply(tmp_path / "a.tif")
    assert "pixels, got 1000000 x 1000000" in problem, problem
