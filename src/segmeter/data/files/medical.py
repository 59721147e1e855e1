"""Reads MHA, NRRD and DICOM segmentations in a reader process, because damaged files can crash or hang libraries."""

import math
import os
import re
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from segmeter.checks import expected
from segmeter.data.files.array import FileArray, Opening, array_header
from segmeter.data.files.geometry import MILLIMETRES, Geometry, stated_geometry
from segmeter.data.files.reader_process import need, read_apart
from segmeter.data.files.refusals import damage_named, damaged, file_error, open_regular, show
from segmeter.errors import DataError

SOP_CLASSES = ("1.2.840.10008.5.1.4.1.1.66.4", "1.2.840.10008.5.1.4.1.1.66.7")  # segmentation, label map segmentation
# Maps ITK's and DICOM's axes (left, posterior, superior) to NIfTI's (right, anterior, superior)
FLIPS = np.diag([-1.0, -1.0, 1.0, 1.0])
_ITK, _DICOM = "ITK header", "DICOM"
_MOST_HEADER = 1 << 16  # A header may have this many bytes.
_ENDS = {"mha": rb"(?i)^[ \t]*ElementDataFile[^\n]*\n", "nrrd": rb"\n\r?\n"}  # how a header ends
_SKIPS = ("headersize", "lineskip", "byteskip")  # fields that skip bytes before the pixels
_SPACINGS = ("elementspacing", "elementsize", "spacings", "spacedirections")

Decoded = tuple[NDArray[Any], Geometry]


def _opened(path: Path, file: IO[bytes], form: str, opening: Opening, decoded: Decoded) -> FileArray:
    """Wrap the pixels that a reader process has decoded."""
    pixels, geometry = decoded
    header = array_header(path, form, pixels.shape, pixels.dtype, opening)
    return FileArray(path, file, header, geometry, lambda: pixels)


def open_itk(path: Path, file: IO[bytes], opening: Opening) -> FileArray:
    """Open an .mha or .nrrd file: (H, W) or (D, H, W), as SimpleITK gives it.

    The spacing is in mm unless the file names another unit. The affine leads to right, anterior, superior, as in NIfTI.
    """
    form, fields, start, pixels = _read_itk_head(path, file)
    arguments = (path, form, fields, start, opening)
    size = os.fstat(file.fileno()).st_size
    pixels = min(pixels, opening.max_pixels)
    decoded = read_apart(path, _read_itk, *arguments, size=size, pixels=pixels, max_pixels=opening.max_pixels)
    return _opened(path, file, "itk", opening, decoded)


def count_itk_pixels(path: Path) -> int:
    """Return the pixels of an .mha or .nrrd file, which `open_itk` would decode; DataError without a sound header."""
    with damage_named(path), open_regular(path) as file:
        return _read_itk_head(path, file)[-1]


def open_dicom(path: Path, file: IO[bytes], opening: Opening) -> FileArray:
    """Open a DICOM segmentation: (D, H, W), the number of the segment that covers each voxel, or 0.

    Such files often omit frames without an object, so the volume reaches from the first stored slice to the last.
    """
    size = os.fstat(file.fileno()).st_size
    decoded = read_apart(path, _read_dicom, path, opening, size=size, max_pixels=opening.max_pixels)
    return _opened(path, file, "dicom", opening, decoded)


