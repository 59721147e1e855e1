"""Where pixels lie, written by us and read by tifffile, zarr and our own readers."""

import numpy as np
import pytest
import tifffile
import zarr

from segmeter.classes import ClassSpec
from segmeter.data.files.array import ArrayRows
from segmeter.data.files.geometry import MILLIMETRES, Geometry
from segmeter.data.files.opened import read_geometry
from segmeter.export.config import ExportConfig
from segmeter.export.formats import palette_of, write_tiff, write_zarr
from segmeter.export.writer import Writer
from tests.data.files.test_opened import UTM
from tests.data.formats_written import library

LABELS = np.random.default_rng(0).integers(0, 3, (300, 270)).astype(np.uint8)
PALETTE = palette_of(
    ClassSpec(task="multiclass", names=("a", "b", "c"), colours=((0, 0, 0), (1, 2, 3), (255, 0, 0)), ignore_index=255)
)
KEYS = (1, 1, 0, 3, 1024, 0, 1, 1, 1026, 34737, len(UTM), 0, 3072, 0, 1, 32633)
GEOTIFF = ((33550, (1.5, 2.0, 0.0)), (33922, (0.0, 0.0, 0.0, 500000.25, 5000000.0, 0.0)), (34735, KEYS), (34737, UTM))
STATED = ((0.5, 0.2521), "um", GEOTIFF)
PLACE = Geometry(spacing=STATED[0], unit="um", geotiff=GEOTIFF)


def place(path):
    found = read_geometry(path)
    return found.spacing, found.unit, found.geotiff


def whole(path, array, location=PLACE):
    write_tiff(path, array, palette=PALETTE if array.dtype == np.uint8 else None, locate=lambda: location)


def by_lines(path, array, location=PLACE):
    whole(path, ArrayRows(array), location)


@pytest.mark.parametrize("write", [whole, by_lines])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32])
def test_a_tiff_says_it_to_every_reader(tmp_path, write, dtype):
    write(tmp_path / "a.tif", LABELS.astype(dtype))
    assert place(tmp_path / "a.tif") == STATED
    with tifffile.TiffFile(tmp_path / "a.tif") as tiff:
        page, geo = tiff.pages.first, tiff.geotiff_metadata
        assert np.array_equal(tiff.asarray(), LABELS)
        assert [tag.code for tag in page.tags] == sorted(tag.code for tag in page.tags)
        assert geo["ModelPixelScale"] == [1.5, 2.0, 0.0]
        assert geo["ModelTiepoint"] == [0.0, 0.0, 0.0, 500000.25, 5000000.0, 0.0]
        assert (geo["ProjectedCSTypeGeoKey"], geo["GTCitationGeoKey"]) == (32633, UTM.rstrip("|"))
        pixels = tifffile.xml2dict(tiff.ome_metadata)["OME"]["Image"]["Pixels"]
        assert (pixels["PhysicalSizeX"], pixels["PhysicalSizeXUnit"]) == (0.2521, "µm")
        assert (pixels["SizeX"], pixels["SizeY"], tiff.series[0].axes) == (270, 300, "YX")
        assert page.resolutionunit == 3
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
    write_zarr(tmp_path / "a.zarr", labels, locate=lambda: place)
    found = read_geometry(tmp_path / "a.zarr")
    assert (found.spacing, found.unit) == (place.spacing, place.unit)
    assert zarr.open_array(str(tmp_path / "a.zarr"), mode="r").attrs["spacing"] == list(place.spacing)


def test_the_files_of_a_case_take_the_place_of_its_image(tmp_path):
    spec = ClassSpec(task="multiclass", names=("a", "b", "c"), colours=((0, 0, 0),) * 3)
    probs = np.full((3, 300, 270), 1 / 3, np.float32)
    config = ExportConfig(labels_format="tiff", confidence=True, probs=True, probs_format="tiff")
    places = {"x": PLACE, "y": Geometry()}
    writer = Writer(tmp_path, config, spec, locate=places.__getitem__)
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


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.uint8])
def test_every_page_says_it(tmp_path, dtype):
    probs = np.random.default_rng(0).integers(0, 200, (3, 300, 270)).astype(dtype)
    write_tiff(tmp_path / "a.tif", probs, locate=lambda: PLACE)
    with tifffile.TiffFile(tmp_path / "a.tif") as tiff:
        pages = [page.aspage() for page in tiff.pages]
        assert (len(pages), tiff.series[0].axes) == (3, "CYX")
        assert np.array_equal(tiff.asarray(), probs)
        for page in pages:
            assert page.geotiff_tags == tiff.geotiff_metadata
            assert page.geotiff_tags["ModelPixelScale"] == [1.5, 2.0, 0.0]
            assert page.resolution == pytest.approx((1e4 / 0.2521, 1e4 / 0.5), rel=1e-6)
        assert tifffile.xml2dict(tiff.ome_metadata)["OME"]["Image"]["Pixels"]["PhysicalSizeY"] == 0.5
