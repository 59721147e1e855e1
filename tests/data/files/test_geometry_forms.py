"""Rare forms of metadata: NIfTI with two places, OME metadata in another file, and Zarr with odd units or none."""

import json
import re
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import pytest
import tifffile
import zarr

from segmeter.data.files.geometry import Geometry
from segmeter.data.masks.reading import read_map
from tests.data.files.test_geometry_stated import READING, geometry, ome_tiff, zarr_attributes
from tests.data.volumes import VOLUME


def nifti_forms(path: Path, *, sform: int, qform: int, shift: float) -> Geometry:
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


def test_two_forms_of_one_space_must_agree(tmp_path: Path) -> None:
    path = tmp_path / "a.nii"
    assert nifti_forms(path, sform=1, qform=1, shift=0.06).place_problem == ""  # under a quarter of 0.25
    found = nifti_forms(path, sform=1, qform=1, shift=5.0)
    assert "expected `origin` of qform and sform to agree, as both are of the space with code 1" in found.place_problem
    assert found.place_problem.endswith("Set the code of the wrong one to 0.")


def test_forms_of_two_spaces_may_differ_and_say_so(tmp_path: Path) -> None:
    found = nifti_forms(tmp_path / "a.nii", sform=4, qform=1, shift=5.0)
    assert (found.place_problem, found.spacing) == ("", (3.0, 0.5, 0.25))
    assert found.note == "the NIfTI sform, space 4 (MNI 152), is taken; the qform, space 1 (scanner), differs"
    assert np.array_equal(found.affine, nibabel.load(tmp_path / "a.nii").affine)
    for codes in ({"sform": 4, "qform": 0}, {"sform": 0, "qform": 1}):
        assert nifti_forms(tmp_path / "a.nii", **codes, shift=5.0).note == ""


def test_ome_metadata_that_is_in_another_file_is_no_unknown_spacing(tmp_path: Path) -> None:
    path = ome_tiff(tmp_path, (3.0, 0.5, 0.25), "mm")
    with tifffile.TiffFile(path) as tiff:
        xml = re.sub("<Image .*</Image>", "<BinaryOnly MetadataFile='a.ome.xml'/>", tiff.ome_metadata or "", flags=re.S)
    tifffile.imwrite(path, VOLUME, photometric="minisblack", metadata=None, description=xml)
    assert "expected `OME metadata` to describe one picture, got 0 pictures" in geometry(path).spacing_problem


@pytest.mark.parametrize("units", [3, ["um"], {"z": "um"}, [1, 2, 3]], ids=str)
def test_units_of_zarr_attributes_that_are_no_names_are_refused(units: Any, tmp_path: Path) -> None:
    assert "expected `unit`" in geometry(zarr_attributes(tmp_path, (3.0, 0.5, 0.25), units)).spacing_problem


def test_zarr_3_without_attributes_is_whole(tmp_path: Path) -> None:
    zarr.create_array(str(tmp_path / "a.zarr"), data=VOLUME)
    file = tmp_path / "a.zarr" / "zarr.json"
    note = json.loads(file.read_text())
    del note["attributes"]
    file.write_text(json.dumps(note))
    assert np.array_equal(read_map(tmp_path / "a.zarr", READING).values, VOLUME)
    file.write_text(json.dumps({**note, "attributes": None}))
    assert geometry(tmp_path / "a.zarr").spacing is None
