"""Files that are far larger than their pixels: refused by what their headers say, at a bounded cost."""

import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import tifffile
import zarr

from segmeter.data.masks.reading import read_map
from segmeter.data.sample import Reading
from tests.data.crafted import THREE, encoded, put
from tests.data.files.costs import HUGE, made_sparse, refused_cheaply
from tests.data.volumes import VOLUME, save_volume

NAMES = ["a.nii", "a.nii.gz", "a.npy", "a.npz", "a.tif", "a.png"]
TOO_LARGE, DAMAGED = "expected `file` of at most", "truncated or damaged data"


def sparse_files(root: Path) -> dict[Path, str]:
    """300 GB by their size alone; 3 GB, which data.max_pixels would allow, by what their headers say."""
    found = {root / "huge" / name: TOO_LARGE for name in NAMES}
    # the pages of a TIFF say where their bytes are: the rest is only hashed
    found |= {root / "large" / name: TOO_LARGE if name == "a.png" else DAMAGED for name in NAMES if name != "a.tif"}
    for path in found:
        if path.suffix == ".png":
            put(path, encoded(VOLUME[0]))
        else:
            save_volume(path, VOLUME)
        made_sparse(path, HUGE if path.parent.name == "huge" else 3 << 30)
    return found


def large_headers(root: Path) -> dict[Path, str]:
    """A header of gigabytes, metadata of gigabytes, an archive's member that grows, and a TIFF of absurd shape."""
    head = put(root / "head.npy", b"\x93NUMPY\x02\x00" + struct.pack("<I", 2**32 - 1) + b"{")
    zarr.create_array(str(root / "metadata.zarr"), data=VOLUME, zarr_format=2)
    for path in (head, put(root / "metadata.zarr" / ".zattrs", b"{}")):
        made_sparse(path, 3 << 30)
    with zipfile.ZipFile(root / "grows.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        save_volume(root / "labels.npy", VOLUME)
        archive.writestr("labels.npy", (root / "labels.npy").read_bytes() + bytes(1 << 27))
    tifffile.imwrite(root / "shape.tif", VOLUME[0])
    with tifffile.TiffFile(root / "shape.tif", mode="r+b") as file:
        for tag in ("ImageWidth", "ImageLength"):
            file.pages[0].tags[tag].overwrite(10**6)
    return {
        head: "reading array header",
        root / "metadata.zarr": "expected `metadata` of at most 67108864 bytes",
        root / "grows.npz": "more bytes than the 24",
        root / "shape.tif": "pixels, got 1000000 x 1000000",
    }


def many_chunks(root: Path) -> dict[Path, str]:
    options: dict[str, Any] = {"shape": (4000, 4000), "chunks": (1, 1), "dtype": "u1"}
    zarr.create_array(str(root / "2.zarr"), **options, zarr_format=2)
    zarr.create_array(str(root / "3.zarr"), **options)
    zarr.create_array(str(root / "shards.zarr"), **options, shards=(4000, 4000))
    line = "expected `chunks` to be at most 48828, got 16000000 of 1 x 1 pixels. Save it again in"
    return {root / name: line for name in ("2.zarr", "3.zarr", "shards.zarr")}


def test_files_far_larger_than_their_pixels_are_refused_at_a_bounded_cost(tmp_path: Path) -> None:
    wanted = sparse_files(tmp_path) | large_headers(tmp_path) | many_chunks(tmp_path)
    for message, line in zip(refused_cheaply(*wanted), wanted.values(), strict=True):
        assert line in message


def test_a_large_tiff_is_read_page_by_page_and_hashed_without_being_held(tmp_path: Path) -> None:
    tifffile.imwrite(tmp_path / "a.tif", VOLUME, photometric="minisblack")
    made_sparse(tmp_path / "a.tif", 1 << 28)
    assert np.array_equal(read_map(tmp_path / "a.tif", Reading(spec=THREE, max_pixels=10**8)).values, VOLUME)
