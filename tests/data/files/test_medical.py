"""MHA, NRRD and DICOM-SEG files: pixels and place as SimpleITK and highdicom have them, and what is refused."""

import gzip
import re
import zlib

import numpy as np
import pytest

from segmeter.data.files import medical
from segmeter.data.masks.reading import read_values
from segmeter.errors import DataError
from tests.data.crafted import put
from tests.data.files import apart
from tests.data.formats_written import EDGES, ORIGIN, draw_mask, library, write_dicom, write_itk

SHAPE = (6, 24, 30)


def values(path, max_pixels=10_000):
    return read_values(path, max_pixels=max_pixels)


def written(folder, suffix, old, new):
    """ITK's file with one change of its header."""
    path = folder / f"a{suffix}"
    write_itk(path, draw_mask())
    content, count = re.subn(old, new.replace(b"\\", rb"\\"), path.read_bytes(), count=1)
    assert count == 1
    return put(path, content)


@pytest.mark.parametrize("suffix", [".mha", ".nrrd"])
def test_the_place_of_a_turned_volume_is_simpleitks(suffix, tmp_path):
    """ITK's world goes to the left and to posterior, NIfTI's to the right and to anterior."""
    sitk = library("SimpleITK")
    mask = draw_mask(shape=SHAPE)
    image = sitk.GetImageFromArray(mask)
    image.SetSpacing((0.8, 0.6, 2.1))
    image.SetOrigin((10.0, -20.0, 5.0))
    cosine, sine = np.cos(0.3), np.sin(0.3)
    image.SetDirection((cosine, -sine, 0, sine, cosine, 0, 0, 0, 1))
    sitk.WriteImage(image, str(tmp_path / f"a{suffix}"))
    found = values(tmp_path / f"a{suffix}")
    np.testing.assert_array_equal(found.values, mask)
    assert (found.geometry.spacing, found.geometry.unit) == (pytest.approx((2.1, 0.6, 0.8), rel=1e-12), "mm")
    for index in ((0, 0, 0), (29, 0, 0), (3, 17, 5)):
        left, back, up = image.TransformIndexToPhysicalPoint(index)
        place = found.geometry.affine @ [*index, 1]
        np.testing.assert_allclose(place, [-left, -back, up, 1], rtol=1e-9, atol=1e-9)


FILE, ELSEWHERE, LONG = b"ElementDataFile", "to hold its pixels itself", b"x" * 70_000
MHA_SPACING, NRRD_SPACING = rb"ElementSpacing = [^\n]*\n", rb"space directions: [^\n]*\n"
NO_LENGTH = "ITK header: expected `spacing` to be a finite number > 0 .*, got "


@pytest.mark.parametrize(
    ("suffix", "old", "new", "rule"),
    [
        (".mha", b"= LOCAL", b"= LOCAL.raw", ELSEWHERE),
        (".mha", FILE + b" = LOCAL", FILE + b": b.raw", ELSEWHERE),
        (".mha", FILE + b" = LOCAL", b"  " + FILE + b" = b.raw", ELSEWHERE),
        (".mha", FILE, b"Comment = " + LONG + b"\n" + FILE, "to end within 65536 bytes"),
        (".nrrd", b"\nencoding", b"\nDATA FILE: b.raw\nencoding", ELSEWHERE),
        (".nrrd", b"\nencoding", b"\n datafile: b.raw\nencoding", ELSEWHERE),
        (".nrrd", b"\nencoding", b"\n#" + LONG + b"\nencoding", "to end within 65536 bytes"),
        # a spacing that keeps ITK from reading, which says no more than that it can't
        (".mha", MHA_SPACING, b"ElementSpacing = 0 1\n", NO_LENGTH + "'0 1'"),
        (".mha", MHA_SPACING, b"ElementSpacing = nan 1\n", NO_LENGTH + "'nan 1'"),
        (".mha", MHA_SPACING, b"ElementSpacing = wide 1\n", NO_LENGTH + "'wide 1'"),
        (".nrrd", NRRD_SPACING, b"space directions: (0,0) (0,1)\n", NO_LENGTH + r"'\(0,0\) \(0,1\)'"),
        (".nrrd", NRRD_SPACING, b"space directions: (nan,0) (0,1)\n", NO_LENGTH + r"'\(nan,0\) \(0,1\)'"),
        # units over the space, which axes may cross
        (".nrrd", b"\nencoding", b'\nspace units: "mm" "um"\nencoding', "`unit` of the spacing to be one, got mm, um"),
        (".nrrd", b"\nencoding", b'\nspace units: "mm" "mm"\nunits: "mm" "mm"\nencoding', "got units and space units"),
    ],
)
def test_headers_that_hide_another_file_or_their_spacing_are_refused(suffix, old, new, rule, tmp_path):
    with pytest.raises(DataError, match=rule):
        values(written(tmp_path, suffix, old, new))


