"""Formats and stems, what headers say, where pixels lie, lines of arrays, and files far larger than their pixels."""

import json
import struct
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
import zarr

from segmeter.data.files.array import ArrayRows, stack_planes
from segmeter.data.files.formats import name_format, stem_of, volume_format
from segmeter.data.files.opened import read_geometry, read_header
from segmeter.data.files.refusals import open_regular, show
from segmeter.data.masks.reading import read_map
from segmeter.data.sample import Reading
from segmeter.errors import DataError
from tests.data.crafted import THREE, encoded, noise, png_bytes, put, write_multiscales, write_pyramid, write_zarr
from tests.data.volumes import VOLUME, save_volume


def test_format_is_told_by_content_without_reading_on_and_suffixes_of_one_format_are_equal(tmp_path):
    jpeg = encoded(noise(), "JPEG")
    for name in ("x.jpg", "x.JPEG"):
        with open_regular(put(tmp_path / name, jpeg)) as file:
            assert name_format(tmp_path / name, file.peek(64)[:64]) == "jpeg"
            assert file.read() == jpeg


def test_show_keeps_one_harmless_line(tmp_path):
    assert show(tmp_path / "a b") == str(tmp_path / "a b")
    assert show(tmp_path / "a\nb\x1b[0m").endswith(r"a\nb\x1b[0m'")


def test_a_stem_is_the_name_without_its_whole_suffix():
    names = ["a.nii.gz", "a.OME.tif", "a.b.png", "a.ome.zarr", "a", "a.nii"]
    assert [stem_of(Path(name)) for name in names] == ["a", "a", "a.b", "a", "a", "a"]


def test_volume_formats_are_told_by_suffix_and_folders_are_zarr(tmp_path):
    formats = {"a.NII.GZ": "nifti", "a.nii": "nifti", "a.npz": "npz", "a.zarr": "zarr", "a.npy": None, "a.png": None}
    assert {name: volume_format(tmp_path / name) for name in formats} == formats
    assert volume_format(tmp_path) == "zarr"


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
    header = read_header(put(tmp_path / f"x.{suffix}", array))
    assert (header.height, header.width) == (7, 5)
    assert (header.kind, header.bits, header.dtype) == (kind, bits, array.dtype)
    assert header.channels == (1 if array.ndim == 2 else array.shape[2])
    assert header.lossy == (suffix == "jpg")


def test_header_alone_refuses_a_truncated_tiff_and_npy(tmp_path):
    for name in ("x.tif", "x.npy"):
        path = put(tmp_path / name, noise(32, 32, None))
        assert read_header(path).height == 32
        put(path, path.read_bytes()[:-1])
        with pytest.raises(DataError, match=r"truncated or damaged data \((the file ends|1023 bytes of pixels)"):
            read_header(path)


def test_header_of_a_png_decodes_no_pixel(tmp_path):
    """Its pixels are rubbish; only reading them finds out."""
    path = put(tmp_path / "x.png", png_bytes(b"rubbish", height=9, width=9))
    assert read_header(path).height == 9


@pytest.mark.parametrize(("start", "stop"), [(0, 6), (2, 2), (3, 5), (5, 9)])
def test_rows_lie_along_the_axis_that_is_named_and_end_with_it(start, stop):
    array = np.arange(6 * 7 * 8, dtype=np.uint16).reshape(6, 7, 8)
    rows, columns = ArrayRows(array), ArrayRows(array, 1)
    assert (rows.shape, rows.dtype) == ((6, 7, 8), np.uint16)
    np.testing.assert_array_equal(rows.read(start, stop), array[start:stop])
    np.testing.assert_array_equal(columns.read(start, stop), array[:, start:stop])


def test_planes_are_stacked_in_their_order():
    planes = noise(3, 4, 5)
    rows = stack_planes([ArrayRows(plane) for plane in planes])
    assert (rows.shape, rows.dtype) == ((3, 4, 5), np.uint8)
    np.testing.assert_array_equal(rows.read(1, 3), planes[:, 1:3], strict=True)


HUGE = 300 * 10**9  # bytes of a sparse file
MEASURE = """
import json, resource, sys
from pathlib import Path
from segmeter.data.sample import Reading
from segmeter.data.files.formats import name_format, stem_of, volume_format
from segmeter.data.files.refusals import open_regular, show
from segmeter.data.masks.reading import read_map
from segmeter.errors import DataError
from tests.data.crafted import THREE
import zarr, nibabel, tifffile, imagecodecs
reading = Reading(spec=THREE, label_map={}, max_pixels=200_000_000)
for path in sys.argv[1:]:
    before = resource.getrusage(resource.RUSAGE_SELF)
    try:
        read_map(Path(path), reading)
        message = "was read"
    except DataError as error:
        message = str(error)
    after = resource.getrusage(resource.RUSAGE_SELF)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(json.dumps([path, message, (after.ru_maxrss - before.ru_maxrss) >> 10, seconds]))
"""


