"""DICOM segmentations: the map of highdicom's file and its place, and what is refused."""

import numpy as np
import pytest

from segmeter.errors import DataError
from tests.data.files.test_medical import SHAPE, values
from tests.data.formats_written import EDGES, ORIGIN, draw_mask, library, write_dicom


def test_segments_are_a_map_with_its_place(tmp_path):
    """Columns go to the left and rows to posterior, so both are turned for right and anterior."""
    mask = draw_mask(shape=SHAPE)
    write_dicom(tmp_path / "a.dcm", mask)
    found = values(tmp_path / "a.dcm")
    np.testing.assert_array_equal(found.values, mask)
    assert (found.geometry.spacing, found.geometry.unit, found.geometry.source) == (EDGES, "mm", "DICOM")
    wanted = np.diag([-EDGES[2], -EDGES[1], EDGES[0], 1.0])
    wanted[:3, 3] = -ORIGIN[0], -ORIGIN[1], ORIGIN[2]
    np.testing.assert_allclose(found.geometry.affine, wanted, rtol=1e-12)


def test_frames_that_were_left_out_are_empty_between_the_first_and_the_last(tmp_path):
    mask = draw_mask(shape=SHAPE)
    mask[[0, 2, 5]] = 0
    write_dicom(tmp_path / "a.dcm", mask, omit_empty_frames=True)
    found = values(tmp_path / "a.dcm")
    np.testing.assert_array_equal(found.values, mask[1:5])
    assert found.geometry.affine[2, 3] == ORIGIN[2] + EDGES[0]


def test_segments_that_share_a_voxel_are_refused(tmp_path):
    planes = np.zeros((*SHAPE, 2), np.uint8)
    planes[2, 3:9, 3:9, 0] = planes[2, 8:12, 8:12, 1] = 1  # one voxel is of both
    write_dicom(tmp_path / "a.dcm", planes)
    with pytest.raises(DataError, match="`segments` to have one segment per voxel, got segments that overlap"):
        values(tmp_path / "a.dcm")


def move_frames(dataset):
    for frame in dataset.PerFrameFunctionalGroupsSequence:
        position = frame.PlanePositionSequence[0]
        x, y, z = position.ImagePositionPatient
        position.ImagePositionPatient = [x, y, z + (1.3 if z > ORIGIN[2] + 7 else 0)]


def make_fractions(dataset):
    dataset.SegmentationType = "FRACTIONAL"


def make_images(dataset):
    dataset.SOPClassUID = library("pydicom").uid.CTImageStorage


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (move_frames, "to be slices of one volume, got frames at irregular places"),
        (make_fractions, "to hold segments and not fractions"),
        (make_images, "to be a segmentation, got CT Image Storage"),
    ],
)
def test_other_dicom_files_are_refused(change, rule, tmp_path):
    write_dicom(tmp_path / "a.dcm", draw_mask(shape=SHAPE))
    dataset = library("pydicom").dcmread(tmp_path / "a.dcm")
    change(dataset)
    dataset.save_as(tmp_path / "b.dcm")
    with pytest.raises(DataError, match=rule):
        values(tmp_path / "b.dcm")


def test_large_and_damaged_dicom_files_are_refused(tmp_path):
    write_dicom(tmp_path / "a.dcm", draw_mask(shape=SHAPE))
    with pytest.raises(DataError, match=r"data.max_pixels"):
        values(tmp_path / "a.dcm", 100)
    (tmp_path / "d.dcm").write_bytes(b"no DICOM at all")
    with pytest.raises(DataError, match="truncated or damaged"):
        values(tmp_path / "d.dcm")