def _read_itk(path: Path, form: str, fields: Mapping[str, str], start: int, opening: Opening) -> Decoded:
    """Decode the file in the reader process; ITK raises RuntimeError for everything that it can't read."""
    sitk = need("SimpleITK", "itk", "MHA and NRRD files")
    stated = next((fields[name] for name in _SPACINGS if name in fields), None)
    units = _stated_units(path, fields)
    stated_edges = _edges(stated or "")
    try:
        reader = sitk.ImageFileReader()
        reader.SetImageIO({"mha": "MetaImageIO", "nrrd": "NrrdImageIO"}[form])
        reader.SetFileName(str(path))
        reader.ReadImageInformation()
        shape = tuple(reversed(reader.GetSize()))
        if reader.GetNumberOfComponents() != 1:
            values = f"{reader.GetNumberOfComponents()} values per pixel"
            raise file_error(path, "mask", "to have one channel", values, "Save one map per file.")
        while len(shape) > 3 and shape[0] == 1:
            shape = shape[1:]
        array_header(path, "itk", shape, np.dtype(np.float64), opening)
        image = reader.Execute()
        pixels: NDArray[Any] = sitk.GetArrayFromImage(image).reshape(shape)
        _check_bytes(path.read_bytes()[start:], fields, pixels)
    except DataError:
        raise
    except Exception as error:
        if stated is None or (stated_edges and all(math.isfinite(edge) and edge for edge in stated_edges)):
            raise damaged(path, error) from error
        # with such a spacing, ITK reads no pixel
        rule, remedy = "to be a finite number > 0 along every axis", "Correct the file."
        raise DataError(expected(f"{show(path)}: {_ITK}", "spacing", rule, repr(stated[:60]), remedy)) from error
    axes = len(shape)
    units = (units if len(units) > 1 else units * axes)[:axes]
    stated_edges = stated_edges[:axes]
    if not stated_edges:
        return pixels, Geometry()  # ITK reports 1 mm, which the file does not say
    if len(stated_edges) < axes or not all(math.isfinite(edge) and edge > 0 for edge in stated_edges):
        wrong: list[float | None] = [None] * (axes - len(stated_edges)) + stated_edges[::-1]  # ITK would repair it
        return pixels, stated_geometry(path, wrong, units[::-1], source=_ITK)
    edges = image.GetSpacing()[:axes]
    geometry = stated_geometry(path, edges[::-1], units[::-1], source=_ITK)
    if len(set(units)) > 1:  # such axes share no space
        return pixels, geometry
    affine = np.eye(4)
    stored_axes = image.GetDimension()
    directions = np.reshape(image.GetDirection(), (stored_axes, stored_axes))
    affine[:axes, :axes] = directions[:axes, :axes] * np.array(edges)
    affine[:axes, 3] = image.GetOrigin()[:axes]
    affine = FLIPS @ affine
    affine[:3] *= MILLIMETRES[geometry.unit] if geometry.unit else 1.0
    return pixels, geometry.having(affine=affine)


def _read_itk_head(path: Path, file: IO[bytes]) -> tuple[str, dict[str, str], int, int]:
    """Return the format, the fields of the header, the byte at which the pixels begin, and their number."""
    head = file.read(_MOST_HEADER)
    form = "nrrd" if head.startswith(b"NRRD") else "mha"
    fields, start = _read_fields(path, head, form)
    axes = fields.get("ndims", fields.get("dimension"))
    sizes = fields.get("dimsize", fields.get("sizes", "")).split()
    are_sizes = axes == str(len(sizes)) and all(re.fullmatch("[0-9]{1,18}", text) for text in sizes)
    skipped = [f"{name} {fields[name]}"[:60] for name in _SKIPS if fields.get(name, "0") not in ("0", "-1")]
    if not are_sizes or skipped:  # ITK would hang, or ignore them
        raise ValueError(skipped[0] if skipped else f"{axes} axes of sizes {' '.join(sizes)[:60]}")
    return form, fields, start, math.prod(map(int, sizes))


def _read_fields(path: Path, head: bytes, form: str) -> tuple[dict[str, str], int]:
    """Return the fields of a header, by name in lower case without blanks, and the byte at which the pixels begin.

    Raises
    ------
    DataError
        The header has no end, or the pixels are in another file.
    """
    end = re.search(_ENDS[form], head, re.MULTILINE)
    if end is None:
        raise file_error(path, "header", f"to end within {_MOST_HEADER} bytes", "none that does")
    text = head[: end.end()].decode(errors="replace")
    # in NRRD, := marks a comment of the writer
    lines = re.findall(r"^([^:=\n]+)[=:](?!=)(.*)$" if form == "mha" else r"^([^#:\n]+):(?!=)(.*)$", text, re.MULTILINE)
    fields = {"".join(key.lower().split()): value.strip() for key, value in lines}
    elsewhere = fields.get("datafile") if form == "nrrd" else fields.get("elementdatafile")
    if elsewhere not in (None, "LOCAL"):
        what = f"one that names {elsewhere!r}"[:80]
        raise file_error(path, "file", "to hold its pixels itself", what, "Save it as one file.")
    return fields, end.end()