def refused_cheaply(*paths):
    """Read files in a process of its own, which each may cost 64 MB and 5 s: their refusals."""
    resource = pytest.importorskip("resource", reason="Windows limits no process so")
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, *paths],
        capture_output=True,
        text=True,
        check=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30)),
    )
    messages = []
    for path, message, megabytes, seconds in map(json.loads, done.stdout.splitlines()):
        assert megabytes < 64, message
        assert seconds < 5, message
        assert message.startswith(path)
        assert "\n" not in message
        messages.append(message)
    return messages


def made_sparse(path, size=HUGE):
    with path.open("r+b") as file:
        file.truncate(size)
    return path


NAMES = ["a.nii", "a.nii.gz", "a.npy", "a.npz", "a.tif", "a.png"]
TOO_LARGE, DAMAGED = "expected `file` of at most", "truncated or damaged data"


def sparse_files(root):
    """300 GB by their size alone; 3 GB, which data.max_pixels would allow, by what their headers say."""
    found = {root / "huge" / name: TOO_LARGE for name in NAMES}
    # the pages of a TIFF say where their bytes are: the rest is only hashed
    found |= {root / "large" / name: TOO_LARGE if name == "a.png" else DAMAGED for name in NAMES if name != "a.tif"}
    for path in found:
        if path.suffix == ".png":
            put(path, VOLUME[0])
        else:
            save_volume(path)
        made_sparse(path, HUGE if path.parent.name == "huge" else 3 << 30)
    return found


def large_headers(root):
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
        root / "grows.npz": DAMAGED,
        root / "shape.tif": "pixels, got 1000000 x 1000000",
    }


def many_chunks(root):
    options: dict[str, Any] = {"shape": (4000, 4000), "chunks": (1, 1), "dtype": "u1"}
    zarr.create_array(str(root / "2.zarr"), **options, zarr_format=2)
    zarr.create_array(str(root / "3.zarr"), **options)
    zarr.create_array(str(root / "shards.zarr"), **options, shards=(4000, 4000))
    line = "expected `chunks` to be at most 48828, got 16000000 of 1 x 1 pixels. Save it again in"
    return {root / name: line for name in ("2.zarr", "3.zarr", "shards.zarr")}


def test_files_far_larger_than_their_pixels_are_refused_at_a_bounded_cost(tmp_path):
    wanted = sparse_files(tmp_path) | large_headers(tmp_path) | many_chunks(tmp_path)
    for message, line in zip(refused_cheaply(*wanted), wanted.values(), strict=True):
        assert line in message


def test_a_large_tiff_is_read_page_by_page_and_hashed_without_being_held(tmp_path):
    tifffile.imwrite(tmp_path / "a.tif", VOLUME, photometric="minisblack")
    made_sparse(tmp_path / "a.tif", 1 << 28)
    assert np.array_equal(read_map(tmp_path / "a.tif", Reading(spec=THREE, max_pixels=10**8)).values, VOLUME)


IMAGE = np.zeros((64, 48, 3), np.uint8)
UTM = "WGS 84 / UTM zone 33N|"


def geotags(raster_type=1):
    """1 metre by 2, its top left corner at (500000, 5000000) of UTM zone 33N."""
    keys = (1, 1, 0, 4, 1024, 0, 1, 1, 1025, 0, 1, raster_type, 1026, 34737, len(UTM), 0, 3072, 0, 1, 32633)
    return [
        (33550, "d", 3, (1.0, 2.0, 0.0), True),
        (33922, "d", 6, (0.0, 0.0, 0.0, 500000.0, 5000000.0, 0.0), True),
        (34735, "H", len(keys), keys, True),
        (34737, "s", 0, UTM, True),
    ]


def test_geotiff_tags_are_taken_as_they_stand_but_that_pixels_of_a_coarser_level_are_larger(tmp_path):
    """Every second one: 2 metres wide and 4 high; the tie point at column 8, row 2 becomes 4, 1."""
    tags = geotags()
    tags[1] = (33922, "d", 6, (8.0, 2.0, 0.0, 500000.0, 5000000.0, 0.0), True)
    write_pyramid(tmp_path / "a.tif", IMAGE, IMAGE[::2, ::2], extratags=tags)
    found = dict(read_geometry(tmp_path / "a.tif", level=1).geotiff)
    assert found[33550] == (2.0, 4.0, 0.0)
    assert found[33922] == (4.0, 1.0, 0.0, 500000.0, 5000000.0, 0.0)
    finest = read_geometry(tmp_path / "a.tif")
    assert (finest.known, finest.spacing) == (True, None)
    assert dict(finest.geotiff) == {tag: value for tag, _, _, value, _ in tags}


