"""Spacing and place from each kind of file, when two maps are of different places, and names of lengths."""

import re
from dataclasses import replace
from pathlib import Path

import nibabel
import numpy as np
import pytest
import tifffile

from segmeter.data.files.geometry import MILLIMETRES, Geometry, find_unit, geometry_problem
from segmeter.data.masks.reading import read_map
from tests.data.crafted import patch
from tests.data.files.test_geometry_stated import READING, geometry, ome_tiff, zarr_attributes
from tests.data.volumes import EDGES, VOLUME, save_nifti


@pytest.mark.parametrize(("unit", "name", "factor"), [("mm", "mm", 1), (None, "mm", 1), ("micron", "um", 1e-3)])
def test_a_nifti_header_has_spacing_and_place(unit, name, factor, tmp_path):
    found = geometry(save_nifti(tmp_path / "a.nii.gz", origin=(1, 2, 3), unit=unit))
    assert (found.spacing, found.unit, found.source) == (EDGES, name, "NIfTI header")
    assert found.affine is not None
    assert np.diag(found.affine).tolist() == pytest.approx([0.25 * factor, 0.5 * factor, 3 * factor, 1], rel=1e-12)
    assert found.affine[:3, 3].tolist() == pytest.approx([factor, 2 * factor, 3 * factor], rel=1e-12)


def test_a_header_that_says_two_things_is_in_conflict(tmp_path):
    found = geometry(patch(save_nifti(tmp_path / "a.nii"), 80, np.array([0.3], "<f4").tobytes()))  # pixdim of x
    assert found.spacing is None
    assert "to say one spacing, got pixdim (0.3, 0.5, 3) and an affine of (0.25, 0.5, 3)" in found.spacing_problem


def affine(*edges, origin=(0, 0, 0)):
    found = np.diag([*edges, 1.0])
    found[:3, 3] = origin
    return found


BASE = Geometry(spacing=(3.0, 0.5, 0.25), unit="mm", affine=affine(0.25, 0.5, 3.0, origin=(10, 20, 30)))
SHAPE = (17, 512, 512)


@pytest.mark.parametrize(
    "other",
    [
        pytest.param({}, id="the same"),
        pytest.param({"spacing": None, "affine": None}, id="says nothing"),
        pytest.param({"spacing": (3.0001, 0.5, 0.25)}, id="rounded spacing"),
        pytest.param({"spacing": (3000.0, 500.0, 250.0), "unit": "um"}, id="another unit"),
        pytest.param({"spacing": (3 / 25.4, 0.5 / 25.4, 0.25 / 25.4), "unit": "inch"}, id="inches"),
        pytest.param({"affine": affine(1, 1, 1), "source": "OME metadata"}, id="another world"),
        pytest.param({"affine": affine(0.25, 0.5, 3.0, origin=(10.01, 20, 30))}, id="rounded origin"),
        pytest.param({"affine": affine(0.2500001, 0.5, 3.0, origin=(10, 20, 30))}, id="float32 direction"),
    ],
)
def test_rounding_is_no_difference(other):
    given = replace(BASE, **other)
    assert geometry_problem(Path("p"), given, Path("r"), BASE, SHAPE) == []


PLACE = affine(0.25, 0.5, 3.0, origin=(10.125, 20, 30))


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (
            {"spacing": (3.0, 0.5, 0.26)},
            "p: expected `spacing` to be that of its reference r, (3, 0.5, 0.25) mm, got (3",
        ),
        ({"unit": "um"}, "got (3, 0.5, 0.25) um."),
        ({"affine": PLACE}, "[10., 20., 30.], got [10.125, 20.   , 30.   ]"),
        ({"affine": affine(-0.25, 0.5, 3.0)}, "`affine (columns: file axes)`"),
        ({"affine": affine(0.2505, 0.5, 3.0, origin=(10, 20, 30))}, "`affine ("),
    ],
    ids=["spacing", "unit", "half a pixel", "mirrored", "drifting"],
)
def test_another_place_is_refused_with_both(other, message):
    given = replace(BASE, **other)
    (problem,) = geometry_problem(Path("p"), given, Path("r"), BASE, SHAPE)
    assert message in problem
    assert problem.endswith("or data.resample=nearest brings the prediction onto the reference's grid.")


def test_what_nibabel_writes_as_a_quaternion_is_the_same_place(tmp_path):
    """Turned by almost half a turn, where float32 quaternions are at their worst."""
    angle = np.pi - 0.01
    turn = np.array([[np.cos(angle), -np.sin(angle), 0], [np.sin(angle), np.cos(angle), 0], [0, 0, 1]])
    full = np.eye(4)
    full[:3, :3] = turn @ np.diag([0.25, 0.5, 3.0])
    shape = (17, 200, 200)
    for name, codes in (("a.nii", (0, 1)), ("b.nii", (1, 0))):
        image = nibabel.Nifti1Image(np.zeros(shape[::-1], np.uint8), None)
        image.set_sform(full, codes[0])
        image.set_qform(full, codes[1])
        nibabel.save(image, tmp_path / name)
    reading = replace(READING, max_pixels=10**6)
    one, two = (read_map(tmp_path / name, reading).geometry for name in ("a.nii", "b.nii"))
    assert not np.array_equal(one.affine, two.affine)
    assert geometry_problem(Path("a"), one, Path("b"), two, shape) == []