@pytest.mark.parametrize("suffix", [".mha", ".nrrd"])
def test_damaged_large_and_coloured_files_are_refused(suffix, tmp_path):
    sitk, path = library("SimpleITK"), tmp_path / f"a{suffix}"
    write_itk(path, draw_mask(shape=SHAPE))
    with pytest.raises(DataError, match=r"data.max_pixels"):
        values(path, 100)
    for content in (path.read_bytes()[:-700], b"ObjectType = Image\nElementDataFile = LOCAL\n"):
        with pytest.raises(DataError, match="truncated or damaged"):
            values(put(path, content))
    sitk.WriteImage(sitk.GetImageFromArray(np.zeros((4, 5, 3), np.uint8), isVector=True), str(path))
    with pytest.raises(DataError, match="3 values per pixel"):
        values(path)


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
    path = written(tmp_path, suffix, line, new)
    path.write_bytes(re.sub(rb"space(?: dimension| origin)?: [^\n]*\n", b"", path.read_bytes()))
    found = values(path).geometry
    assert (found.spacing, found.affine) == (None, None)
    assert re.fullmatch(problem and f".*{problem}.*", found.spacing_problem)


@pytest.mark.parametrize(
    ("suffix", "after", "line"),
    [
        (".nrrd", b"\nencoding", b'\nspace units: "um" "um" "um"\nencoding'),
        (".mha", b"\nElementDataFile", b"\nDistanceUnits = um\nElementDataFile"),
    ],
)
def test_units_of_mha_and_nrrd_are_read(suffix, after, line, tmp_path):
    """The same place in millimetres and in micrometres."""
    mm, um = tmp_path / f"mm{suffix}", tmp_path / f"um{suffix}"
    write_itk(mm, draw_mask(shape=SHAPE))
    write_itk(um, draw_mask(shape=SHAPE), *(tuple(1000 * each for each in stated) for stated in (EDGES, ORIGIN)))
    um.write_bytes(um.read_bytes().replace(after, line, 1))
    one, other = values(mm).geometry, values(um).geometry
    assert (one.spacing, one.unit) == (EDGES, "mm")
    assert (other.spacing, other.unit) == ((3000.0, 500.0, 750.0), "um")
    assert np.allclose(one.affine, other.affine, rtol=1e-12)


@pytest.mark.parametrize(
    ("line", "stated", "problem"),
    [
        (b'units: "um" "um" "um"', ((3.0, 0.75, 0.5), "um"), ""),
        (b'units: "mm" "mm" "um"', ((0.003, 0.75, 0.5), "mm"), ""),
        (b'units: "um" "um" ""', (None, None), "unit` of the spacing to be named for every axis .*, got none, um, um"),
        (b'units: "s" "um" "um"', (None, None), "to be a length .*, got 's'"),
    ],
)
def test_units_of_the_axes_of_nrrd_are_read(line, stated, problem, tmp_path):
    """As NRRD has them where no space is named: first axis first."""
    head = b"NRRD0004\ntype: uint8\ndimension: 3\nsizes: 4 3 2\nencoding: raw\nspacings: 0.5 0.75 3\n"
    found = values(put(tmp_path / "a.nrrd", head + line + b"\n\n" + bytes(24))).geometry
    assert (found.spacing, found.unit) == stated
    assert re.fullmatch(problem and f".*{problem}.*", found.spacing_problem)


MHA = b"ObjectType = Image\nNDims = 2\nDimSize = 4 3\nElementType = MET_UCHAR\nElementDataFile = LOCAL\n"
NRRD = b"NRRD0004\ntype: uint8\ndimension: 2\nsizes: 4 3\nencoding: raw\n\n"


