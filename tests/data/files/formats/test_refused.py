"""MHA, NRRD, DICOM and GeoTIFF files that are refused, and what their geometry says."""

import io
import re
from pathlib import Path

import numpy as np
import pytest
import tifffile

from segmeter.data.files.formats.library import need
from segmeter.data.files.masks import read_values
from segmeter.errors import DataError
from tests.data.formats_written import draw_mask, library, write_dicom, write_geotiff, write_itk


def values(path: Path, max_pixels: int = 10_000):
    return read_values(path, max_pixels=max_pixels)


def test_a_missing_library_says_what_to_install():
    with pytest.raises(DataError, match=r"pip install 'segmeter\[itk\]'"):
        need("no_such_library", "itk", "MHA files")


@pytest.mark.parametrize("suffix", [".mha", ".nrrd"])
def test_pixels_in_another_file_are_refused(suffix, tmp_path):
    sitk = library("SimpleITK")
    image = sitk.GetImageFromArray(draw_mask())
    detached = tmp_path / ("a.mhd" if suffix == ".mha" else "a.nhdr")
    sitk.WriteImage(image, str(detached))
    path = detached.rename(tmp_path / f"b{suffix}")
    with pytest.raises(DataError, match="to hold its pixels itself"):
        values(path)


@pytest.mark.parametrize(
    ("suffix", "old", "new", "rule"),
    [
        (".mha", b"= LOCAL", b"= LOCAL.raw", "to hold its pixels itself"),
        (".mha", b"ElementDataFile = LOCAL", b"ElementDataFile: b.raw", "to hold its pixels itself"),
        (".mha", b"ElementDataFile = LOCAL", b"  ElementDataFile = b.raw", "to hold its pixels itself"),
        (".mha", b"ElementDataFile = LOCAL", b"elementdatafile = LOCAL", "to hold its pixels itself"),
        (".mha", b"ElementDataFile", b"Comment = " + b"x" * 70_000 + b"\nElementDataFile", "to end within 65536 bytes"),
        (".mha", b"ElementDataFile", b"junk\nElementDataFile", "a name and a value per line"),
        (".mha", b"ElementDataFile", b"NDims = 2\nElementDataFile", "to name a field once"),
        (".nrrd", b"\nencoding", b"\nDATA FILE: b.raw\nencoding", "to hold its pixels itself"),
        (".nrrd", b"\nencoding", b"\n datafile: b.raw\nencoding", "to hold its pixels itself"),
        (".nrrd", b"\nencoding", b"\n#" + b"x" * 70_000 + b"\nencoding", "to end within 65536 bytes"),
    ],
)
def test_headers_that_hide_another_file_are_refused(suffix, old, new, rule, tmp_path):
    path = tmp_path / f"a{suffix}"
    write_itk(path, draw_mask())
    content = path.read_bytes()
    assert old in content
    path.write_bytes(content.replace(old, new, 1))
    with pytest.raises(DataError, match=rule):
        values(path)


@pytest.mark.parametrize("suffix", [".mha", ".nrrd"])
def test_damaged_large_and_coloured_files_are_refused(suffix, tmp_path):
    sitk = library("SimpleITK")
    path = tmp_path / f"a{suffix}"
    write_itk(path, draw_mask(shape=(6, 24, 30)))
    with pytest.raises(DataError, match=r"data.max_pixels"):
        values(path, 100)
    path.write_bytes(path.read_bytes()[:-700])
    with pytest.raises(DataError, match="truncated or damaged"):
        values(path)
    path.write_bytes(b"ObjectType = Image\nElementDataFile = LOCAL\n")
    with pytest.raises(DataError, match="truncated or damaged"):
        values(path)
    sitk.WriteImage(sitk.GetImageFromArray(np.zeros((4, 5, 3), np.uint8), isVector=True), str(path))
    with pytest.raises(DataError, match="3 values per pixel"):
        values(path)


MHA_SPACING = rb"ElementSpacing = [^\n]*\n"
NRRD_SPACING = rb"space directions: [^\n]*\n"


@pytest.mark.parametrize(
    ("suffix", "line", "new", "problem"),
    [
        (".mha", MHA_SPACING, b"", ""),
        (".mha", MHA_SPACING, b"ElementSpacing = 1 -2\n", r"got \(-2, 1\)"),
        (".nrrd", NRRD_SPACING, b"", ""),
        (".nrrd", NRRD_SPACING, b"spacings: 1 -2\n", r"got \(-2, 1\)"),
        (".nrrd", NRRD_SPACING, b"spacings: 1 nan\n", r"got \(nan, 1\)"),
    ],
)
def test_a_spacing_is_what_the_header_states(suffix, line, new, problem, tmp_path):
    path = tmp_path / f"a{suffix}"
    write_itk(path, draw_mask())
    content, count = re.subn(line, new, path.read_bytes(), count=1)
    assert count == 1
    if suffix == ".nrrd":
        content = re.sub(rb"space(?: dimension| origin)?: [^\n]*\n", b"", content)
    path.write_bytes(content)
    found = values(path).geometry
    assert (found.spacing, found.affine) == (None, None)
    assert re.search(problem, found.spacing_problem)
    assert bool(found.spacing_problem) == bool(problem)


