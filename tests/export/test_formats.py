"""Each format read back by its own library, with the place of its pixels; failed writes leave nothing."""

import io
import os
import struct

import numpy as np
import pytest
import tifffile
import zarr
from PIL import Image

from segmeter.data.files.array import ArrayRows, LazyArray
from segmeter.data.files.geometry import MILLIMETRES, Geometry
from segmeter.data.files.opened import read_geometry
from segmeter.errors import InputError
from segmeter.export import formats
from segmeter.export.config import ExportConfig
from segmeter.export.writer import Writer
from tests.data.crafted import THREE, encoded
from tests.data.files.test_opened import UTM
from tests.data.formats_written import library

CASES = [
    (formats.write_npy, ".npy", lambda path: np.load(path, allow_pickle=False)),
    (formats.write_npz, ".npz", lambda path: np.load(path, allow_pickle=False)["probs"]),
    (formats.write_tiff, ".tif", tifffile.imread),
    (formats.write_zarr, ".zarr", lambda path: zarr.open_array(str(path), mode="r")[...]),
]
IDS = [case[1] for case in CASES]


@pytest.mark.parametrize(("write", "suffix", "read"), CASES, ids=IDS)
@pytest.mark.parametrize("shape", [(1, 5, 7), (3, 40, 300), (2, 257, 3)])
def test_float32_comes_back_bit_for_bit_also_when_written_again(tmp_path, rng, write, suffix, read, shape):
    path = tmp_path / f"case{suffix}"
    for _ in range(2):
        probs = rng.random(shape, dtype=np.float32)
        write(path, probs)
        found = read(path)
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found.reshape(shape), probs)
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]
    if path.is_file():  # equal arrays give equal bytes
        write(tmp_path / f"again{suffix}", probs)
        assert (tmp_path / f"again{suffix}").read_bytes() == path.read_bytes()


@pytest.mark.parametrize(("write", "suffix", "read"), CASES, ids=IDS)
def test_failed_write_leaves_the_old_file_or_none_and_no_temporary(tmp_path, rng, monkeypatch, write, suffix, read):
    path, old = tmp_path / f"case{suffix}", rng.random((2, 4, 4), dtype=np.float32)
    write(path, old)
    replace = os.replace

    def fail(*paths, **places):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="No space"):
        write(path, old + 1)
    monkeypatch.setattr(os, "replace", replace)
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]
    np.testing.assert_array_equal(read(path), old)


@pytest.mark.parametrize("size", [(1, 1), (255, 256), (256, 300), (257, 255), (600, 300), (513, 1)], ids=str)
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize(("write", "suffix", "read"), CASES[2:], ids=IDS[2:])
def test_a_map_that_is_read_by_lines_holds_every_line(tmp_path, size, dtype, write, suffix, read):
    array, path = np.random.default_rng(0).integers(0, 250, size).astype(dtype), tmp_path / f"a{suffix}"
    for _ in range(2):  # the second one takes the place of the first
        write(path, ArrayRows(array))
    found = read(path)
    assert found.dtype == dtype
    np.testing.assert_array_equal(found.reshape(size), array)
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("write", [formats.write_tiff, formats.write_zarr])
def test_a_fault_on_the_way_leaves_nothing(tmp_path, write):
    def read(start, stop):
        if start:
            raise KeyboardInterrupt
        return np.zeros((stop - start, 9), np.uint8)

    with pytest.raises(KeyboardInterrupt):
        write(tmp_path / "a", LazyArray((600, 9), np.dtype(np.uint8), read))
    assert list(tmp_path.iterdir()) == []


COLOURS = [(0, 0, 0), (200, 10, 20), (30, 220, 40)]


def read(content):
    with Image.open(io.BytesIO(content), formats=["PNG"]) as image:
        image.load()
        return image.mode, np.asarray(image), image.getpalette()


@pytest.mark.parametrize("shape", [(1, 1), (1, 9), (7, 1), (5, 6), (33, 31)])
@pytest.mark.parametrize(
    ("dtype", "highest", "mode"),
    [
        *((np.uint8, highest, "P") for highest in (1, 2, 15, 16, 255)),
        *((np.uint16, highest, "I;16") for highest in (0, 255, 256, 65535)),
    ],
)
def test_values_come_back_exactly(rng, dtype, highest, mode, shape):
    labels = rng.integers(0, highest + 1, shape).astype(dtype)
    labels.flat[-1] = highest
    found = read(formats.encode_labels_png(labels, COLOURS))
    assert found[0] == mode
    np.testing.assert_array_equal(found[1], labels)


