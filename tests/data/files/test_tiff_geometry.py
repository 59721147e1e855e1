"""Tags of GeoTIFFs: the place that rasterio reads in them, and the value that marks pixels without data."""

import re

import numpy as np
import pytest
import tifffile

from segmeter.data.files.geometry import MILLIMETRES
from segmeter.data.files.opened import read_header
from segmeter.data.masks.reading import read_map, read_values
from segmeter.data.sample import Reading
from segmeter.errors import DataError
from tests.data.crafted import THREE
from tests.data.formats_written import draw_mask, library, write_geotiff


def values(path):
    return read_values(path, max_pixels=10_000)


@pytest.mark.parametrize("degrees", [0, 5])
def test_the_transform_of_a_geotiff_is_rasterios_and_has_a_third_direction(degrees, tmp_path):
    """GDAL writes a transformation, whose third column is 0, where the pixels are turned."""
    rasterio = library("rasterio")
    turned = rasterio.Affine(0.75, 0, 5e5, 0, -0.5, 5.8e6) @ rasterio.Affine.rotation(degrees)
    write_geotiff(tmp_path / "a.tif", draw_mask(), nodata=7, transform=turned)
    found = values(tmp_path / "a.tif").geometry
    theirs = np.array(turned @ rasterio.Affine.translation(0.5, 0.5)).reshape(3, 3)
    assert np.allclose(found.affine[:2][:, [0, 1, 3]], 1000 * theirs[:2], rtol=1e-12)
    assert found.affine[:3, 2].tolist() == [0, 0, 1000]
    assert (found.crs, found.nodata, found.unit) == ("EPSG:32633", 7.0, "m")
    assert degrees or found.spacing == (0.5, 0.75)


def test_degrees_are_no_length(tmp_path):
    write_geotiff(tmp_path / "a.tif", draw_mask(), west=13.0, crs="EPSG:4326")
    found = values(tmp_path / "a.tif").geometry
    assert (found.spacing, found.crs) == (None, "EPSG:4326")
    assert "degrees" in found.note


def test_a_pixel_that_is_a_point_lies_half_a_pixel_further(tmp_path):
    """GeoTIFF 1.1, 7.1.2.4: its tie point is the centre."""
    origins = []
    for raster in (1, 2):
        tie = (33922, "d", 6, (0.0, 0.0, 0.0, 100.0, 200.0, 0.0), True)
        keys = (34735, "H", 8, (1, 1, 0, 1, 1025, 0, 1, raster), True)
        tifffile.imwrite(tmp_path / "a.tif", draw_mask(), extratags=[SCALED, tie, keys])
        origins.append(values(tmp_path / "a.tif").geometry.affine[:2, 3].tolist())
    assert origins == [[101.0, 199.0], [100.0, 200.0]]


SCALED, FLAT = (33550, "d", 3, (2.0, 2.0, 0.0), True), "a transformation that lays several pixels on one place"


@pytest.mark.parametrize(
    ("matrix", "rule"),
    [
        ((0.0,) * 15 + (1.0,), FLAT),
        ((np.nan,) * 15 + (1.0,), FLAT),
        ((1.0, 1.0, 0.0, 0.0, 2.0, 2.0, *(0.0,) * 9, 1.0), FLAT),
        (None, "2 tie points"),
    ],
)
def test_a_transformation_that_is_none_is_refused(matrix, rule, tmp_path):
    keys = (34735, "H", 8, (1, 1, 0, 1, 1024, 0, 1, 2), True)
    tags = [(34264, "d", 16, matrix, True), keys] if matrix else [SCALED, (33922, "d", 12, (0.0,) * 12, True)]
    tifffile.imwrite(tmp_path / "a.tif", draw_mask(), extratags=tags)
    with pytest.raises(DataError, match=rule):
        values(tmp_path / "a.tif")


def test_a_sparse_file_is_refused_as_such(tmp_path):
    """GDAL leaves out tiles that hold nothing, which other readers fill as they like."""
    tiles = {"tiled": True, "blockxsize": 16, "blockysize": 16, "sparse_ok": True}
    write_geotiff(tmp_path / "a.tif", np.zeros((32, 48), np.uint8), **tiles)
    with pytest.raises(DataError, match=r"tiles are left out of a sparse TIFF: write all of them, GDAL with SPARSE_OK"):
        values(tmp_path / "a.tif")


