"""MHA and NRRD files: pixels and place as SimpleITK has them, and what is refused."""

import gzip
import re
import zlib
from pathlib import Path

import numpy as np
import pytest

from segmeter.data.files import medical, reader_process
from segmeter.data.masks.reading import read_values
from segmeter.errors import DataError
from tests.data.files import apart
from tests.data.formats_written import EDGES, ORIGIN, draw_mask, library, write_itk


def values(path: Path, max_pixels: int = 10_000):
    return read_values(path, max_pixels=max_pixels)


@pytest.mark.parametrize("suffix", [".mha", ".nrrd"])
def test_the_place_of_a_turned_volume_is_simpleitks(suffix, tmp_path):
    """ITK's world goes to the left and to posterior, NIfTI's to the right and to anterior."""
    sitk = library("SimpleITK")
    mask = draw_mask(shape=(6, 24, 30))
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


@pytest.mark.parametrize(
    ("suffix", "line", "new"),
    [
        (".mha", MHA_SPACING, b"ElementSpacing = 0 1\n"),
        (".mha", MHA_SPACING, b"ElementSpacing = nan 1\n"),
        (".mha", MHA_SPACING, b"ElementSpacing = wide 1\n"),
        (".nrrd", NRRD_SPACING, b"space directions: (0,0) (0,1)\n"),
        (".nrrd", NRRD_SPACING, b"space directions: (nan,0) (0,1)\n"),
    ],
)
def test_a_spacing_that_keeps_itk_from_reading_is_named(suffix, line, new, tmp_path):
    """ITK then says no more than that it can't read the file."""
    path = tmp_path / f"a{suffix}"
    write_itk(path, draw_mask())
    content, count = re.subn(line, new, path.read_bytes(), count=1)
    assert count == 1
    path.write_bytes(content)
    given = re.escape(re.split(r"[:=] ", new.decode())[1].strip())
    with pytest.raises(DataError, match=rf"ITK header: expected `spacing` to be a finite number > 0 .*, got '{given}'"):
        values(path)


def test_units_of_mha_and_nrrd_are_read(tmp_path):
    """The same place in millimetres and in micrometres."""
    for suffix, after, line in (
        (".nrrd", b"\nencoding", b'\nspace units: "um" "um" "um"\nencoding'),
        (".mha", b"\nElementDataFile", b"\nDistanceUnits = um\nElementDataFile"),
    ):
        mm, um = tmp_path / f"mm{suffix}", tmp_path / f"um{suffix}"
        mask = draw_mask(shape=(6, 24, 30))
        write_itk(mm, mask)
        write_itk(um, mask, edges=tuple(1000 * edge for edge in EDGES), origin=tuple(1000 * at for at in ORIGIN))
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
        (
            b'units: "um" "um" ""',
            (None, None),
            "unit` of the spacing to be named for every axis or for none, got none, um, um",
        ),
        (b'units: "s" "um" "um"', (None, None), "to be a length .*, got 's'"),
    ],
)
def test_units_of_the_axes_of_nrrd_are_read(line, stated, problem, tmp_path):
    """As NRRD has them where no space is named: first axis first."""
    path = tmp_path / "a.nrrd"
    head = b"NRRD0004\ntype: uint8\ndimension: 3\nsizes: 4 3 2\nencoding: raw\nspacings: 0.5 0.75 3\n"
    path.write_bytes(head + line + b"\n\n" + bytes(24))
    found = values(path).geometry
    assert (found.spacing, found.unit) == stated
    assert re.search(problem, found.spacing_problem)
    assert bool(found.spacing_problem) == bool(problem)


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        (b'space units: "mm" "mm" "um"\n', "mm, mm, um"),
        (b'space units: "mm" "mm" "mm"\nunits: "mm" "mm" "mm"\n', "units and space units"),
    ],
)
def test_units_of_nrrd_that_differ_over_its_space_are_refused(lines, found, tmp_path):
    path = tmp_path / "a.nrrd"
    write_itk(path, draw_mask(shape=(6, 24, 30)))
    path.write_bytes(path.read_bytes().replace(b"\nencoding", b"\n" + lines + b"encoding", 1))
    with pytest.raises(DataError, match=f"`unit` of the spacing to be one, got {found}"):
        values(path)


MHA = b"ObjectType = Image\nNDims = 2\nDimSize = 4 3\nElementType = MET_UCHAR\nElementDataFile = LOCAL\n"
NRRD = b"NRRD0004\ntype: uint8\ndimension: 2\nsizes: 4 3\nencoding: raw\n\n"