@pytest.mark.parametrize(
    ("head", "old", "new"),
    [
        *((MHA, b"= 2", b"= " + axes) for axes in (b"-2", b"0", b"3", b"2.0", b"x", b"99999999999")),
        *((MHA, b"DimSize = 4 3", b"DimSize = 4 " + size) for size in (b"-3", b"9" * 5000)),
        (MHA, b"ElementType", b"HeaderSize = 5\nElementType"),
        (MHA, b"ElementType", b"BinaryData = F\nElementType"),
        (NRRD, b"dimension: 2", b"dimension: 99999999999"),
        (NRRD, b"sizes: 4 3\n", b""),
        *((NRRD, b"encoding", skip + b"\nencoding") for skip in (b"line skip: 1152921504606846976", b"byte skip: 2")),
        (NRRD, b"encoding: raw", b"encoding: text"),
    ],
)
def test_numbers_of_a_header_that_itk_hangs_on_or_passes_over_are_refused(head, old, new, tmp_path):
    assert old in head
    path = put(tmp_path / ("a.mha" if head is MHA else "a.nrrd"), head + bytes(range(12)))
    assert np.array_equal(values(path).values, np.arange(12).reshape(3, 4))
    with pytest.raises(DataError, match="truncated or damaged") as error:
        values(put(path, head.replace(old, new, 1) + bytes(range(12))))
    assert len(error.value.problems) == 1


PLANE = np.arange(3000, dtype=np.uint16).reshape(50, 60) % 700


def packed_mha(body, size):
    head = MHA.replace(b"MET_UCHAR", b"MET_USHORT").replace(b"4 3", b"60 50")
    stated = b"" if size is None else b"\nCompressedDataSize = %d" % size
    return head.replace(b"\nDimSize", b"\nBinaryData = True\nCompressedData = True" + stated + b"\nDimSize") + body


def coded_nrrd(body, coding):
    return NRRD.replace(b"uint8", b"uint16\nendian: little").replace(b"4 3", b"60 50").replace(b"raw", coding) + body


ZLIB, GZIP = zlib.compress(PLANE.tobytes()), gzip.compress(PLANE.tobytes())
FLIPPED = [bytes(byte ^ (4 * (place == at)) for place, byte in enumerate(ZLIB)) for at in (0, 5, 90, len(ZLIB) - 1)]
PACKED = packed_mha(ZLIB, len(ZLIB))


@pytest.mark.parametrize(
    ("name", "good", "wrong"),
    [
        *(("flipped.mha", PACKED, packed_mha(each, len(ZLIB))) for each in FLIPPED),
        *(("size.mha", PACKED, packed_mha(ZLIB, size)) for size in (None, 0, 1, len(ZLIB) - 9)),
        ("cut.mha", PACKED, packed_mha(ZLIB[:-9], len(ZLIB) - 9)),
        ("more.mha", PACKED, packed_mha(ZLIB + b"more", len(ZLIB) + 4)),
        ("raw.mha", MHA + bytes(12), MHA + bytes(13)),
        ("raw.nrrd", NRRD + bytes(12), NRRD + bytes(13)),
        ("sum.nrrd", coded_nrrd(GZIP, b"gzip"), coded_nrrd(GZIP[:-8] + bytes(4) + GZIP[-4:], b"gzip")),
        ("cut.nrrd", coded_nrrd(GZIP, b"gz"), coded_nrrd(GZIP[:-4], b"gz")),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)
def test_pixels_that_itk_makes_up_are_refused(name, good, wrong, tmp_path):
    """ITK fills the rest of a damaged zlib stream with uninitialised memory."""
    found = values(put(tmp_path / name, good)).values
    if found.shape == PLANE.shape:
        assert np.array_equal(found, PLANE)
    with pytest.raises(DataError, match="truncated or damaged"):
        values(put(tmp_path / name, wrong))


def test_a_file_that_crashes_itk_is_one_line(tmp_path, monkeypatch):
    """A reader of ours that crashes stands in for it, as each fault of ITK's is mended some day."""
    monkeypatch.setattr(medical, "_read_itk", apart.crash)
    with pytest.raises(DataError, match=r"a.nrrd: expected `file` to be .*its decoder ended by SIGSEGV"):
        values(put(tmp_path / "a.nrrd", NRRD + bytes(12)))


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


@pytest.mark.parametrize(
    ("field", "value", "rule"),
    [
        ("ImagePositionPatient", [*ORIGIN[:2], 99], "to be slices of one volume, got frames at irregular places"),
        ("SegmentationType", "FRACTIONAL", "to hold segments and not fractions"),
        ("SOPClassUID", "1.2.840.10008.5.1.4.1.1.2", "to be a segmentation, got CT Image Storage"),
    ],
)
def test_other_dicom_files_are_refused(field, value, rule, tmp_path):
    write_dicom(tmp_path / "a.dcm", draw_mask(shape=SHAPE))
    dataset = library("pydicom").dcmread(tmp_path / "a.dcm")
    last = dataset.PerFrameFunctionalGroupsSequence[-1].PlanePositionSequence[0]
    setattr(last if field in last else dataset, field, value)
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