@pytest.mark.parametrize(
    "view",
    [lambda a: a[::-1], lambda a: a[:, ::-2], lambda a: a.T, lambda a: a.astype(">u2"), np.asfortranarray],
    ids=["upside down", "stepped", "transposed", "big-endian", "Fortran"],
)
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_any_memory_layout_is_written_right_and_left_alone(rng, view, dtype):
    labels = view(rng.integers(0, 200, (12, 9)).astype(dtype))
    before = labels.copy()
    labels.setflags(write=False)
    content = formats.encode_labels_png(labels, COLOURS)
    np.testing.assert_array_equal(read(content)[1], labels)
    np.testing.assert_array_equal(labels, before)
    assert formats.encode_labels_png(before, COLOURS) == content, "equal maps give equal bytes"


def test_palette_holds_class_colours_then_magenta_and_grey_for_ignored():
    labels = np.array([[0, 1, 2, 3, 200, 255]], np.uint8)
    palette = np.array(read(formats.encode_labels_png(labels, COLOURS, ignore_index=255))[2]).reshape(-1, 3)
    np.testing.assert_array_equal(palette[:3], COLOURS)
    assert tuple(palette[3]) == tuple(palette[200]) == formats.UNUSED_COLOUR
    assert tuple(palette[255]) == formats.IGNORE_COLOUR


def test_a_map_of_large_regions_is_no_larger_than_as_pillow_writes_it(rng):
    labels = np.kron(rng.integers(0, 5, (16, 16)), np.ones((19, 16))).astype(np.uint8)
    assert len(formats.encode_labels_png(labels, COLOURS)) <= len(encoded(labels))


def test_small_label_values_take_four_bits():
    content = formats.encode_labels_png(np.full((3, 5), 2, np.uint8), COLOURS)
    assert struct.unpack(">4sIIBBBBB", content[12:29]) == (b"IHDR", 5, 3, 4, 3, 0, 0, 0)
    assert struct.unpack(">I4s", content[33:41]) == (3 * 16, b"PLTE")


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        *((np.zeros((2, 2), dtype), rf"{dtype} \(2, 2\)") for dtype in ("int64", "float32", "bool", "uint32")),
        (np.zeros((1, 2, 2), np.uint8), r"\(1, 2, 2\)"),
        (np.zeros((0, 2), np.uint8), "at least one pixel"),
    ],
)
def test_other_arrays_and_more_colours_than_a_palette_holds_are_refused(labels, said):
    with pytest.raises(InputError, match=said):
        formats.encode_labels_png(labels, COLOURS)
    with pytest.raises(InputError, match="at most 256 for uint8 labels, got 257"):
        formats.encode_labels_png(np.zeros((1, 1), np.uint8), [(0, 0, 0)] * 257)


LABELS = np.random.default_rng(0).integers(0, 3, (300, 270)).astype(np.uint8)
KEYS = (1, 1, 0, 3, 1024, 0, 1, 1, 1026, 34737, len(UTM), 0, 3072, 0, 1, 32633)
GEOTIFF = ((33550, (1.5, 2.0, 0.0)), (33922, (0.0, 0.0, 0.0, 500000.25, 5000000.0, 0.0)), (34735, KEYS), (34737, UTM))
STATED = ((0.5, 0.2521), "um", GEOTIFF)
PLACE = Geometry(spacing=STATED[0], unit="um", geotiff=GEOTIFF)


def place(path):
    found = read_geometry(path)
    return found.spacing, found.unit, found.geotiff


def whole(path, array, location=PLACE):
    palette = formats.palette_of(THREE) if array.dtype == np.uint8 and len(array.shape) == 2 else None
    formats.write_tiff(path, array, palette=palette, locate=lambda: location)


def by_lines(path, array, location=PLACE):
    whole(path, ArrayRows(array), location)


