"""Label volumes, and MHA and NRRD maps, are read back by other libraries and by our reader."""

import nibabel
import numpy as np
import pytest
import tifffile
import zarr

from segmeter.classes import ClassSpec
from segmeter.data.files.geometry import NOWHERE, Geometry
from segmeter.data.files.opened import open_array
from segmeter.data.masks.reading import read_values
from segmeter.export.config import ExportConfig
from segmeter.export.writer import ENCODERS, Writer, check_volume_export, label_file, write_nifti
from tests.data.formats_written import library

LABELS = np.random.default_rng(0).integers(0, 3, (4, 30, 17)).astype(np.uint8)
EDGES = (3.0, 0.5, 0.25)
SPEC = ClassSpec(task="multiclass", names=("a", "b"), colours=((0, 0, 0), (1, 1, 1)))
AFFINE = np.array([[0, -0.5, 0, 7.0], [0.25, 0, 0, -2.0], [0, 0, 3.0, 1.0], [0, 0, 0, 1]])  # x and y are exchanged


def place_of(path, geometry=NOWHERE):
    return geometry.having(file=path)


def read_by_itk(path):
    sitk = library("SimpleITK")
    return sitk.GetArrayFromImage(sitk.ReadImage(str(path)))


PEERS = {
    "nifti": lambda path: np.asarray(nibabel.load(path).dataobj).T,
    "tiff": tifffile.imread,
    "zarr": lambda path: zarr.open_array(str(path), mode="r")[:],
    **dict.fromkeys(ENCODERS, read_by_itk),
}


@pytest.mark.parametrize("form", PEERS)
def test_a_multilabel_volume_has_a_file_per_class_that_its_library_and_we_read_voxel_by_voxel(form, tmp_path):
    spec = ClassSpec(task="multilabel", names=("liver", "lung"), colours=((9, 0, 0), (0, 9, 0)))
    labels = np.stack([LABELS == 1, LABELS > 0]).astype(np.uint8)
    place = place_of(tmp_path / "a.npy", Geometry(spacing=EDGES, unit="mm"))
    written = Writer(tmp_path, ExportConfig(labels_format=form), spec, locate=lambda case_id: place).write("a", labels)
    for name, mask in zip(spec.names, labels, strict=True):
        (path,) = (tmp_path / each for each in written if f"labels/{name}/" in each)
        np.testing.assert_array_equal(PEERS[form](path), mask, strict=True)
        with open_array(path, refuse_changes=True, axes="map") as array:
            np.testing.assert_array_equal(np.concatenate(list(array.blocks())).reshape(mask.shape), mask)
            assert (array.geometry.spacing, array.geometry.unit) == (EDGES, "mm")


@pytest.mark.parametrize(
    ("source", "suffix"), [("a.nii", ".nii.gz"), ("a.nii.gz", ".nii.gz"), ("a.MHA", ".mha"), ("a.npy", ".tif")]
)
def test_the_format_is_that_of_the_image(source, suffix, tmp_path):
    assert label_file(ExportConfig(), LABELS, SPEC, lambda: place_of(tmp_path / source))[0] == suffix


@pytest.mark.parametrize("order", "<>")
def test_nifti_repeats_the_header_of_its_image_but_not_its_scaling(order, tmp_path):
    header = nibabel.Nifti1Header(endianness=order)
    header.set_data_dtype(np.int16)
    image = nibabel.Nifti1Image(LABELS.T.astype(np.int16), AFFINE, header)
    image.header.set_slope_inter(2, 5)
    image.header.set_xyzt_units("mm")
    image.set_qform(AFFINE, 2)
    image.set_sform(AFFINE, 3)
    nibabel.save(image, tmp_path / "a.nii")
    write_nifti(tmp_path / "b.nii.gz", LABELS, place_of(tmp_path / "a.nii"))
    found = nibabel.load(tmp_path / "b.nii.gz")
    np.testing.assert_array_equal(np.asarray(found.dataobj).T, LABELS)
    np.testing.assert_array_equal(found.affine, nibabel.load(tmp_path / "a.nii").affine)
    assert [int(found.header[code]) for code in ("qform_code", "sform_code", "xyzt_units")] == [2, 3, 2]
    assert found.get_data_dtype() == np.dtype(np.uint8)


def test_nifti_of_another_format_states_the_affine_in_millimetres(tmp_path):
    geometry = Geometry(spacing=tuple(edge * 1000 for edge in EDGES), unit="um", affine=AFFINE)
    write_nifti(tmp_path / "b.nii.gz", LABELS, place_of(tmp_path / "a.npy", geometry))
    found = nibabel.load(tmp_path / "b.nii.gz")
    np.testing.assert_array_equal(found.affine, AFFINE)
    assert found.header.get_zooms() == EDGES[::-1]


def test_files_that_hold_no_planes_are_refused_together():
    spec = ClassSpec(task="multilabel", names=("x", "y"), colours=((9, 0, 0), (0, 9, 0)))
    config = ExportConfig(labels_format="png", probs=True, probs_format="tiff", confidence=True, objects=("coco",))
    found = check_volume_export(config, spec)
    assert [line.partition("`")[2].partition("`")[0] for line in found] == [
        "labels_format=png",
        "probs_format=tiff",
        "confidence",
        "objects",
    ]
    assert not check_volume_export(ExportConfig(), spec)


@pytest.mark.parametrize("form", ENCODERS)
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize(
    ("location", "spacing"),
    [
        (Geometry(spacing=(0.5, 0.2521), unit="mm"), (0.5, 0.2521)),
        (Geometry(spacing=(500.0, 250.0), unit="um"), (0.5, 0.25)),
        (Geometry(spacing=(500.0, 250.0)), None),
        (NOWHERE, None),
    ],
    ids=["mm", "um", "no unit", "nothing"],
)
def test_files_are_read_by_itk_and_by_us(form, dtype, location, spacing, tmp_path):
    sitk = library("SimpleITK")
    labels = LABELS[0].astype(dtype) * dtype(300 if dtype == np.uint16 else 1)
    path = tmp_path / f"a.{form}"
    path.write_bytes(ENCODERS[form](labels, location))
    image = sitk.ReadImage(str(path))
    assert np.array_equal(sitk.GetArrayFromImage(image), labels)
    assert sitk.GetArrayFromImage(image).dtype == dtype
    assert image.GetSpacing() == (spacing[::-1] if spacing else (1.0, 1.0))
    found = read_values(path, max_pixels=1000)
    assert np.array_equal(found.values, labels)
    assert (found.geometry.spacing, found.geometry.unit) == (spacing, "mm" if spacing else None)
    assert ENCODERS[form](labels, location) == path.read_bytes()