def _check_bytes(body: bytes, fields: Mapping[str, str], pixels: NDArray[Any]) -> None:
    """Compare the bytes behind the header with the pixels that ITK returned.

    ITK accepts a damaged zlib stream silently and returns uninitialised memory for the rest. It ignores additional
    bytes.

    Raises
    ------
    ValueError
        There are more or fewer bytes, or their checksum is wrong.
    """
    is_whole = True
    is_gzip = fields.get("encoding", "").lower() in ("gz", "gzip")
    if is_gzip or fields.get("compresseddata", "F")[:1] in "Tt1":
        unpacker = zlib.decompressobj(zlib.MAX_WBITS + 32)  # accepts both zlib and gzip
        is_whole = is_gzip or fields.get("compresseddatasize") == str(len(body))
        body = unpacker.decompress(body, pixels.nbytes + 1)
        is_whole = is_whole and unpacker.eof and not unpacker.unused_data
    if not is_whole or len(body) != pixels.nbytes:
        raise ValueError(f"other bytes behind the header than those of {pixels.size} pixels")


def _edges(stated: str) -> list[float]:
    """Return the edges in a header, first axis first; empty if there are none."""
    vectors = re.findall(r"\(([^)]*)\)", stated)
    return [math.hypot(*map(_number, vector.split(","))) for vector in vectors] or [*map(_number, stated.split())]


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _stated_units(path: Path, fields: Mapping[str, str]) -> list[str]:
    """Return the unit of each axis, first axis first, or one unit for all. It is mm, as in ITK, if there is none.

    NRRD names units for its own axes or for the axes of the surrounding space. Its own axes may cross those of space,
    so the units of space must be equal.
    """
    if fields.get("distanceunits", "?") != "?":
        return [fields["distanceunits"]]
    by_axis, of_space = (re.findall(r'"([^"]*)"', fields.get(name, "")) for name in ("units", "spaceunits"))
    if (by_axis and of_space) or len(set(of_space)) > 1:
        stated = "units and space units" if by_axis else ", ".join(of_space)
        rule, remedy = "of the spacing to be one", "Correct the file."
        raise DataError(expected(f"{show(path)}: {_ITK}", "unit", rule, stated, remedy))
    return by_axis or of_space or ["mm"]


def _read_dicom(path: Path, opening: Opening) -> Decoded:
    """Decode the file in the reader process."""
    highdicom = need("highdicom", "dicom", "DICOM segmentations")
    try:
        dataset = need("pydicom", "dicom", "DICOM segmentations").dcmread(path)
        if str(dataset.SOPClassUID) not in SOP_CLASSES:
            kind = str(getattr(dataset.SOPClassUID, "name", dataset.SOPClassUID))[:60]
            raise file_error(path, "DICOM file", "to be a segmentation", kind)
        if str(dataset.SegmentationType) == "FRACTIONAL":
            rule, remedy = "to hold segments and not fractions", "Decide on labels first: save it as BINARY."
            raise file_error(path, "SegmentationType", rule, "FRACTIONAL", remedy)
        segmentation = highdicom.seg.Segmentation.from_dataset(dataset, copy=False)
        grid = segmentation.get_volume_geometry(allow_missing_positions=True)
        if grid is None:
            rule, remedy = "to be slices of one volume", "Convert it to one with a regular spacing."
            raise file_error(path, "segmentation", rule, "frames at irregular places", remedy)
        array_header(path, "dicom", tuple(grid.spatial_shape), np.dtype(np.uint16), opening)
        volume = segmentation.get_volume(combine_segments=True, allow_missing_positions=True, dtype=np.uint16)
    except DataError:
        raise
    except Exception as error:  # pydicom and highdicom raise many types on hostile bytes
        if "overlap" in str(error).lower():
            rule, remedy = "to have one segment per voxel", "Score its segments one by one, each as its own file."
            raise file_error(path, "segments", rule, "segments that overlap", remedy) from error
        raise damaged(path, error) from error
    pixels = volume.array
    affine = volume.affine[:, [2, 1, 0, 3]]  # its columns are now those of image columns, rows and slices
    if np.linalg.det(affine[:3, :3]) < 0:  # slices run against the normal of their plane; other readers follow it
        affine[:3, 3] += affine[:3, 2] * (len(pixels) - 1)
        affine[:3, 2] *= -1
        pixels = pixels[::-1]
    geometry = stated_geometry(path, list(volume.spacing), ["mm"] * 3, source=_DICOM, affine=FLIPS @ affine)
    return np.ascontiguousarray(pixels), geometry