def test_units_of_nrrd_are_read(tmp_path):
    write_itk(tmp_path / "a.nrrd", draw_mask(shape=(6, 24, 30)))
    content = (tmp_path / "a.nrrd").read_bytes()
    path = tmp_path / "b.nrrd"
    path.write_bytes(content.replace(b"\nencoding", b'\nspace units: "um" "um" "um"\nencoding', 1))
    assert values(path).geometry.unit == "um"
    assert values(tmp_path / "a.nrrd").geometry.unit == "mm"


def test_other_dicom_files_are_refused(tmp_path):
    pydicom = library("pydicom")
    write_dicom(tmp_path / "a.dcm", draw_mask(shape=(6, 24, 30)))
    with pytest.raises(DataError, match=r"data.max_pixels"):
        values(tmp_path / "a.dcm", 100)
    dataset = pydicom.dcmread(tmp_path / "a.dcm")
    dataset.SegmentationType = "FRACTIONAL"
    dataset.save_as(tmp_path / "b.dcm")
    with pytest.raises(DataError, match="to hold segments and not fractions"):
        values(tmp_path / "b.dcm")
    dataset.SOPClassUID = pydicom.uid.CTImageStorage
    dataset.save_as(tmp_path / "c.dcm")
    with pytest.raises(DataError, match="to be a segmentation, got CT Image Storage"):
        values(tmp_path / "c.dcm")
    (tmp_path / "d.dcm").write_bytes(b"no DICOM at all")
    with pytest.raises(DataError, match="truncated or damaged"):
        values(tmp_path / "d.dcm")


def test_the_transform_of_a_geotiff_is_rasterios(tmp_path):
    rasterio = library("rasterio")
    write_geotiff(tmp_path / "a.tif", draw_mask(), nodata=7)
    found = values(tmp_path / "a.tif").geometry
    with rasterio.open(tmp_path / "a.tif") as file:
        centres = file.transform @ rasterio.Affine.translation(0.5, 0.5)
        theirs = np.array(centres).reshape(3, 3)
    assert np.allclose(found.affine[:2][:, [0, 1, 3]], 1000 * theirs[:2], rtol=1e-12)
    assert (found.crs, found.nodata, found.spacing, found.unit) == ("EPSG:32633", 7.0, (0.5, 0.75), "m")


def test_degrees_are_no_length(tmp_path):
    write_geotiff(tmp_path / "a.tif", draw_mask(), west=13.0, crs="EPSG:4326")
    found = values(tmp_path / "a.tif").geometry
    assert (found.spacing, found.crs) == (None, "EPSG:4326")
    assert "degrees" in found.note


def test_a_pixel_that_is_a_point_lies_half_a_pixel_further(tmp_path):
    """GeoTIFF 1.1, 7.1.2.4: its tie point is the centre."""
    origins = []
    for raster in (1, 2):
        tags = [
            (33550, "d", 3, (2.0, 2.0, 0.0), True),
            (33922, "d", 6, (0.0, 0.0, 0.0, 100.0, 200.0, 0.0), True),
            (34735, "H", 8, (1, 1, 0, 1, 1025, 0, 1, raster), True),
        ]
        file = io.BytesIO()
        tifffile.imwrite(file, draw_mask(), extratags=tags)
        (tmp_path / "a.tif").write_bytes(file.getvalue())
        origins.append(values(tmp_path / "a.tif").geometry.affine[:2, 3].tolist())
    assert origins == [[101.0, 199.0], [100.0, 200.0]]


def test_several_tie_points_are_no_affine(tmp_path):
    tags = [(33550, "d", 3, (2.0, 2.0, 0.0), True), (33922, "d", 12, (0.0,) * 12, True)]
    tifffile.imwrite(tmp_path / "a.tif", draw_mask(), extratags=tags)
    with pytest.raises(DataError, match="2 tie points"):
        values(tmp_path / "a.tif")


def test_nodata_that_is_no_number_marks_nothing(tmp_path):
    tifffile.imwrite(tmp_path / "a.tif", draw_mask(), extratags=[(42113, "s", 4, "nan", True)])
    assert values(tmp_path / "a.tif").geometry.nodata is None