@pytest.mark.parametrize(("write", "planes"), [("whole", 1), ("by lines", 1), ("whole", 3)])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float16, np.float32])
def test_each_page_of_a_tiff_says_it_to_every_reader(tmp_path, write, planes, dtype):
    array = np.stack([LABELS + k for k in range(planes)]).astype(dtype) if planes > 1 else LABELS.astype(dtype)
    (whole if write == "whole" else by_lines)(tmp_path / "a.tif", array)
    if planes == 1:  # we read no more
        assert place(tmp_path / "a.tif") == STATED
    with tifffile.TiffFile(tmp_path / "a.tif") as tiff:
        assert np.array_equal(tiff.asarray(), array)
        assert (tiff.is_bigtiff, tiff.series[0].axes) == (write == "by lines", "CYX" if planes > 1 else "YX")
        pixels = tifffile.xml2dict(tiff.ome_metadata)["OME"]["Image"]["Pixels"]
        assert (pixels["PhysicalSizeY"], pixels["PhysicalSizeX"], pixels["PhysicalSizeXUnit"]) == (0.5, 0.2521, "µm")
        assert (pixels["SizeX"], pixels["SizeY"], len(tiff.pages)) == (270, 300, planes)
        for page in (page.aspage() for page in tiff.pages):
            geo = page.geotiff_tags
            assert geo == tiff.geotiff_metadata
            assert geo["ModelPixelScale"] == [1.5, 2.0, 0.0]
            assert geo["ModelTiepoint"] == [0.0, 0.0, 0.0, 500000.25, 5000000.0, 0.0]
            assert (geo["ProjectedCSTypeGeoKey"], geo["GTCitationGeoKey"]) == (32633, UTM.rstrip("|"))
            assert (page.tilelength, page.tilewidth, page.resolutionunit) == (256, 256, 3)
            assert [tag.code for tag in page.tags] == sorted(tag.code for tag in page.tags)
            assert page.resolution == pytest.approx((1e4 / 0.2521, 1e4 / 0.5), rel=1e-6)


@pytest.mark.parametrize("write", [whole, by_lines])
def test_every_unit_is_read_back_and_nothing_is_said_where_nothing_is_known(tmp_path, write):
    for unit in (None, *MILLIMETRES):
        write(tmp_path / "a.tif", LABELS[:3, :4], Geometry(spacing=(2.0, 3.5), unit=unit))
        found = read_geometry(tmp_path / "a.tif")
        assert (found.spacing, found.unit) == ((2.0, 3.5), unit)
    write(tmp_path / "a.tif", LABELS, Geometry())
    with tifffile.TiffFile(tmp_path / "a.tif") as tiff:
        assert not {270, 33550, 34735} & {tag.code for tag in tiff.pages.first.tags}


@pytest.mark.parametrize("labels", [LABELS, ArrayRows(LABELS)], ids=["whole", "by lines"])
@pytest.mark.parametrize("place", [PLACE, Geometry(spacing=(2.0, 3.0))], ids=["um", "no unit"])
def test_a_zarr_says_it_too(tmp_path, place, labels):
    formats.write_zarr(tmp_path / "a.zarr", labels, locate=lambda: place)
    found, stored = read_geometry(tmp_path / "a.zarr"), zarr.open_array(str(tmp_path / "a.zarr"), mode="r")
    assert (found.spacing, found.unit) == (place.spacing, place.unit)
    assert (stored.attrs["spacing"], stored.metadata.zarr_format) == (list(place.spacing), 3)


def test_the_files_of_a_case_take_the_place_of_its_image(tmp_path):
    probs = np.full((3, 300, 270), 1 / 3, np.float32)
    config = ExportConfig(labels_format="tiff", confidence=True, probs=True, probs_format="tiff")
    places = {"x": PLACE, "y": Geometry()}
    writer = Writer(tmp_path, config, THREE, locate=places.__getitem__)
    for case_id in places:
        arrays = {"instances": LABELS.astype(np.int32) * 70_000, "probs": probs, "predicted": LABELS}
        writer.write(case_id, LABELS, **arrays)
    for kind in ("labels", "confidence", "instances"):
        assert place(tmp_path / kind / "x.tif") == STATED
        assert not read_geometry(tmp_path / kind / "y.tif").known
    assert np.array_equal(tifffile.imread(tmp_path / "probs" / "x.tif"), probs)
    rasterio = library("rasterio")
    for page in (1, 2, 3):
        with rasterio.open(f"GTIFF_DIR:{page}:{tmp_path / 'probs' / 'x.tif'}") as read:
            assert read.crs == rasterio.crs.CRS.from_epsg(32633)
            assert read.transform == rasterio.Affine(1.5, 0, 500000.25, 0, -2, 5000000)