def with_keys(path, *keys):
    """Pixels that are points, 2 wide and 4 high in a unit that the keys name."""
    directory = (1, 1, 0, 2 + len(keys) // 4, 1024, 0, 1, 1, 1025, 0, 1, 2, *keys)
    tags = [
        (33550, "d", 3, (2.0, 4.0, 0.0), True),
        (33922, "d", 6, (0.0, 0.0, 0.0, 100.0, 200.0, 0.0), True),
        (34735, "H", len(directory), directory, True),
    ]
    tifffile.imwrite(path, draw_mask(), extratags=tags)
    return values(path).geometry


@pytest.mark.parametrize("system", ["EPSG:2263", "EPSG:32633", "EPSG:2222", "own"])
def test_the_unit_of_length_is_the_one_that_gdal_reads(system, tmp_path):
    """EPSG:2263 (New York) is in US survey feet, EPSG:2222 (Arizona) in international ones."""
    rasterio = library("rasterio")
    given = "+proj=laea +lat_0=47 +lon_0=13 +ellps=WGS84 +to_meter=0.75" if system == "own" else system
    write_geotiff(tmp_path / "a.tif", draw_mask(), crs=given)
    found = values(tmp_path / "a.tif").geometry
    with rasterio.open(tmp_path / "a.tif") as file:
        metres = file.crs.linear_units_factor[1]
        theirs = np.array(file.transform @ rasterio.Affine.translation(0.5, 0.5)).reshape(3, 3)
    found_mm = [edge * MILLIMETRES[found.unit] for edge in found.spacing]
    assert found_mm == pytest.approx([1000 * metres * 0.5, 1000 * metres * 0.75], rel=1e-12)
    assert np.allclose(found.affine[:2][:, [0, 1, 3]], 1000 * metres * theirs[:2], rtol=1e-12)
    assert (found.note, found.spacing_problem) == ("", "")


@pytest.mark.parametrize(
    ("keys", "name"), [((3076, 0, 1, 9005), "EPSG:9005"), ((3076, 0, 1, 32767), "EPSG:32767")], ids=["Clarke", "own"]
)
def test_a_unit_that_is_not_known_is_refused_where_the_spacing_is_used(keys, name, tmp_path):
    found = with_keys(tmp_path / "a.tif", *keys)
    assert (found.spacing, found.unit) == (None, None)
    assert re.search(rf"expected `unit` of the spacing to be a length .*, got '{name}'. Correct", found.spacing_problem)


def test_a_file_that_names_no_unit_says_so(tmp_path):
    found = with_keys(tmp_path / "a.tif")
    assert (found.spacing, found.unit) == ((4.0, 2.0), None)
    assert "names no unit of length" in found.note


@pytest.mark.parametrize("text", ["-1.#QNAN", "", "none", "1,0", "0 0 0"])
def test_nodata_that_can_not_be_read_is_refused_for_masks_and_means_nothing_for_images(text, tmp_path):
    tags = [(42113, "s", 0, text, True)]
    tifffile.imwrite(tmp_path / "a.tif", np.zeros((4, 5, 3), np.uint8), photometric="rgb", extratags=tags)
    assert read_header(tmp_path / "a.tif").width == 5
    mask = draw_mask()
    tifffile.imwrite(tmp_path / "b.tif", mask, extratags=tags)
    refused = rf"b\.tif: expected `nodata \(GDAL_NODATA\)` to be a number, got '{re.escape(text)}'. Write one"
    with pytest.raises(DataError, match=refused):
        read_map(tmp_path / "b.tif", Reading(spec=THREE, label_map={}, max_pixels=1000))
    known = {"0": 0, "1": 1, "2": 2, "255": 255}
    found = read_map(tmp_path / "b.tif", Reading(spec=THREE, label_map=known, max_pixels=1000))
    assert np.array_equal(found.values, mask)


def test_nodata_that_is_no_number_marks_nothing(tmp_path):
    tifffile.imwrite(tmp_path / "a.tif", draw_mask(), extratags=[(42113, "s", 4, "nan", True)])
    assert values(tmp_path / "a.tif").geometry.nodata is None