@pytest.mark.parametrize(
    ("head", "old", "new", "rule"),
    [
        *(
            (MHA, b"NDims = 2", b"NDims = " + axes, "truncated or damaged")
            for axes in (b"-2", b"0", b"3", b"2.0", b"x")
        ),
        (MHA, b"NDims = 2", b"NDims = 99999999999", "99999999999 axes of sizes 4 3"),
        (MHA, b"DimSize = 4 3", b"DimSize = 4 -3", "2 axes of sizes 4 -3"),
        (MHA, b"DimSize = 4 3", b"DimSize = 4 " + b"9" * 5000, "truncated or damaged"),
        (MHA, b"ElementType", b"HeaderSize = 5\nElementType", "followed by the pixels, got HeaderSize 5"),
        (NRRD, b"dimension: 2", b"dimension: 99999999999", "99999999999 axes of sizes 4 3"),
        (NRRD, b"sizes: 4 3\n", b"", "2 axes of sizes none"),
        (NRRD, b"encoding", b"line skip: 1152921504606846976\nencoding", "got lineskip 1152921504606846976"),
        (NRRD, b"encoding", b"byteskip: 1152921504606846976\nencoding", "got byteskip 1152921504606846976"),
        (NRRD, b"encoding", b"byte skip: 2\nencoding", "got byteskip 2. Save it again without"),
        (NRRD, b"encoding: raw", b"encoding: text", "`encoding` to be raw or gzip, got text"),
        (MHA, b"ElementType", b"BinaryData = F\nElementType", "`encoding` to be raw or gzip, got BinaryData = False"),
    ],
)
def test_numbers_of_a_header_that_itk_hangs_on_or_passes_over_are_refused(head, old, new, rule, tmp_path):
    assert old in head
    path = tmp_path / ("a.mha" if head is MHA else "a.nrrd")
    path.write_bytes(head + bytes(range(12)))
    assert np.array_equal(values(path).values, np.arange(12).reshape(3, 4))
    path.write_bytes(head.replace(old, new, 1) + bytes(range(12)))
    with pytest.raises(DataError, match=rule) as error:
        values(path)
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


@pytest.mark.parametrize(
    ("name", "good", "wrong"),
    [
        *(("flipped.mha", packed_mha(ZLIB, len(ZLIB)), packed_mha(each, len(ZLIB))) for each in FLIPPED),
        *(("size.mha", packed_mha(ZLIB, len(ZLIB)), packed_mha(ZLIB, size)) for size in (None, 0, 1, len(ZLIB) - 9)),
        ("cut.mha", packed_mha(ZLIB, len(ZLIB)), packed_mha(ZLIB[:-9], len(ZLIB) - 9)),
        ("more.mha", packed_mha(ZLIB, len(ZLIB)), packed_mha(ZLIB + b"more", len(ZLIB) + 4)),
        ("raw.mha", MHA + bytes(12), MHA + bytes(13)),
        ("raw.nrrd", NRRD + bytes(12), NRRD + bytes(13)),
        ("sum.nrrd", coded_nrrd(GZIP, b"gzip"), coded_nrrd(GZIP[:-8] + bytes(4) + GZIP[-4:], b"gzip")),
        ("cut.nrrd", coded_nrrd(GZIP, b"gz"), coded_nrrd(GZIP[:-4], b"gz")),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)
def test_pixels_that_itk_makes_up_are_refused(name, good, wrong, tmp_path):
    """ITK fills the rest of a damaged zlib stream with uninitialised memory."""
    (tmp_path / name).write_bytes(good)
    found = values(tmp_path / name).values
    if found.shape == PLANE.shape:
        assert np.array_equal(found, PLANE)
    (tmp_path / name).write_bytes(wrong)
    with pytest.raises(DataError, match="truncated or damaged"):
        values(tmp_path / name)


def test_a_file_that_crashes_or_hangs_itk_is_one_line(tmp_path, monkeypatch):
    """Whatever the fault: here a reader of ours that does so stands in for it, as each of ITK's is mended some day."""
    path = tmp_path / "a.nrrd"
    path.write_bytes(NRRD + bytes(12))
    for work, rule in ((apart.crash_on, "its decoder ended by SIGSEGV"), (apart.hang_on, "s of processor time")):
        monkeypatch.setattr(medical, "_read_itk", work)
        monkeypatch.setattr(reader_process, "SECONDS", 0.5)
        with pytest.raises(DataError, match=f"a.nrrd: expected `file` to be .*{rule}"):
            values(path)