def nifti_forms(path, *, sform, qform, shift):
    """Both forms of a header, the second moved along x; written by nibabel."""
    image = nibabel.Nifti1Image(VOLUME.T, None)
    first = np.diag([0.25, 0.5, 3.0, 1.0])
    second = first.copy()
    second[0, 3] = shift
    image.set_sform(first, sform)
    image.set_qform(second, qform)
    image.header.set_xyzt_units("mm")
    nibabel.save(image, path)
    return geometry(path)


def test_two_forms_of_one_space_must_agree(tmp_path):
    path = tmp_path / "a.nii"
    assert nifti_forms(path, sform=1, qform=1, shift=0.06).place_problem == ""  # under a quarter of 0.25
    found = nifti_forms(path, sform=1, qform=1, shift=5.0)
    assert "expected `origin` of qform and sform to agree, as both are of the space with code 1" in found.place_problem
    assert found.place_problem.endswith("Set the code of the wrong one to 0.")


def test_forms_of_two_spaces_may_differ_and_say_so(tmp_path):
    found = nifti_forms(tmp_path / "a.nii", sform=4, qform=1, shift=5.0)
    assert (found.place_problem, found.spacing) == ("", (3.0, 0.5, 0.25))
    assert found.note == "the NIfTI sform, space 4 (MNI 152), is taken; the qform, space 1 (scanner), differs"
    assert np.array_equal(found.affine, nibabel.load(tmp_path / "a.nii").affine)
    for sform, qform in ((4, 0), (0, 1)):
        assert nifti_forms(tmp_path / "a.nii", sform=sform, qform=qform, shift=5.0).note == ""


def test_ome_metadata_that_is_in_another_file_is_no_unknown_spacing(tmp_path):
    path = ome_tiff(tmp_path, (3.0, 0.5, 0.25), "mm")
    with tifffile.TiffFile(path) as tiff:
        xml = re.sub("<Image .*</Image>", "<BinaryOnly MetadataFile='a.ome.xml'/>", tiff.ome_metadata or "", flags=re.S)
    tifffile.imwrite(path, VOLUME, photometric="minisblack", metadata=None, description=xml)
    assert "expected `OME metadata` to describe one picture, got 0 pictures" in geometry(path).spacing_problem


@pytest.mark.parametrize(
    ("spacing", "units", "rule"),
    [
        *(((3.0, 0.5, 0.25), units, "expected `unit`") for units in (3, ["um"], {"z": "um"}, [1, 2, 3])),
        *((edges, "mm", "`spacing` to be 3 numbers, one per axis, got") for edges in ((0.5, 0.25), (1, 3, 0.5, 0.25))),
    ],
)
def test_zarr_attributes_that_are_no_edges_or_units_are_refused(spacing, units, rule, tmp_path):
    assert rule in geometry(zarr_attributes(tmp_path, spacing, units)).spacing_problem


NGFF = {  # what OME-NGFF 0.4 and 0.5 list for space, in metres by their definitions
    "angstrom": 1e-10, "attometer": 1e-18, "centimeter": 1e-2, "decimeter": 1e-1, "exameter": 1e18,
    "femtometer": 1e-15, "foot": 0.3048, "gigameter": 1e9, "hectometer": 1e2, "inch": 0.0254, "kilometer": 1e3,
    "megameter": 1e6, "meter": 1.0, "micrometer": 1e-6, "mile": 1609.344, "millimeter": 1e-3, "nanometer": 1e-9,
    "parsec": 3.0857e16, "petameter": 1e15, "picometer": 1e-12, "terameter": 1e12, "yard": 0.9144,
    "yoctometer": 1e-24, "yottameter": 1e24, "zeptometer": 1e-21, "zettameter": 1e21,
}  # fmt: skip
OF_OME_XML = {"line": 0.0254 / 12, "point": 0.0254 / 72, "thou": 0.0254 / 1000}


@pytest.mark.parametrize(("name", "metres"), (NGFF | OF_OME_XML).items())
def test_every_length_of_ome_is_known_by_its_names(name, metres):
    unit = find_unit(name)
    assert unit is not None
    assert MILLIMETRES[unit] == pytest.approx(1000 * metres, rel=1e-4 if name == "parsec" else 1e-14)
    plurals = {"foot": "feet", "inch": "inches"}
    spellings = [name.upper(), name.title(), plurals.get(name, f"{name}s"), name.replace("meter", "metre")]
    assert {find_unit(spelling) for spelling in spellings} == {unit}


@pytest.mark.parametrize(
    ("names", "unit"),
    [
        (["um", "\u00b5m", "\u03bcm", "micron", "microns", "Micrometre", " \u00b5m "], "um"),
        (["mm", "millimetres"], "mm"),
        (["nm"], "nm"),
        (["\u00c5", "\u212b", "angstroms"], "angstrom"),
        (["in", "Inches"], "inch"),
        (["ft", "feet"], "foot"),
        (["Mm", "megametre"], "Mm"),
        (["MM", "UM", "second", "sec", "furlong", "m/s", "mm2", "reference frame", 3], None),
        (["pixel", " Voxels ", "", None], ""),
    ],
)
def test_abbreviations_and_spellings_are_one_unit(names, unit):
    assert {find_unit(name) for name in names} == {unit}