@pytest.mark.parametrize("step", [2, 3])
def test_a_matrix_of_a_coarser_level_has_larger_columns(step, tmp_path):
    """It takes (column, row, 0, 1); a pixel of level 1 covers as many of level 0 as the sizes say, such as 64 / 22."""
    matrix = np.array([[3.0, 0.5, 0, 100], [0.25, -2.0, 0, 200], [0, 0, 0, 0], [0, 0, 0, 1]])
    tags = [(34264, "d", 16, tuple(matrix.ravel()), True), *geotags()[2:]]
    coarser = IMAGE[::step, ::step]
    write_pyramid(tmp_path / "a.tif", IMAGE, coarser, extratags=tags)
    found = np.reshape(dict(read_geometry(tmp_path / "a.tif", level=1).geotiff)[34264], (4, 4))
    down, across = (whole / part for whole, part in zip(IMAGE.shape[:2], coarser.shape[:2], strict=True))
    np.testing.assert_allclose(found @ [5, 7, 0, 1], matrix @ [5 * across, 7 * down, 0, 1], rtol=1e-15)


@pytest.mark.parametrize(
    ("tags", "level", "problem"),
    [
        ([(274, "H", 1, 6, True), *geotags()], 0, "turned as its orientation says"),
        (geotags(raster_type=2), 1, "pixels' centres"),
    ],
)
def test_a_turned_picture_and_centres_of_a_coarser_level_are_not_placed(tags, level, problem, tmp_path):
    write_pyramid(tmp_path / "a.tif", IMAGE, IMAGE[::2, ::2], extratags=tags)
    found = read_geometry(tmp_path / "a.tif", level=level)
    assert not found.known
    assert problem in found.spacing_problem
    assert read_geometry(tmp_path / "a.tif").known == bool(level)


@pytest.mark.parametrize("level", [0, 1])
def test_spacing_of_ome_and_imagej_metadata(tmp_path, level):
    ome = {"axes": "YXS", "PhysicalSizeX": 0.25, "PhysicalSizeXUnit": "µm", "PhysicalSizeY": 0.5}
    write_pyramid(tmp_path / "a.ome.tif", IMAGE, IMAGE[::2, ::2], metadata={**ome, "PhysicalSizeYUnit": "µm"})
    found = read_geometry(tmp_path / "a.ome.tif", level=level)
    assert (found.spacing, found.unit) == ((0.5 * 2**level, 0.25 * 2**level), "um")
    tifffile.imwrite(tmp_path / "b.tif", IMAGE, imagej=True, resolution=(4, 2), metadata={"unit": "mm"})
    assert read_geometry(tmp_path / "b.tif").spacing == (0.5, 0.25)


def test_spacing_of_a_zarr_whose_channels_come_last_is_that_of_its_rows_and_columns(tmp_path):
    for name, spacing, unit in (("three", [3.0, 2.0, 1.0], ["mm"] * 3), ("two", [3.0, 2.0], "mm")):
        attributes = {"spacing": spacing, "unit": unit}
        found = read_geometry(write_zarr(tmp_path / f"{name}.zarr", IMAGE, "yxc", attributes=attributes))
        assert (found.spacing, found.unit) == ((3.0, 2.0), "mm"), name


@pytest.mark.parametrize("axes", ["cyx", "yxc"])
@pytest.mark.parametrize("level", [0, 1])
def test_spacing_of_the_level_of_ome_zarr(tmp_path, axes, level):
    levels = [each if axes == "yxc" else np.moveaxis(each, -1, 0) for each in (IMAGE, IMAGE[::2, ::2])]
    edges = {"y": 0.5, "x": 0.25, "c": 1.0}
    steps = [[{"type": "scale", "scale": [edges[axis] * 2**n for axis in axes]}] for n in range(2)]
    write_multiscales(zarr.open_group(str(tmp_path / "a.zarr"), mode="w"), *levels, axes=axes, steps=steps)
    found = read_geometry(tmp_path / "a.zarr", level=level)
    assert (found.spacing, found.unit) == ((0.5 * 2**level, 0.25 * 2**level), "um")
